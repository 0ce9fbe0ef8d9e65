"""A new site from its outline, then in its further languages, then with its drawings, proofread beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gateway.client import Text
from routing.jobs import Reason
from routing.model_call import summary_of
from routing.queues import Tier
from sites.errors import SpecError, refuse
from sites.links import dead_links
from sites.spec.catalog import outline_prompt, read_prompt
from sites.spec.drawings.requests import wanted
from sites.spec.html import say
from sites.spec.languages.translation import Choice, add_versions, choose_texts, left_over
from sites.spec.model import INDEX, Site, parse_site
from sites.spec.outline import expand_outline, further_languages, left_out, outline_tool
from sites.spec.outlines.proofreading import corrected, proof_of, proofreading_tool
from sites.spec.render import render
from workers.attempt import Prompt
from workers.handlers.candidate import candidate_of, owner_language
from workers.handlers.drawing import drawing_task
from workers.handlers.model_task import Poor, Task, asking, decline
from workers.handlers.translation import parts_of, translation_prompt
from workers.inputs import Inputs
from workers.outcomes import Outcome

_OUTLINED = "a model's outline"


def outline_task(inputs: Inputs) -> Task:
    """Return the task of outlining a site from the owner's words."""
    return Task([Prompt("spec_create", outline_prompt(), outline_tool(), [Text(inputs.asked)])], _created)


def _created(inputs: Inputs, replies: Sequence[Mapping[str, Any]]) -> Outcome | Poor | Task:
    reply = replies[0]
    if not reply.get("sections") and (declined := decline(inputs, reply, to=Tier.PATCH)):
        return Poor(Reason.SPEC_POOR, declined) if isinstance(declined, str) else declined
    try:
        site = expand_outline(reply)
    except SpecError as error:
        return Poor(Reason.SPEC_INVALID, str(error))
    if further := further_languages(reply):
        return _versions_task(inputs, site, reply, further, left=_left(inputs, site, reply))
    return _proofread_task(inputs, reply, site)


def _proofread_task(inputs: Inputs, outline: Mapping[str, Any], site: Site) -> Task:
    """Return the task of drawing what a new site wants, and of proofreading it beside that."""
    proof = [Text(f"The owner's request:\n{inputs.order}\n\n{proof_of(inputs.order, outline, site)}")]
    prompt = Prompt("spec_proof", read_prompt("proofread.md"), proofreading_tool(), proof, waits=bool(wanted(site)))
    finish = _finished(inputs, outline, site) if wanted(site) else None
    drawings, otherwise = (finish.prompts, finish.otherwise) if isinstance(finish, Task) else ([], None)
    return Task(
        [*drawings, prompt],
        partial(_proofread, outline=outline),
        otherwise=otherwise or partial(_proofread, replies=[{}], outline=outline),
    )


def _proofread(
    inputs: Inputs, replies: Sequence[Mapping[str, Any]], *, outline: Mapping[str, Any]
) -> Outcome | Poor | Task:
    """Finish a site with the corrections of its proofreader, unless they break it; without any, as it was."""
    *drawings, proof = replies
    site, how = expand_outline(outline), _OUTLINED
    if corrections := proof.get("corrections"):
        try:
            outline, site = _corrected(outline, site, proof)
            how = f"{how}; corrections of its proofreader: {len(corrections)}"
        except SpecError as error:
            how = f"{how}; corrections of its proofreader that cannot be made: {error}"
    finish = _finished(inputs, outline, site, how=how)
    return finish.use(inputs, drawings) if isinstance(finish, Task) else finish


def _corrected(outline: Mapping[str, Any], site: Site, proof: Mapping[str, Any]) -> tuple[Mapping[str, Any], Site]:
    changed = corrected(outline, proof)
    better = expand_outline(changed)
    if wanted(better) != wanted(site):
        raise refuse("bad_outline", "/corrections", "they change what is drawn")
    if dead := dead_links(render(better)):
        raise refuse("bad_outline", "/corrections", str(min(dead, key=str)))
    return changed, better


def _finished(inputs: Inputs, outline: Mapping[str, Any], site: Site, *, how: str = _OUTLINED) -> Outcome | Task:
    return _new_site(inputs, spec=site.canonical(), outline=outline, left=_left(inputs, site, outline), how=how)


def _left(inputs: Inputs, site: Site, outline: Mapping[str, Any]) -> list[str]:
    """Return the notes to the owner on what the outline could not include."""
    owner = owner_language(inputs, site)
    missing = ", ".join(left_out(outline, owner))
    note = say("left out, as the request does not give what they need: {sections}", owner, sections=missing)
    return [note] if missing else []


def _new_site(
    inputs: Inputs, *, spec: str, outline: Mapping[str, Any], left: Sequence[str] = (), how: str = _OUTLINED
) -> Outcome | Task:
    site = parse_site(spec)
    if wanted(site):
        return drawing_task(inputs, site, partial(_new_site, outline=outline, how=how), left=left)
    summary = summary_of(outline, otherwise="A new site from its description.")
    return asking(candidate_of(inputs, site, before=None, summary=summary, how=how, left=left), outline)


def _versions_task(
    inputs: Inputs, site: Site, outline: Mapping[str, Any], further: Sequence[str], *, left: Sequence[str]
) -> Task:
    """Return the task of translating a new site into further languages; without it the site is in one language."""
    texts = choose_texts(site, "")
    asked = f"{inputs.asked}\n\nThe site was made from that. Put all of these texts into the language"
    prompts = [
        translation_prompt([text, Text(f"{asked} “{lang}”.")])
        for lang in further
        for text in parts_of(inputs, site, texts)
    ]
    owner = owner_language(inputs, site)
    missing = say("not translated into {languages}; ask for that next", owner, languages=", ".join(further))
    return Task(
        prompts,
        partial(_with_versions, spec=site.canonical(), texts=texts, further=further, outline=outline, told=left),
        otherwise=partial(_new_site, spec=site.canonical(), outline=outline, left=[*left, missing]),
    )


def _with_versions(
    inputs: Inputs,
    replies: Sequence[Mapping[str, Any]],
    *,
    spec: str,
    texts: Choice,
    further: Sequence[str],
    outline: Mapping[str, Any],
    told: Sequence[str] = (),
) -> Outcome | Poor | Task:
    site = parse_site(spec)
    source = site.pages[INDEX]["elements"]["page"]["props"]["lang"]
    owner, left = owner_language(inputs, site), [*told]
    if texts.left:
        left.append(say("not translated: {pages}", owner, pages=", ".join(texts.left)))
    size = len(replies) // len(further)
    for at, lang in enumerate(further):
        group = [{**reply, "language": lang, "source": source} for reply in replies[at * size : (at + 1) * size]]
        if not all(reply.get("texts") for reply in group):
            return Poor(Reason.SPEC_POOR, f"texts in {lang} are missing")
        try:
            left += left_over(site, texts.entries, group, told_in=owner)
            site = add_versions(site, texts.entries, group, told_in=owner).site
        except SpecError as error:
            return Poor(Reason.SPEC_INVALID, str(error))
    return _new_site(inputs, spec=site.canonical(), outline=outline, left=left)
