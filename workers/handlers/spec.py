"""Tier 1: change a site by its spec, with no container and nothing executed that a model wrote.

A direct edit costs nothing. Otherwise a model writes a patch of the spec, or an outline that the catalog expands, and a
deterministic builder makes the pages. What cannot be done here goes to tier 2 with the reason: an invalid or poor spec
after one retry (H-067, H-068), and an edit of plain HTML pages, unless it means exactly one change of their text, an
attribute or an element. That is made in place, byte for byte; but never on a page that still is its spec's render,
which it would detach.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import Any

from gateway.client import Text
from gateway.errors import BudgetExceededError, CallTimeoutError
from routing.jobs import Reason
from routing.model_call import MAX_SUMMARY_CHARACTERS, summary_of, way_out
from routing.queues import CallPurpose, Tier
from sites.direct_edit.direct import NoPlainEdit, PlainEdit, apply_direct, edit_plain, parse_direct
from sites.errors import DetachedPagesError, SpecError
from sites.files import is_built
from sites.links import dead_links
from sites.releases import profile_of, refusal_of
from sites.scan.rules import describe_limits
from sites.spec.catalog import catalog_prompt, outline_prompt, read_prompt
from sites.spec.edit import apply_edit, edit_of, edit_tool, relevant_part
from sites.spec.fonts.families import is_shipped
from sites.spec.html import say
from sites.spec.languages.address import address_line
from sites.spec.languages.owner import written_in
from sites.spec.languages.translation import (
    MAX_CHUNK_CHARACTERS,
    MAX_CHUNKS,
    Choice,
    add_versions,
    apply_translation,
    choose_texts,
    chunks,
    left_over,
    translate_tool,
)
from sites.spec.languages.translation_requests import is_translation
from sites.spec.languages.versions import lead_everywhere, main_language, outdated
from sites.spec.model import INDEX, MAX_PAGES, Site, parse_site
from sites.spec.outline import expand_outline, further_languages, has_empty_news, left_out, outline_tool
from sites.spec.permitted import permitted
from sites.spec.quality import is_unchanged, loses_copy, lost_change
from sites.spec.render import detached_files, render, render_onto, theme_notes
from workers.attempt import Attempt, Inputs
from workers.compute import timed
from workers.handlers.cut_replies import Begun
from workers.outcomes import Answered, Asked, Candidate, Escalate, Outcome

IMPORTED = "the site was imported without a spec"
EDITED = "their bytes are not the render of the site's spec"


def edit_plain_html(inputs: Inputs) -> Candidate | Escalate:
    """Edit pages of plain HTML in place, or escalate with the reason."""
    files, site = inputs.files, inputs.spec
    detached = detached_files(site, files) if site else frozenset()
    managed = site.pages.keys() - detached if site else frozenset()
    why = IMPORTED if site is None else EDITED
    edit = edit_plain(inputs.prompt, files) if not inputs.instruction else NoPlainEdit("a debate added to the request")
    if isinstance(edit, PlainEdit):
        changed = {path for path, data in edit.files.items() if files.get(path) != data}
        if not changed & managed:
            pages = pages_fact(changed, f"plain HTML, for {why}")
            return Candidate(
                edit.files, edit.summary, facts={"how": "direct edit of plain HTML, no model", "pages": pages}
            )
        edit = NoPlainEdit(f"it would also change {min(changed & managed)}, which is rendered from the spec")
    which = f"{', '.join(sorted(detached))}: " if detached else ""
    return Escalate(Tier.PATCH, Reason.NOT_SPEC_MANAGED, f"plain HTML ({which}{why}): {edit.reason}")


def also_on(inputs: Inputs, sought: Sequence[str], detached: frozenset[str]) -> str:
    """Return why an edit of the spec would be incomplete, since plain pages are affected too; empty if it is not."""
    if not detached:
        return ""
    if path := page_with(sought, detached, inputs.files):
        return f"{path} is plain HTML ({EDITED}) and has to change too"
    found = edit_plain(inputs.prompt, inputs.files, only=detached)
    if isinstance(found, PlainEdit) or found.is_ambiguous:
        return f"the request can also mean {', '.join(sorted(detached))}, plain HTML ({EDITED})"
    return ""


def page_with(texts: Sequence[str], paths: Iterable[str], files: Mapping[str, bytes]) -> str:
    """Return the first of some files whose source contains one of some texts, or an empty string."""
    wanted = [escape(text, quote=False).encode().lower() for text in texts]
    return next((path for path in sorted(paths) if any(text in files.get(path, b"").lower() for text in wanted)), "")


def is_about(prompt: str, site: Site, paths: frozenset[str]) -> bool:
    """Whether everything that a request names is on some of the site's pages."""
    pages = relevant_part(site, prompt).document["pages"]
    return {path for path, page in pages.items() if page["elements"].keys() - {page["root"]}} <= paths


def pages_fact(paths: Iterable[str], kind: str) -> str:
    """Return which files an edit changed and their kind, for the job's owner."""
    return f"{', '.join(sorted(paths))}: {kind}"


MAX_QUOTED_CHARACTERS = 6_000
"""Of a refused reply that its author sees again."""


@dataclass(frozen=True)
class _Poor:
    """Why a model's reply is unusable."""

    reason: Reason
    detail: str
    replies: Sequence[Mapping[str, Any]] = ()

    def quoted(self) -> str:
        """Return the replies and what is wrong with them, for their author."""
        sent = "\n".join(json.dumps(reply, ensure_ascii=False) for reply in self.replies)[:MAX_QUOTED_CHARACTERS]
        return f"Your last reply was refused:\n{sent}\n\nWhy:\n{self.detail}\nSend it whole again, mended."


def edit_spec(attempt: Attempt) -> Outcome:
    """Do a tier 1 job."""
    plan = attempt.compute(_plan)
    return _by_model(attempt, plan) if isinstance(plan, _Task) else plan


def _plan(inputs: Inputs) -> Outcome | _Task:
    """Edit without a model, or return what a model has to be asked."""
    if inputs.start is None:
        return _outline_task(inputs)
    if is_built(inputs.files):
        return Escalate(Tier.PATCH, Reason.NOT_SPEC_MANAGED, "a build writes the site's pages, and builds need a box")
    site = inputs.spec
    detached = detached_files(site, inputs.files) if site else frozenset()
    if site is None or detached >= site.pages.keys():
        return edit_plain_html(inputs)
    direct = parse_direct(inputs.prompt, site) if not inputs.instruction else None
    if direct is not None:
        changed = apply_direct(site, direct)
        result = _candidate(inputs, changed, before=site, summary=direct.summary, how="direct edit, no model")
        if isinstance(result, Escalate):
            return edit_plain_html(inputs)
        doubt = also_on(inputs, direct.sought, detached)
        return Escalate(Tier.PATCH, Reason.NOT_SPEC_MANAGED, doubt) if doubt else result
    if detached:
        plain = edit_plain_html(inputs)
        if isinstance(plain, Candidate) or is_about(inputs.prompt, site, detached):
            return plain
    if is_translation(inputs.prompt, site) and (texts := choose_texts(site, inputs.words, without=detached)).entries:
        return _translation_task(inputs, site, texts, detached)
    return _edit_task(inputs, site, detached)


_MOST_LINKS_TOLD = 10


def refused_by_scan(inputs: Inputs, candidate: Candidate) -> str:
    """Return what the model that wrote a candidate should mend: what the scan will refuse, and new dead links."""
    assert inputs.site is not None
    with timed("check"):
        refusal = refusal_of(candidate.files, site=inputs.site, policy=inputs.policy)
        dead = sorted(dead_links(candidate.files) - dead_links(inputs.files))[:_MOST_LINKS_TOLD]
    return "\n".join(part for part in (refusal, *map(str, dead)) if part)


def limits_of(inputs: Inputs) -> str:
    """Return what the site's profile allows, in words for a model."""
    assert inputs.site is not None
    return describe_limits(profile_of(inputs.policy, inputs.site))


_NO_MORE_QUESTIONS = "The owner was asked often enough. Do what is clear, or say in `cannot` why nothing can be done."


def unchanged(inputs: Inputs, answer: str, facts: Mapping[str, Any]) -> Answered | Candidate:
    """Return what ends a request for which nothing has to change; what an earlier round made stays to be approved."""
    if inputs.begun is None:
        return Answered(answer, facts)
    spec = inputs.spec.canonical().encode() if inputs.spec is not None else None
    return Candidate(inputs.files, answer[:MAX_SUMMARY_CHARACTERS], spec=spec, facts=facts)


def decline(inputs: Inputs, reply: Mapping[str, Any], *, to: Tier) -> Answered | Asked | Candidate | Escalate | str:
    """Return what follows an edit that the model left empty: an answer, a question, a higher tier, or its feedback.

    Empty if the model said nothing of it.
    """
    if answer := way_out(reply, "answer"):
        return unchanged(inputs, answer, {"how": "a model found nothing to change"})
    if question := way_out(reply, "ask"):
        return Asked(question) if inputs.may_ask else _NO_MORE_QUESTIONS
    if reason := way_out(reply, "cannot"):
        return Escalate(to, Reason.BEYOND_TIER, reason)
    return ""


_NO_EFFECT = (
    "what it sets has no effect: every page is the same after it. Do it otherwise, or say in `cannot` what the builder "
    "cannot do"
)
_CUT = _Poor(Reason.SPEC_INVALID, "the model's reply was cut off at its token limit: write less")


@dataclass(frozen=True)
class _Task:
    """What a model is asked for, and what becomes of its reply; functions of modules, for it comes from a child."""

    purpose: CallPurpose
    system: Callable[[], str]
    prompts: Sequence[Sequence[Text]]
    """Of calls that are made side by side; mostly one."""
    tool: Callable[[], Mapping[str, Any]]
    use: Callable[[Inputs, Sequence[Mapping[str, Any]]], Outcome | _Poor | _Task]
    """What becomes of its replies; another task is asked instead, or next."""
    otherwise: Callable[[Inputs], Outcome] | None = None
    """What is handed over where no usable reply came; by default the next tier takes over."""


def _by_model(attempt: Attempt, task: _Task) -> Outcome:
    problem, tries, begun = _Poor(Reason.SPEC_INVALID, ""), attempt.policy.attempts.spec, None
    for number in range(1, tries + 1):
        again = [Text(begun.request())] if begun else [Text(problem.quoted())] if problem.replies else []
        prompts = [[*parts, *again] for parts in task.prompts]
        try:
            calls = attempt.tool_calls(task.purpose, prompts, system=task.system(), tool=task.tool())
        except (BudgetExceededError, CallTimeoutError):
            if task.otherwise is None:
                raise
            break
        replies = [begun.joined(call.input) if begun else call.input for call in calls]
        is_cut = any(call.is_cut for call in calls)
        begun = Begun.of(replies[0], task.tool()) if is_cut and len(replies) == 1 and number < tries else None
        if begun:
            continue
        result = _CUT if is_cut else attempt.compute(_use, task.use, replies, may_mend=number < tries)
        if isinstance(result, _Task):
            return _by_model(attempt, result)
        if not isinstance(result, _Poor):
            return result
        problem = replace(result, replies=replies)
        attempt.kept[:] = [f"{task.purpose} was tried; nothing usable was kept"]
    if task.otherwise is not None:
        return attempt.compute(task.otherwise)
    return Escalate(Tier.PATCH, problem.reason, problem.detail)


def _use(
    inputs: Inputs,
    use: Callable[[Inputs, Sequence[Mapping[str, Any]]], Outcome | _Poor | _Task],
    replies: Sequence[Mapping[str, Any]],
    *,
    may_mend: bool,
) -> Outcome | _Poor | _Task:
    """Return what becomes of a model's replies; what the scan will refuse is poor while the model may mend it."""
    result = use(inputs, replies)
    if may_mend and isinstance(result, Candidate) and (refusal := refused_by_scan(inputs, result)):
        return _Poor(Reason.SCAN_REFUSED, refusal)
    return result


def _edit_task(inputs: Inputs, site: Site, detached: frozenset[str]) -> _Task:
    """Return the task of an edit: rules and catalog, which all sites share, then the document, then the request."""
    document = f"{limits_of(inputs)}\n\nThe site document:\n{relevant_part(site, inputs.words).to_text()}"
    by_hand = ", ".join(sorted(detached))
    fixed = f"These files were edited by hand and stay as they are: {by_hand}\n\n" if detached else ""
    return _Task(
        "spec_edit",
        catalog_prompt,
        [[Text(document, ends_prefix=True), Text(f"{fixed}{inputs.asked}")]],
        edit_tool,
        _edited,
    )


def _edited(inputs: Inputs, replies: Sequence[Mapping[str, Any]]) -> Outcome | _Poor:
    site, reply = inputs.spec, replies[0]
    assert site is not None
    if not reply.get("operations") and (declined := decline(inputs, reply, to=Tier.PATCH)):
        return _Poor(Reason.SPEC_POOR, declined) if isinstance(declined, str) else declined
    try:
        changed = apply_edit(site, edit_of(reply))
    except SpecError as error:
        return _Poor(Reason.SPEC_INVALID, str(error))
    if is_unchanged(site, changed):
        return _Poor(Reason.SPEC_POOR, "the model's patch changes nothing")
    if loses_copy(site, changed, request=inputs.words):
        return _Poor(Reason.SPEC_POOR, "the model's patch drops more than half of the site's copy")
    if lost := lost_change(inputs.words, site, changed):
        return _Poor(Reason.SPEC_POOR, lost)
    summary = summary_of(reply, otherwise="Edited by the model.")
    candidate = _candidate(inputs, changed, before=site, summary=summary, how="a model's patch of the spec")
    if isinstance(candidate, Candidate) and candidate.files == inputs.files:
        return _Poor(Reason.SPEC_POOR, _NO_EFFECT)
    return candidate


def _outline_task(inputs: Inputs) -> _Task:
    return _Task(
        "spec_create",
        outline_prompt,
        [[Text(f"The owner describes the site:\n{inputs.order}")]],
        outline_tool,
        _created,
    )


def _translation_task(inputs: Inputs, site: Site, texts: Choice, detached: frozenset[str]) -> _Task:
    return _Task(
        "spec_edit",
        partial(read_prompt, "translate.md"),
        [[text, Text(inputs.asked)] for text in _parts(inputs, site, texts)],
        translate_tool,
        partial(_translated, texts=texts, detached=detached),
    )


def _parts(inputs: Inputs, site: Site, texts: Choice) -> list[Text]:
    """Return the texts to translate, in parts that side by side calls get."""
    parts, address = chunks(texts.entries), address_line(site, inputs.words)
    which = ", part {} of {}; others get the rest" if len(parts) > 1 else ""
    return [
        Text(f"{address}\n\nThe site's texts{which.format(number, len(parts))}:\n{part}")
        for number, part in enumerate(parts, 1)
    ]


def _translated(
    inputs: Inputs, replies: Sequence[Mapping[str, Any]], *, texts: Choice, detached: frozenset[str]
) -> Outcome | _Poor | _Task:
    site = inputs.spec
    assert site is not None
    if not any(reply.get("texts") for reply in replies):
        if any(way_out(reply, "cannot") for reply in replies):
            return _edit_task(inputs, site, detached)  # its words only sounded like a translation
        declined = next(
            (found for reply in replies if (found := decline(inputs, reply, to=Tier.PATCH))), "no text came"
        )
        return _Poor(Reason.SPEC_POOR, declined) if isinstance(declined, str) else declined
    owner = _owner_language(inputs, site)
    try:
        changed, summary, left = _in_language(site, texts, replies, owner=owner)
    except SpecError as error:
        return _Poor(Reason.SPEC_INVALID, str(error))
    if is_unchanged(site, changed):
        if len(site.pages) < MAX_PAGES or not _is_beside(replies):
            return _Poor(Reason.SPEC_POOR, "the translation changes nothing")
        full = f"a site holds at most {MAX_PAGES} pages, and this one has {len(site.pages)}: no version has room"
        return Escalate(Tier.PATCH, Reason.BEYOND_TIER, full)
    if by_hand := sorted(detached & site.pages.keys()):
        left.append(_say("{pages} stays as it is, as it was edited by hand", owner, pages=", ".join(by_hand)))
    said = next((text for reply in replies if (text := summary_of(reply, otherwise=""))), f"{summary}.")
    return _candidate(inputs, changed, before=site, summary=said, how="a model's translation", left=left)


def _is_beside(replies: Sequence[Mapping[str, Any]]) -> bool:
    return any(reply.get("beside") is True or reply.get("partial") is True for reply in replies)


def _in_language(
    site: Site, texts: Choice, replies: Sequence[Mapping[str, Any]], *, owner: str
) -> tuple[Site, str, list[str]]:
    """Return a site with its translated texts, in their place or beside them; what was done; and what was not."""
    left = [*left_over(site, texts.entries, replies, told_in=owner)]
    if texts.left:
        phrase = say(
            "not translated: {pages}, as a job translates at most {n} characters; ask for these pages next", owner
        )
        left.append(phrase.format(pages=", ".join(texts.left), n=f"{MAX_CHUNKS * MAX_CHUNK_CHARACTERS:,}"))
    if not _is_beside(replies):
        return apply_translation(site, texts.entries, replies), "Translated by the model", left
    made = add_versions(site, texts.entries, replies, told_in=owner)
    return made.site, f"In a further language: {', '.join(made.written)}", [*made.left, *left]


def _created(inputs: Inputs, replies: Sequence[Mapping[str, Any]]) -> Outcome | _Poor | _Task:
    reply = replies[0]
    if not reply.get("sections") and (declined := decline(inputs, reply, to=Tier.PATCH)):
        return _Poor(Reason.SPEC_POOR, declined) if isinstance(declined, str) else declined
    try:
        site = expand_outline(reply)
    except SpecError as error:
        return _Poor(Reason.SPEC_INVALID, str(error))
    summary = summary_of(reply, otherwise="A new site from its description.")
    owner, left = _owner_language(inputs, site), []
    if missing := ", ".join(left_out(reply)):
        left.append(_say("left out, as the request does not give what they need: {sections}", owner, sections=missing))
    if has_empty_news(reply):
        left.append(say("the list of news is empty until the first entry", owner))
    if further := further_languages(reply):
        return _versions_task(inputs, site, summary, further, left=left)
    return _new_site(inputs, spec=site.canonical(), summary=summary, left=left)


def _new_site(inputs: Inputs, *, spec: str, summary: str, left: Sequence[str] = ()) -> Outcome:
    site = parse_site(spec)
    return _candidate(inputs, site, before=None, summary=summary, how="a model's outline", left=left)


def _versions_task(inputs: Inputs, site: Site, summary: str, further: Sequence[str], *, left: Sequence[str]) -> _Task:
    """Return the task of translating a new site into further languages; without it the site is in one language."""
    texts = choose_texts(site, "")
    asked = f"{inputs.asked}\n\nThe site was made from that. Put all of these texts into the language"
    prompts = [[text, Text(f"{asked} “{lang}”.")] for lang in further for text in _parts(inputs, site, texts)]
    owner = _owner_language(inputs, site)
    missing = _say("not translated into {languages}; ask for that next", owner, languages=", ".join(further))
    return _Task(
        "spec_edit",
        partial(read_prompt, "translate.md"),
        prompts,
        translate_tool,
        partial(_with_versions, spec=site.canonical(), texts=texts, further=further, summary=summary, told=left),
        otherwise=partial(_new_site, spec=site.canonical(), summary=summary, left=[*left, missing]),
    )


def _with_versions(
    inputs: Inputs,
    replies: Sequence[Mapping[str, Any]],
    *,
    spec: str,
    texts: Choice,
    further: Sequence[str],
    summary: str,
    told: Sequence[str] = (),
) -> Outcome | _Poor:
    site = parse_site(spec)
    source = site.pages[INDEX]["elements"]["page"]["props"]["lang"]
    owner, left = _owner_language(inputs, site), [*told]
    if texts.left:
        left.append(_say("not translated: {pages}", owner, pages=", ".join(texts.left)))
    size = len(replies) // len(further)
    for at, lang in enumerate(further):
        group = [{**reply, "language": lang, "source": source} for reply in replies[at * size : (at + 1) * size]]
        if not all(reply.get("texts") for reply in group):
            return _Poor(Reason.SPEC_POOR, f"texts in {lang} are missing")
        try:
            left += left_over(site, texts.entries, group, told_in=owner)
            site = add_versions(site, texts.entries, group, told_in=owner).site
        except SpecError as error:
            return _Poor(Reason.SPEC_INVALID, str(error))
    summary += f" ({', '.join([source, *further])})"
    return _new_site(inputs, spec=site.canonical(), summary=summary, left=left)


def _candidate(
    inputs: Inputs, site: Site, *, before: Site | None, summary: str, how: str, left: Sequence[str] = ()
) -> Candidate | Escalate:
    """Render a changed site around its detached pages, or escalate if the change affects one of them.

    The owner is told what was `left` as it is, and all else that is not as wished.
    """
    assert inputs.site is not None
    lang = _owner_language(inputs, before or site)
    site, missing = permitted(site, profile_of(inputs.policy, inputs.site), told_in=lang)
    with timed("render"):
        try:
            site, files = _rendered(before, site, inputs.files)
        except DetachedPagesError as error:
            return Escalate(Tier.PATCH, Reason.NOT_SPEC_MANAGED, str(error))
    changed = {path for path, data in files.items() if inputs.files.get(path) != data and not is_shipped(path)}
    facts = {"how": how, "pages": pages_fact(changed, "spec-managed")}
    notes = [*left, *missing, *_notes_of(before, site, lang)]
    summary = " ".join([summary, *(f"{say('Note', lang)}: {note}." for note in notes)])
    return Candidate(files=files, summary=summary, spec=site.canonical().encode(), facts=facts)


def _rendered(before: Site | None, site: Site, files: Mapping[str, bytes]) -> tuple[Site, dict[str, bytes]]:
    """Return a changed site, all of whose pages lead to its new languages unless one was edited by hand; its files."""
    linked = lead_everywhere(before, site)
    if before is None:
        return linked, dict(files) | render(linked)
    try:
        return linked, render_onto(before, linked, files)
    except DetachedPagesError:
        return site, render_onto(before, site, files)


def _owner_language(inputs: Inputs, site: Site) -> str:
    return written_in(inputs.words, otherwise=main_language(site))


def _say(phrase: str, lang: str, **values: str) -> str:
    return say(phrase, lang).format(**values)


def _notes_of(before: Site | None, site: Site, lang: str) -> list[str]:
    """Return what the owner should know of a change beyond its summary, in their language."""
    old = theme_notes(before, lang) if before is not None else ()
    notes = [note for note in theme_notes(site, lang) if note not in old]
    if before is not None and (versions := outdated(before, site)):
        notes.append(_say("{pages} in another language stays as it was", lang, pages=", ".join(versions)))
    return notes
