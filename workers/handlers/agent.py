"""Tier 3: the Claude Code CLI edits the site's files in a box without a way out (H-038 to H-041).

Each step is timed and none touches the active release: snapshot, provision, inject, execute, extract and teardown here,
build in a box of its own, scan and preview in the settlement. What a session left when its time or money ran out is
kept and its owner is informed; nothing is retried automatically, for it would run out again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ledger.tables import Release
from routing.jobs import Reason, State
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD, BudgetExceeded
from routing.queues import QueueName
from routing.rounds import brief_worker
from sandbox.box import Box
from sandbox.claude_code import SITE, SessionPlan
from sandbox.errors import BoxLostError, SandboxError
from sandbox.session_reader import End, Verdict
from sandbox.tarball import CollectRules
from sites.content_store import ChangeSet, Manifest, change_set, review_diff
from sites.errors import PathRefusedError, TreeRefusedError
from sites.releases import manifest_of
from workers.attempt import Attempt
from workers.errors import SoftTimeLimit
from workers.handlers.build import build_candidate, build_commands, without_box
from workers.handlers.model_task import unchanged
from workers.outcomes import Candidate, Deferred, Ended, Outcome
from workers.retries import decide_end
from workers.session import GRACE_SECONDS, Begun, allowance_of, hold_session, leave_box, obstacle_to, session_clocks

ENDS: dict[End, tuple[State, Reason]] = {
    End.REFUSED: (State.FAILED, Reason.BOX_FAILED),
    End.FAILED: (State.FAILED, Reason.AGENT_FAILED),
    End.TIME: (State.TIMED_OUT, Reason.TIME_LIMIT),
    End.BUDGET: (State.BUDGET_EXCEEDED, Reason.COST_CAP),
    End.OUTPUT: (State.OUTPUT_EXCEEDED, Reason.OUTPUT_CAP),
    End.RESOURCES: (State.FAILED, Reason.RESOURCE_LIMIT),
    End.BOX_LOST: (State.FAILED, Reason.BOX_FAILED),
}
"""How a session's end becomes its job's end."""
NOTHING_TO_CHANGE = "Nothing to change:"
"""How the last message of a session begins that changed no file on purpose (role-site.md)."""
TOO_LARGE = frozenset({"too_many_bytes", "stream_too_long", "file_too_large"})


@dataclass(frozen=True)
class Work:
    """The result of a session whose box is gone."""

    verdict: Verdict
    files: Mapping[str, bytes] | None
    """The site as the session left it; None when its files are not accepted."""
    changes: ChangeSet
    refused: PathRefusedError | TreeRefusedError | None
    """Why none of its files are accepted."""
    facts: Mapping[str, Any]
    exceeded: BudgetExceeded | None = None
    """The budget that refused or cut one of its model calls, by the ledger."""


def end_of(work: Work) -> Ended | None:
    """Return how the job ends; None when the session's files become a candidate."""
    if work.verdict.is_done:
        return _end_of_done(work)
    verdict = work.verdict
    if work.exceeded is not None and verdict.end in (End.FAILED, End.BUDGET):
        return Ended(State.BUDGET_EXCEEDED, Reason.COST_CAP, f"{work.exceeded}; {_kept(work)}")
    state, reason = ENDS[verdict.end]
    return Ended(state, reason, f"the agent's session ended: {verdict.text}; {_kept(work)}")


def answer_of(work: Work) -> str:
    """Return the message of a session that found nothing to change; empty for any other."""
    said = work.verdict.text.strip()
    is_done = work.verdict.is_done and work.refused is None and work.changes.is_empty
    return said.removeprefix(NOTHING_TO_CHANGE).strip() if is_done and said.startswith(NOTHING_TO_CHANGE) else ""


def _end_of_done(work: Work) -> Ended | None:
    if work.refused is not None:
        is_large = work.refused.reason in TOO_LARGE
        state, reason = (
            (State.OUTPUT_EXCEEDED, Reason.OUTPUT_CAP) if is_large else (State.FAILED, Reason.OUTPUT_REFUSED)
        )
        return Ended(state, reason, f"the agent's files are not accepted: {work.refused}; nothing was kept")
    if work.changes.is_empty:
        said = work.verdict.text or "it said nothing"
        return Ended(State.FAILED, Reason.AGENT_FAILED, f"the agent changed no file; its own words: {said[:500]}")
    return None


def _kept(work: Work) -> str:
    if work.refused is not None:
        return f"its files are not accepted: {work.refused}"
    return "nothing was changed" if work.changes.is_empty else "the files as it left them are kept"


_RULES = CollectRules(max_bytes=0)


def edit_with_agent(attempt: Attempt) -> Outcome:
    """Do a tier 3 job.

    Raises:
        SandboxUnavailableError: there is no engine, or no image (the operator's fault).
        SandboxStartupError, BoxLostError: the box could not be made, or went away before anything was done.
    """
    attempt.await_circuit(_model(attempt))
    with attempt.step("snapshot"):
        files = attempt.files
        before = _manifest(attempt.start)
    work = replace(_in_a_box(attempt, files, before), exceeded=attempt.budget_exceeded())
    if answer := answer_of(work):
        return unchanged(attempt, answer, work.facts)
    ended: Ended | Deferred | None = end_of(work)
    obstacle = None
    if ended is not None:
        obstacle = obstacle_to(attempt, work.verdict, model=_model(attempt), exceeded=work.exceeded)
    if obstacle is not None and isinstance(deferred := decide_end(obstacle), Deferred):
        ended = deferred
    if work.files is None or work.changes.is_empty:
        assert ended is not None, "a finished session has changed files, or a reason why they are not accepted"
        return replace(ended, facts=work.facts)
    candidate = _candidate(files, work)
    if ended is not None:
        return replace(ended, facts=work.facts, kept=candidate)
    return _built(attempt, candidate)


def _in_a_box(attempt: Attempt, files: Mapping[str, bytes], before: Manifest) -> Work:
    with attempt.step("provision"):
        box = attempt.resources.boxes.acquire()
    try:
        attempt.enter(box, token=box.token)
        with attempt.step("inject"):
            injected = box.put(files)
        with attempt.step("execute"):
            clocks = session_clocks(attempt, _soft_seconds(attempt, has_build=before.has_build))
            plan = session_plan(attempt.policy, remaining_nanousd=attempt.remaining_nanousd)
            prompt = f"{attempt.order}\n\n{allowance_of(plan, clocks).told}"
            held = hold_session(attempt, box, plan, prompt=prompt, clocks=clocks, begun=_begun(attempt))
        facts = {"how": "a code agent", "agent": held.facts}
        with attempt.step("extract"):
            return _extract(attempt, box, held.verdict, left_out=_left_out(files, injected.dropped), facts=facts)
    finally:
        with attempt.step("teardown"):
            leave_box(attempt, box)


def _begun(attempt: Attempt) -> Begun | None:
    """Return what the session goes on from, where it has the same request again."""
    said = attempt.begun_transcript
    if said is None:
        return None
    told = brief_worker({"report": attempt.claim.job.result["begun"]["report"], "is_kept": True})
    return Begun(said, f"{told}\n\nKeep to this: {attempt.instruction}" if attempt.instruction else told)


def _model(attempt: Attempt) -> str:
    return attempt.policy.calls["agent_session"].model


def session_plan(policy: Policy, *, remaining_nanousd: int | None = None) -> SessionPlan:
    """Return what a session of tier 3 may do with what is left of its job's budget; None for all of the tier's."""
    call, cap = policy.calls["agent_session"], policy.queues[QueueName.AGENT].llm_nanousd
    left = cap if remaining_nanousd is None else min(cap, remaining_nanousd)
    return SessionPlan(
        role=SITE,
        model=call.model,
        max_turns=policy.agent.max_turns,
        budget_usd=left / NANOUSD_PER_USD,
        max_output_tokens=call.max_tokens,
    )


def _soft_seconds(attempt: Attempt, *, has_build: bool) -> float:
    """Return how long a session may work: the rest of the queue's soft limit, less its grace, the scan and a build."""
    rules = attempt.policy.agent
    following = GRACE_SECONDS + rules.closing_seconds + (rules.build_seconds if has_build else 0)
    return attempt.limits.soft_seconds - (time.monotonic() - attempt.began) - following


def _left_out(files: Mapping[str, bytes], dropped: tuple[str, ...]) -> dict[str, bytes]:
    """Return the base's files that no box shows or returns: they stay unchanged."""
    return {
        path: data
        for path, data in files.items()
        if path in dropped or not _RULES.ignored.isdisjoint(path.split("/")[:-1])
    }


def _extract(
    attempt: Attempt, box: Box, verdict: Verdict, *, left_out: Mapping[str, bytes], facts: Mapping[str, Any]
) -> Work:
    """Take the files out, however the session ended: work up to a limit is kept."""
    nothing = ChangeSet((), (), ())
    before = _manifest(attempt.start)
    compared = _manifest(attempt.base) if attempt.is_finishing else before
    try:
        rules = replace(_RULES, max_bytes=attempt.limits.output_bytes)
        after = attempt.store(partial(box.collect, attempt.content_store, rules))
    except (PathRefusedError, TreeRefusedError) as error:
        return Work(verdict, None, nothing, error, facts)
    except BoxLostError:
        if verdict.is_done:
            raise
        return Work(verdict, None, nothing, None, facts)
    files = {**attempt.content_store.read_tree(after), **left_out}
    kept = {path: entry for path, entry in before.items() if path in left_out}
    return Work(verdict, files, change_set(compared, Manifest({**after, **kept})), None, facts)


def _manifest(release: Release | None) -> Manifest:
    return manifest_of(release) if release is not None else Manifest({})


def _candidate(before: Mapping[str, bytes], work: Work) -> Candidate:
    assert work.files is not None
    changes = work.changes
    lists = {"added": changes.added, "changed": changes.changed, "removed": changes.removed}
    return Candidate(
        files=work.files,
        summary=work.verdict.text[:300] or "Edited by a code agent.",
        diff=review_diff(before, work.files),
        facts={
            **work.facts,
            "changes": {kind: list(paths[:50]) for kind, paths in lists.items()},
            "needs_person": True,
        },
    )


def _built(attempt: Attempt, candidate: Candidate) -> Outcome:
    """Build a site that has a build, in a box of its own, now that the agent's is gone (H-080)."""
    if not build_commands(candidate.files):
        return candidate
    try:
        box = attempt.resources.boxes.acquire(watch=attempt.closing_watcher())
    except (SandboxError, SoftTimeLimit) as error:
        return without_box(candidate, error)
    with closing(box):
        return build_candidate(attempt, candidate, box)
