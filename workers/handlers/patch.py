"""Tier 2: a model writes a patch, a deterministic applier applies it. Nothing that a model wrote is executed.

A patch that does not apply goes back once with the reason; then the job goes to tier 3 (H-069). One that reaches where
no patch may reach ends the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.client import Text, ToolCall
from ledger.events import EventKind
from ledger.job_ends import is_import
from routing.jobs import Reason, State
from routing.model_call import SUMMARY, WAYS_OUT, load_prompt, summary_of
from routing.queues import CallPurpose, Tier
from sites.diff.apply import SITE, SOURCES, apply_diff
from sites.diff.canonical import Applied
from sites.diff.model import DiffRefusedError
from sites.diff.model import Reason as Refusal
from sites.excerpts import excerpts, seen_lines, show_tree
from sites.files import is_built, sources_of
from workers.attempt import Attempt, Prompt
from workers.compute import timed
from workers.handlers.build import build_in_box
from workers.handlers.imports import import_upload
from workers.handlers.model_task import asking, decline, limits_of, refused_by_scan
from workers.inputs import Inputs
from workers.outcomes import Candidate, Ended, Escalate, Outcome

_FORBIDDEN = frozenset(
    {
        Refusal.UNSAFE_PATH,
        Refusal.NAME_COLLISION,
        Refusal.SYMLINK,
        Refusal.SUBMODULE,
        Refusal.EXTENSION,
        Refusal.PLANTED,
    }
)
"""What no patch may do, and a stronger tool would not make right."""
MAX_QUOTED_PATCH = 12_000
"""Characters of a refused patch that its author sees again."""
MAX_ASKED_FILES = 8
"""Files that a model may ask to see."""

_PLAIN = "The website's files:"
_BUILT = "The website's sources, from which `npm run build` writes its pages:"


def patch_tool() -> dict[str, Any]:
    """Return the tool that a model must call with its patch."""
    return {
        "name": "patch_files",
        "description": "Hand over the patch that does what the request asks.",
        "input_schema": {
            "type": "object",
            "properties": {
                "patch": {"type": "string", "description": "paths with their SEARCH/REPLACE blocks, or a unified diff"},
                "summary": SUMMARY,
                "show": {
                    "type": "array",
                    "items": {"type": "string"},
                    "maxItems": MAX_ASKED_FILES,
                    "description": "only if you cannot do it without more of the listed files than you see: their "
                    "paths; the patch stays empty, and you are asked again with them, once",
                },
                **WAYS_OUT,
            },
            "required": ["patch", "summary"],
        },
    }


@dataclass(frozen=True)
class _Shown:
    """What a model sees of a site."""

    text: str
    is_built: bool
    seen: Mapping[str, Sequence[tuple[int, int]]]
    """The lines of each file that is shown."""

    @property
    def pages(self) -> Sequence[str]:
        """The pages that are shown."""
        return [path for path in self.seen if path.endswith(".html")]


def patch_files(attempt: Attempt) -> Outcome:
    """Do a tier 2 job, or an import."""
    if is_import(attempt.claim.job):
        return import_upload(attempt)
    shown = attempt.compute(_show)
    if not shown.is_built:
        return _patch(attempt, shown)
    last, room = (attempt.start.build_seconds if attempt.start else None) or 0.0, attempt.policy.patch.build_seconds
    if last > room:
        detail = f"the site's last build took {last:.0f} s, and a patch leaves {room:.0f} s for one"
        return Escalate(Tier.AGENT, Reason.BUILD_SLOW, detail)
    return build_in_box(attempt, lambda: _patch(attempt, shown))


def _show(inputs: Inputs, asked_for: Sequence[str] = ()) -> _Shown:
    files = sources_of(inputs.files)  # the next build would undo a change of its output
    words = "\n".join([inputs.words, *(path for path in asked_for if path in files)])
    has_build = is_built(files)
    has_spec = inputs.start is not None and inputs.start.spec_sha256 is not None
    intro = _BUILT if has_build else _PLAIN
    chosen = excerpts(files, words, has_spec=has_spec)
    return _Shown(f"{limits_of(inputs)}\n\n{intro}\n{show_tree(files, chosen)}", has_build, seen_lines(chosen))


def _patch(attempt: Attempt, shown: _Shown) -> Outcome:
    refused, last, tries = "", "", attempt.policy.attempts.patch
    may_see_more = True
    for number in range(1, tries + 1):
        reply = _ask(attempt, shown, refused=refused, last=last)
        if may_see_more and (paths := _asked_for(reply.input)):
            may_see_more = False
            shown = _look(attempt, shown, paths)
            reply = _ask(attempt, shown, refused=refused, last=last)
        last = str(reply.input.get("patch", ""))
        if paths := _asked_for(reply.input):
            refused = ""
            shown = _look(attempt, shown, paths)
            continue
        if reply.is_cut:
            refused = "The patch was cut off at your token limit. Send a smaller one."
            continue
        if not last.strip() and (declined := decline(attempt, reply.input, to=Tier.AGENT)):
            if not isinstance(declined, str):
                return declined
            refused = declined
            continue
        may_mend, keys = number < tries, attempt.resources.known_keys
        result = attempt.compute(_apply, reply.input, seen=shown.seen, may_mend=may_mend, known_keys=keys)
        if not isinstance(result, _Refused):
            return result
        refused = result.feedback
        if result.kept:
            attempt.kept[:] = [result.kept]
    return Escalate(Tier.AGENT, Reason.PATCH_INVALID, refused[:500] or "it asked to see files, and wrote no patch")


def _look(attempt: Attempt, shown: _Shown, paths: Sequence[str]) -> _Shown:
    """Return what the model asked to see, beside the pages that it saw."""
    news = f"the model asked to see {len(paths)} more of the site's files"
    attempt.report(EventKind.PROGRESS, {"text": news, "asked_to_see": len(paths)})
    return attempt.compute(_show, [*paths, *shown.pages])


def _asked_for(reply: Mapping[str, Any]) -> list[str]:
    """Return the paths of files that a model wants to see before it writes its patch."""
    paths = reply.get("show")
    if str(reply.get("patch", "")).strip() or not isinstance(paths, list):
        return []
    return [path for path in paths if isinstance(path, str)][:MAX_ASKED_FILES]


@dataclass(frozen=True)
class _Refused:
    """Why a patch has to be sent again."""

    feedback: str
    kept: str = ""


def _apply(
    inputs: Inputs,
    reply: Mapping[str, Any],
    *,
    seen: Mapping[str, Sequence[tuple[int, int]]],
    may_mend: bool,
    known_keys: tuple[str, ...],
) -> Candidate | Ended | Escalate | _Refused:
    """Apply a model's patch; what the scan will refuse is sent back while the model may mend it."""
    files = sources_of(inputs.files)
    has_build = is_built(files)
    try:
        with timed("apply"):
            policy = replace(SOURCES if has_build else SITE, seen=seen)
            applied = apply_diff(files, str(reply.get("patch", "")), policy=policy)
    except DiffRefusedError as error:
        if not error.is_repairable:
            return _end_of(error)
        return _Refused(error.feedback, f"the last patch did not apply: {error}")
    candidate = _candidate(applied, files, summary=summary_of(reply, otherwise="Edited by a patch."))
    if may_mend and not has_build and (refusal := refused_by_scan(inputs, candidate, known_keys=known_keys)):
        return _Refused(refusal)
    return asking(candidate, reply)


def _end_of(error: DiffRefusedError) -> Ended | Escalate:
    """Handle a well-formed patch whose change is wrong."""
    if error.reason in _FORBIDDEN:
        return Ended(State.FAILED, Reason.PATCH_REFUSED, str(error))
    return Escalate(Tier.AGENT, Reason.PATCH_INVALID, str(error))


def _ask(attempt: Attempt, shown: _Shown, *, refused: str, last: str) -> ToolCall:
    parts = [Text(shown.text, ends_prefix=True), Text(attempt.asked)]
    if refused:
        again = f"Your last patch was refused:\n{last[:MAX_QUOTED_PATCH]}\n\nWhy:\n{refused}\nSend it whole again."
        parts.append(Text(again))

    purpose: CallPurpose = "patch_built" if shown.is_built else "patch_edit"
    return attempt.tool_call(Prompt(purpose, load_prompt("patch"), patch_tool(), parts))


def _candidate(applied: Applied, files: Mapping[str, bytes], *, summary: str) -> Candidate:
    facts: Mapping[str, Any] = {
        "how": "a model's patch",
        "patch": applied.as_dict(),
        "needs_person": applied.fuzz.needs_approval,
    }
    return Candidate(
        files=applied.onto(files), summary=summary, facts=facts, diff=applied.canonical, reverse=applied.reverse
    )
