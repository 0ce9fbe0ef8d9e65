"""An edit of the site document that a model writes as a patch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gateway.client import Text
from routing.jobs import Reason
from routing.model_call import WAYS_OUT, summary_of, way_out
from routing.queues import Tier
from sites.errors import SpecError
from sites.links import linkable, named_files
from sites.spec.catalog import catalog_prompt
from sites.spec.drawings.requests import wanted
from sites.spec.edit import apply_edit, edit_of, edit_tool, relevant_part, undoing
from sites.spec.fonts.families import is_shipped
from sites.spec.model import INDEX, Site, parse_site
from sites.spec.quality import is_unchanged, loses_copy, lost_change, other_buttons
from sites.spec.render import page_theme
from sites.spec.theme import Theme, palette
from workers.attempt import Prompt
from workers.handlers.candidate import candidate_of
from workers.handlers.drawing import drawing_task
from workers.handlers.model_task import Poor, Task, asking, decline, limits_of
from workers.inputs import Inputs
from workers.outcomes import Candidate, Escalate, Outcome

_NO_EFFECT = (
    "what it sets has no effect: every page is the same after it. Do it otherwise, or say in `cannot` what the builder "
    "cannot do"
)
_MOST_UNDONE = 4000
"""Characters of an undo of earlier rounds, up to which the model is shown it."""


@dataclass(frozen=True)
class Done:
    """What was done of a request before the rest of it is an edit."""

    spec: str
    summary: str
    rest: str
    """In the owner's words."""
    ask: str
    """What the owner is asked with the preview."""
    left: Sequence[str]

    def asked(self, request: str) -> str:
        """Return what the model is asked."""
        return f"{request}\n\nThe document has it already: {self.summary}\nOnly this is left to do: {self.rest}"

    def with_reply(self, reply: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """Return the summary of both, and a reply that asks what either does."""
        said = (self.summary, summary_of(reply, otherwise=""), way_out(reply, "answer"))
        asked = dict.fromkeys(filter(None, (self.ask, way_out(reply, "ask"))))
        return " ".join(filter(None, said)), {**reply, "ask": " ".join(asked)}


def edit_task(
    inputs: Inputs,
    site: Site,
    detached: frozenset[str],
    *,
    done: Done | None = None,
    otherwise: Callable[[Inputs], Outcome | Poor | Task] | None = None,
) -> Task:
    """Return the task of an edit: rules and catalog, which all sites share, then the document, then the request.

    Args:
        inputs: of the attempt.
        site: the document to edit.
        detached: its pages that were edited by hand.
        done: what of the request it has already.
        otherwise: what is handed over where no usable edit came.
    """
    names = linkable({path: data for path, data in inputs.files.items() if not is_shipped(path)})
    files = f"\n\nFiles of the site beside its pages: {names}" if names else ""
    asked, words = (done.asked(inputs.asked), done.rest) if done else (inputs.asked, inputs.words)
    part = relevant_part(site, words).to_text()
    document = f"{limits_of(inputs)}{files}\n\n{_colours(site)}\n\nThe site document:\n{part}"
    by_hand = ", ".join(sorted(detached))
    fixed = f"These files were edited by hand and stay as they are: {by_hand}\n\n" if detached else ""
    request = f"{fixed}{_undoing(inputs)}{_named(inputs)}{asked}"
    parts = [Text(document, ends_prefix=True), Text(request)]
    prompt = Prompt("spec_edit", catalog_prompt(), edit_tool(), parts)
    return Task([prompt], partial(_edited, done=done), otherwise=otherwise, doubt=_buttons)


def _colours(site: Site) -> str:
    """Return which colours the pages have: most come from the preset, or are made of another."""
    theme = page_theme(site, INDEX) or Theme()
    shown = palette(theme, dark=theme.mode == "dark")
    made = "" if theme.deep else ", made of primary as long as it is not set"
    return (
        f"The theme's colours as visitors see them: primary {shown['fill']}, accent {shown['accent']}, background "
        f"{shown['bg']}, deep {shown['deep']}{made}; buttons and links on deep ground are {shown['deep-accent']}, made "
        "of accent, which a button with `accent` true has on light ground."
    )


def _undoing(inputs: Inputs) -> str:
    """Return what would undo the work of earlier rounds, as far as that is little: a part of it may be taken back.

    Of this job's own work, such as pages that it translated, it says nothing.
    """
    live = inputs.base.spec_sha256 if inputs.begun is not None and inputs.base is not None else None
    if live is None or inputs.spec is None:
        return ""
    operations = undoing(inputs.spec, parse_site(inputs.content_store.get(live)))
    told = json.dumps(operations, ensure_ascii=False)
    if not operations or len(told) > _MOST_UNDONE:
        return ""
    return (
        "What earlier rounds changed would be undone by these operations, all or only some of them; lists are replaced "
        f"whole, and an element and its key in `children` go together: {told}\n\n"
    )


def _named(inputs: Inputs) -> str:
    """Return which files the owner's words name, and which of them the site does not have."""
    there, missing = named_files(inputs.words, inputs.files)
    told = f"The owner's words name these files: {', '.join(map(json.dumps, there))}\n\n" if there else ""
    if not missing:
        return told
    names = ", ".join(map(json.dumps, missing))
    return f"{told}No files of the site, so that a link to them leads nowhere and the owner has to be told: {names}\n\n"


def _edited(inputs: Inputs, replies: Sequence[Mapping[str, Any]], *, done: Done | None = None) -> Outcome | Poor | Task:
    site, reply = parse_site(done.spec) if done else inputs.spec, replies[0]
    words, left = (done.rest, done.left) if done else (inputs.words, ())
    assert site is not None
    if done and not reply.get("operations") and any(way_out(reply, name) for name in WAYS_OUT):
        summary, reply = done.with_reply(reply)
        return _of_edit(inputs, spec=done.spec, summary=summary, reply=reply, left=left)
    if done is None and not reply.get("operations") and (declined := decline(inputs, reply, to=Tier.PATCH)):
        return Poor(Reason.SPEC_POOR, declined) if isinstance(declined, str) else declined
    try:
        changed = apply_edit(site, edit_of(reply))
    except SpecError as error:
        return Poor(Reason.SPEC_INVALID, str(error))
    if is_unchanged(site, changed):
        return Poor(Reason.SPEC_POOR, "the model's patch changes nothing")
    if loses_copy(site, changed, request=words):
        return Poor(Reason.SPEC_POOR, "the model's patch drops more than half of the site's copy")
    if lost := lost_change(words, site, changed):
        return Poor(Reason.SPEC_POOR, lost)
    summary, reply = done.with_reply(reply) if done else (summary_of(reply, otherwise="Edited by the model."), reply)
    if wanted(changed):
        return drawing_task(inputs, changed, partial(_of_edit, summary=summary, reply=reply), left=left)
    return _of_edit(inputs, spec=changed.canonical(), summary=summary, reply=reply, left=left)


def _buttons(inputs: Inputs, candidate: Candidate) -> str | None:
    """Return which buttons have another colour than was asked for."""
    return other_buttons(inputs.words, parse_site(candidate.spec.decode())) if candidate.spec else None


def _of_edit(
    inputs: Inputs, *, spec: str, summary: str, reply: Mapping[str, Any], left: Sequence[str] = ()
) -> Outcome | Poor:
    how = "a model's patch of the spec"
    candidate = candidate_of(inputs, parse_site(spec), before=inputs.spec, summary=summary, how=how, left=left)
    if isinstance(candidate, Candidate) and candidate.files == inputs.files:
        return Poor(Reason.SPEC_POOR, _NO_EFFECT)
    left_over = _withdrawn(candidate, reply)
    return left_over if isinstance(left_over, Poor) else asking(left_over, reply)


def _withdrawn(candidate: Candidate | Escalate, reply: Mapping[str, Any]) -> Candidate | Escalate | Poor:
    """Return an edited site without the files that nobody may open any more, which no page may still show."""
    wanted = reply.get("withdraw")
    if isinstance(candidate, Escalate) or not isinstance(wanted, list):
        return candidate
    gone = [path for path in candidate.files if path in wanted and path.startswith("assets/")]
    files = {path: data for path, data in candidate.files.items() if path not in gone}
    shown = [path for path in gone if any(path.encode() in data for data in files.values())]
    if shown:
        return Poor(Reason.SPEC_POOR, f"pages still show what is to be withdrawn: {', '.join(shown)}")
    return replace(candidate, files=files)
