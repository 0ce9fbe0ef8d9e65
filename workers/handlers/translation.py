"""A site's texts in another language, in parts that are translated side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gateway.client import Text
from routing.jobs import Reason
from routing.model_call import WAYS_OUT, one_line, summary_of, way_out
from routing.queues import CallPurpose, Tier
from sites.errors import SpecError
from sites.spec.catalog import read_prompt
from sites.spec.html import say
from sites.spec.languages.address import address_line
from sites.spec.languages.glossary import glossary, repeated_terms, with_glossary
from sites.spec.languages.translation import (
    MAX_CHUNK_CHARACTERS,
    MAX_CHUNKS,
    Choice,
    add_versions,
    apply_translation,
    chunks,
    left_over,
    translate_tool,
)
from sites.spec.model import MAX_PAGES, Site, parse_site
from sites.spec.quality import is_unchanged
from workers.attempt import Prompt
from workers.handlers.candidate import candidate_of, owner_language
from workers.handlers.model_task import Poor, Task, asking, decline
from workers.handlers.spec_edit import Done, edit_task
from workers.inputs import Inputs
from workers.outcomes import Candidate, Escalate, Outcome


def translation_task(inputs: Inputs, site: Site, texts: Choice, detached: frozenset[str]) -> Task:
    """Return the task of translating chosen texts of a site: in several parts once the words that recur are known."""
    parts = chunks(texts.entries)
    if len(parts) < 2 or not (terms := repeated_terms(texts.entries, parts)):
        return _task_of(inputs, parts_of(inputs, site, texts), partial(_translated, texts=texts, detached=detached))
    lines = "\n".join(f"{number} [recurs] {text}" for number, text in terms.items())
    told = f"{address_line(site, inputs.words)}\n\nA glossary of texts that recur; the texts come next:\n{lines}"
    use = partial(_with_terms, texts=texts, detached=detached, terms=terms)
    return replace(_task_of(inputs, [Text(told)], use, "spec_terms"), otherwise=partial(use, replies=[{}]))


def _task_of(
    inputs: Inputs,
    parts: Sequence[Text],
    use: Callable[..., Outcome | Poor | Task],
    purpose: CallPurpose = "spec_edit",
) -> Task:
    return Task([translation_prompt([text, Text(inputs.asked)], purpose) for text in parts], use)


def translation_prompt(parts: Sequence[Text], purpose: CallPurpose = "spec_edit") -> Prompt:
    """Return the prompt of a translation of texts."""
    return Prompt(purpose, read_prompt("translate.md"), translate_tool(), parts)


def _with_terms(
    inputs: Inputs,
    replies: Sequence[Mapping[str, Any]],
    *,
    texts: Choice,
    detached: frozenset[str],
    terms: Mapping[int, str],
) -> Outcome | Poor | Task:
    """Return the task of translating the parts, with what is known of the terms, or what it means that none came."""
    assert inputs.spec is not None
    reply = replies[0] if not way_out(replies[0], "cannot") else {**replies[0], "texts": []}
    if not reply.get("texts") and any(way_out(reply, name) for name in WAYS_OUT):
        return _translated(inputs, [reply], texts=texts, detached=detached)
    parts = [
        Text(with_glossary(part.text, glossary(terms, replies[0]))) for part in parts_of(inputs, inputs.spec, texts)
    ]
    return _task_of(inputs, parts, partial(_translated, texts=texts, detached=detached))


def parts_of(inputs: Inputs, site: Site, texts: Choice) -> list[Text]:
    """Return the texts to translate, in parts that side by side calls get."""
    parts, address = chunks(texts.entries), address_line(site, inputs.words)
    return [
        Text(f"{address}\n\nThe site's texts, part {number} of {len(parts)}:\n{part}")
        for number, part in enumerate(parts, 1)
    ]


def _translated(
    inputs: Inputs, replies: Sequence[Mapping[str, Any]], *, texts: Choice, detached: frozenset[str]
) -> Outcome | Poor | Task:
    site = inputs.spec
    assert site is not None
    if not any(reply.get("texts") for reply in replies):
        if any(way_out(reply, "cannot") for reply in replies):
            return edit_task(inputs, site, detached)  # its words only sounded like a translation
        declined = next(
            (found for reply in replies if (found := decline(inputs, reply, to=Tier.PATCH))), "no text came"
        )
        return Poor(Reason.SPEC_POOR, declined) if isinstance(declined, str) else declined
    owner = owner_language(inputs, site)
    try:
        changed, summary, left = _in_language(site, texts, replies, owner=owner)
    except SpecError as error:
        return Poor(Reason.SPEC_INVALID, str(error))
    if is_unchanged(site, changed):
        if len(site.pages) < MAX_PAGES or not _is_beside(replies):
            return Poor(Reason.SPEC_POOR, "the translation changes nothing")
        full = f"a site holds at most {MAX_PAGES} pages, and this one has {len(site.pages)}: no version has room"
        return Escalate(Tier.PATCH, Reason.BEYOND_TIER, full)
    if by_hand := sorted(detached & site.pages.keys()):
        left.append(say("{pages} stays as it is, as it was edited by hand", owner, pages=", ".join(by_hand)))
    said = next((text for reply in replies if (text := summary_of(reply, otherwise=""))), f"{summary}.")
    if rest := next((text for reply in replies if (text := one_line(str(reply.get("also") or "")))), ""):
        done = Done(changed.canonical(), said, rest, way_out(replies[0], "ask"), left)
        told = say("not done yet: {text}", owner, text=rest.rstrip(" ."))
        alone = partial(_alone, spec=done.spec, summary=said, left=[*left, told], reply=replies[0])
        return edit_task(inputs, changed, detached, done=done, otherwise=alone)
    return _alone(inputs, spec=changed.canonical(), summary=said, left=left, reply=replies[0])


def _alone(
    inputs: Inputs, *, spec: str, summary: str, left: Sequence[str], reply: Mapping[str, Any]
) -> Candidate | Escalate:
    how = "a model's translation"
    made = candidate_of(inputs, parse_site(spec), before=inputs.spec, summary=summary, how=how, left=left)
    return asking(made, reply)


def _is_beside(replies: Sequence[Mapping[str, Any]]) -> bool:
    return any(reply.get("beside") is True or reply.get("partial") is True for reply in replies)


def _in_language(
    site: Site, texts: Choice, replies: Sequence[Mapping[str, Any]], *, owner: str
) -> tuple[Site, str, list[str]]:
    """Return a site with its translated texts, in their place or beside them; what was done; and what was not."""
    left = [*left_over(site, texts.entries, replies, told_in=owner)]
    if texts.left:
        most = {"pages": ", ".join(texts.left), "n": f"{MAX_CHUNKS * MAX_CHUNK_CHARACTERS:,}"}
        left.append(
            say(
                "not translated: {pages}, as a job translates at most {n} characters; ask for these pages next",
                owner,
                **most,
            )
        )
    if not _is_beside(replies):
        return apply_translation(site, texts.entries, replies), "Translated by the model", left
    made = add_versions(site, texts.entries, replies, told_in=owner)
    return made.site, f"In a further language: {', '.join(made.written)}", [*made.left, *left]
