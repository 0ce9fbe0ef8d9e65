"""A new site from its outline, then in its further languages, then with its drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from gateway.client import Text
from routing.jobs import Reason
from routing.model_call import summary_of
from routing.queues import Tier
from sites.errors import SpecError
from sites.spec.catalog import outline_prompt, read_prompt
from sites.spec.drawings.requests import wanted
from sites.spec.html import say
from sites.spec.languages.translation import (
    Choice,
    add_versions,
    choose_texts,
    left_over,
    translate_tool,
)
from sites.spec.model import INDEX, Site, parse_site
from sites.spec.outline import expand_outline, further_languages, has_empty_news, left_out, outline_tool
from workers.attempt import Inputs
from workers.handlers.candidate import candidate_of, owner_language
from workers.handlers.drawing import drawing_task
from workers.handlers.model_task import Poor, Task, decline
from workers.handlers.translation import parts_of
from workers.outcomes import Outcome


def outline_task(inputs: Inputs) -> Task:
    """Return the task of outlining a site from the owner's words."""
    return Task(
        "spec_create",
        outline_prompt,
        [[Text(f"The owner describes the site:\n{inputs.order}")]],
        outline_tool,
        _created,
    )


def _created(inputs: Inputs, replies: Sequence[Mapping[str, Any]]) -> Outcome | Poor | Task:
    reply = replies[0]
    if not reply.get("sections") and (declined := decline(inputs, reply, to=Tier.PATCH)):
        return Poor(Reason.SPEC_POOR, declined) if isinstance(declined, str) else declined
    try:
        site = expand_outline(reply)
    except SpecError as error:
        return Poor(Reason.SPEC_INVALID, str(error))
    summary = summary_of(reply, otherwise="A new site from its description.")
    owner, left = owner_language(inputs, site), []
    if missing := ", ".join(left_out(reply)):
        left.append(say("left out, as the request does not give what they need: {sections}", owner, sections=missing))
    if has_empty_news(reply):
        left.append(say("the list of news is empty until the first entry", owner))
    if further := further_languages(reply):
        return _versions_task(inputs, site, summary, further, left=left)
    return _new_site(inputs, spec=site.canonical(), summary=summary, left=left)


def _new_site(inputs: Inputs, *, spec: str, summary: str, left: Sequence[str] = ()) -> Outcome | Task:
    site = parse_site(spec)
    if wanted(site):
        return drawing_task(inputs, site, partial(_new_site, summary=summary), left=left)
    return candidate_of(inputs, site, before=None, summary=summary, how="a model's outline", left=left)


def _versions_task(inputs: Inputs, site: Site, summary: str, further: Sequence[str], *, left: Sequence[str]) -> Task:
    """Return the task of translating a new site into further languages; without it the site is in one language."""
    texts = choose_texts(site, "")
    asked = f"{inputs.asked}\n\nThe site was made from that. Put all of these texts into the language"
    prompts = [[text, Text(f"{asked} “{lang}”.")] for lang in further for text in parts_of(inputs, site, texts)]
    owner = owner_language(inputs, site)
    missing = say("not translated into {languages}; ask for that next", owner, languages=", ".join(further))
    return Task(
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
    summary += f" ({', '.join([source, *further])})"
    return _new_site(inputs, spec=site.canonical(), summary=summary, left=left)
