"""One step of a run, from its order to a commit: read the workspace, run the agent, collect what it may leave.

The run's coordinator decides what follows; a step settles itself and touches nothing of its run. What an agent left is
judged only here, whatever it ran in: its result by its schema, its files by their paths, both for secrets. A reviewer
that edits source has edited nothing (S-008, ruling A17), and every dropped file is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from gateway.errors import GatewayError
from ledger.events import EventKind
from ledger.runs.steps import StepOrder, StepReport
from routing.errors import PolicyError
from routing.jobs import Reason, State
from routing.policy.agents import CONTEXT_DIRECTORY, RESULT_FILE, AgentDefinition, Runtime, is_covered
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD
from routing.policy.project import ProjectConfig, for_project
from routing.policy.services import Service, services_of
from routing.redaction import redact
from routing.rounds import TRANSCRIPT, brief_worker
from sites.errors import PathRefusedError, TreeRefusedError
from sites.files import NameSet, check_path, is_planted
from sites.repository.trees import Snapshot
from sites.repository.workspace import RESERVED, Difference, Step, Workspace
from sites.scan.rules import Notes, TooManyFindingsError
from sites.scan.secrets import SecretBudget, find_secrets
from workers.attempt import Attempt
from workers.errors import ResultInvalidError
from workers.outcomes import Deferred, Ended, Outcome
from workers.retries import decide_end
from workers.runs.api_runner import run_api
from workers.runs.cli_runners import run_check, run_claude_code, run_codex
from workers.runs.git.sync import create_workspace, pack_limits, remote_of, remote_rules, tree_limits
from workers.runs.scheduling.view import AgentResult, parse_result
from workers.runs.step_context import AgentOrder, AgentRun, AgentRunner, Failed, StepBrief, agent_order, changes_text
from workers.session import Begun

_KNOWN_KEY = "known-key"
_MAX_REPORTED = 50
_MAX_CHANGES = 5_000


class Dropped(NamedTuple):
    """A file that is not accepted."""

    path: str
    reason: str
    """`not_allowed`, `context`, `hidden`, `planted`, `too_many`, `secret`, or the naming rule that it breaks."""


@dataclass(frozen=True)
class Accepted:
    """What becomes a step's commit, and what does not."""

    changes: Mapping[str, bytes | None]
    """Contents by checked path; None for a deleted file."""
    dropped: tuple[Dropped, ...]
    keys: tuple[str, ...] = ()
    """Files that contain the value of a key of this installation: the step is over, whatever it did (A19)."""

    def report(self) -> tuple[str, ...]:
        """Return the drops as lines, with the number of those that are not listed."""
        lines = tuple(f"{ascii(drop.path)[1:-1]}: {drop.reason}" for drop in self.dropped[:_MAX_REPORTED])
        rest = len(self.dropped) - len(lines)
        return (*lines, f"and {rest} more") if rest > 0 else lines


def collect_output(
    before: Snapshot,
    given: Mapping[str, bytes],
    after: Mapping[str, bytes],
    *,
    may_write: Callable[[str], bool],
    known_keys: tuple[str, ...] = (),
) -> Accepted:
    """Decide which of an agent's files are accepted.

    `given` has the staged context, too. `known_keys` are values that no file may contain: keys of this installation,
    and the attempt's own token.
    """
    dropped: list[Dropped] = []
    changes: dict[str, bytes | None] = {}
    for path in sorted(given.keys() | after.keys()):
        data = after.get(path)
        if path == RESULT_FILE or given.get(path) == data:
            continue
        reason = _objection(path, before, may_write) or ("too_many" if len(changes) >= _MAX_CHANGES else None)
        if reason is None:
            changes[path] = data
        else:
            dropped.append(Dropped(path, reason))
    dropped += _drop_collisions(before, changes)
    secrets = _SecretScan(known_keys)
    keys = tuple(path for path, data in changes.items() if data is not None and secrets.has_key(path, data))
    for path in [path for path, data in changes.items() if data and secrets.is_new(path, before.files.get(path), data)]:
        del changes[path]
        dropped.append(Dropped(path, "secret"))
    return Accepted(changes, tuple(dropped), keys)


def holds_key(path: str, data: bytes, known_keys: tuple[str, ...]) -> bool:
    """Whether a file contains the value of a known key, plain or encoded."""
    return _SecretScan(known_keys).has_key(path, data)


def _objection(path: str, before: Snapshot, may_write: Callable[[str], bool]) -> str | None:
    try:
        checked = check_path(path)
    except PathRefusedError as error:
        return error.reason
    if checked != path:
        return "unicode_form"
    if path.startswith(CONTEXT_DIRECTORY):
        return "context"
    if is_planted(path):
        return "planted"
    if before.hides(path):
        return "hidden"
    return None if may_write(path) else "not_allowed"


def _drop_collisions(before: Snapshot, changes: dict[str, bytes | None]) -> Iterator[Dropped]:
    """Drop changes that could not coexist with the rest of the tree."""
    names = NameSet()
    for path in before.files:
        if path not in changes:
            names.add(path)
    for path in [path for path, data in changes.items() if data is not None]:
        try:
            names.add(path)
        except TreeRefusedError as error:
            del changes[path]
            yield Dropped(path, error.reason)


class _SecretScan:
    """Looks for secrets in changed files, once in each."""

    def __init__(self, known_keys: tuple[str, ...]) -> None:
        self._known_keys = known_keys
        self._budget = SecretBudget()
        self._found: dict[str, set[tuple[str, str]]] = {}

    def has_key(self, path: str, data: bytes) -> bool:
        """Whether a file contains the value of a known key."""
        found = self._found[path] = self._look(path, data)
        return any(rule == _KNOWN_KEY for rule, _ in found)

    def is_new(self, path: str, before: bytes | None, data: bytes) -> bool:
        """Whether a file contains a secret that it did not contain before: a project's own secrets are its owner's."""
        found = self._found[path] if path in self._found else self._look(path, data)
        return bool(found and found - (self._look(path, before) if before else set()))

    def _look(self, path: str, data: bytes) -> set[tuple[str, str]]:
        notes = Notes()
        with suppress(TooManyFindingsError):
            find_secrets(path, data, notes=notes, budget=self._budget, known_keys=self._known_keys)
        return {
            (finding.rule, finding.message)
            for finding in notes.findings
            if finding.rule == _KNOWN_KEY or finding.rule.startswith("secret-")
        }


RUNNERS: Mapping[Runtime, AgentRunner] = {
    "api": run_api,
    "claude_code": run_claude_code,
    "codex_local": run_codex,
}
_CLONE_SECONDS = 60.0
_DIFF_SHARE = 4
"""The diff of a run may use one part in this many of a step's context."""
_MAX_SUBJECT = 72


@dataclass(frozen=True)
class _Start:
    """What a step begins with."""

    order: StepOrder
    policy: Policy
    """With the project's configuration."""
    project: ProjectConfig
    workspace: Workspace
    base: str
    snapshot: Snapshot

    @property
    def services(self) -> tuple[Service, ...]:
        """What stands beside the boxes of its project."""
        return services_of(self.project.services, self.policy.runs.services)


@dataclass(frozen=True)
class _Work:
    """What an agent was given and what it left."""

    given: Mapping[str, bytes]
    writes: tuple[str, ...]
    ran: AgentRun


def run_step(attempt: Attempt, *, runners: Mapping[Runtime, AgentRunner] = RUNNERS) -> Outcome:
    """Run one step: the handler of queue `steps`.

    Raises:
        SandboxError, WorkspaceError: the step ends by the table of retries (workers/retries.py).
        CancelledByOwnerError, LeaseLostError: nobody's fault: nothing that was done counts.
    """
    if attempt.step_order is None:
        return Ended(State.FAILED, Reason.INVALID_REQUEST, "only a run puts work on this queue")
    try:
        start = _start(attempt, attempt.step_order)
        work = _work(start, attempt, runners)
    except PolicyError as error:
        return Ended(State.FAILED, Reason.NOT_AVAILABLE, str(error))
    return _conclude(start, work, attempt)


def _work(start: _Start, attempt: Attempt, runners: Mapping[Runtime, AgentRunner]) -> _Work:
    if start.order.agent is None:
        ran = run_check(
            start.snapshot.files,
            attempt,
            start.project.commands,
            services=start.services,
            image=start.order.project_image,
        )
        return _Work(start.snapshot.files, (), ran)
    definition = start.policy.agents.get(start.order.agent)
    if definition is None:
        raise PolicyError(f"there is no agent {start.order.agent}")
    runner = runners.get(definition.runtime)
    if runner is None:
        raise PolicyError(f"agents.{start.order.agent}: runtime {definition.runtime} is not available here")
    order = replace(_agent_order(start, start.order.agent, definition, attempt), image=start.order.project_image)
    return _Work(order.files, order.writes, runner(_going_on(start, order, attempt), attempt))


def with_kept(files: Mapping[str, bytes], kept: Mapping[str, Difference]) -> dict[str, bytes]:
    """Return a step's files as its earlier try left them; a file that others have changed since is theirs."""
    own = {path: after for path, (before, after) in kept.items() if files.get(path) == before}
    return {path: data for path, data in {**files, **own}.items() if data is not None}


_TOLD = (
    f"Whatever you wrote where you may not is gone, and so is `{RESULT_FILE}`: it still has to be handed in. What is"
    f" staged in `{CONTEXT_DIRECTORY}` is as of now."
)


def _going_on(start: _Start, order: AgentOrder, attempt: Attempt) -> AgentOrder:
    """Return the order of a step that was cut off: in the files that it left, from what it had said."""
    said, begun = attempt.begun_transcript, attempt.claim.job.result.get("begun") or {}
    if said is None:
        return order
    kept = start.workspace.differences(begun["base"], begun["commit"]) if begun["commit"] is not None else {}
    files = with_kept(order.files, kept)
    told = f"{brief_worker(begun)}\n\n{_TOLD}"
    return replace(order, files=files, prompt=f"{order.prompt}\n{told}\n", begun=Begun(said, told))


def _start(attempt: Attempt, order: StepOrder) -> _Start:
    project = ProjectConfig.model_validate(order.project_config)
    policy = for_project(attempt.policy, project)
    workspace = Workspace.of_run(
        attempt.resources.runs.root, order.workspace_id or order.run_id, limits=tree_limits(policy.runs)
    )
    base = order.base_commit
    with attempt.step("workspace"):
        if base is None:
            base = create_workspace(
                workspace,
                remote_of(project, attempt.resources.accounts, tenant=attempt.claim.job.tenant),
                remote_rules(attempt.resources.runs, policy.runs, seconds=_CLONE_SECONDS),
                limits=pack_limits(policy.runs),
            )
        return _Start(order, policy, project, workspace, base, workspace.read(base))


def _agent_order(start: _Start, name: str, definition: AgentDefinition, attempt: Attempt) -> AgentOrder:
    order = start.order
    brief = StepBrief(
        key=order.key,
        agent=name,
        task=order.task,
        ticket={**order.ticket, "priority": attempt.claim.job.priority},
        results=order.results,
        context=[part for part in order.context if part not in order.results],
        writes=order.writes or definition.writes,
        commands=start.project.commands.named(),
        services=start.services if definition.needs_box else (),
        language=start.project.stack["language"],
        changes=_changes(start),
    )
    cap = order.cap_nanousd if order.cap_nanousd is not None else attempt.claim.job.cap_nanousd
    return agent_order(
        brief,
        start.snapshot,
        definition,
        model=order.model,
        cap_usd=cap / NANOUSD_PER_USD,
        most_bytes=start.policy.runs.context_bytes,
        redact=lambda text: redact(text, known=attempt.secrets),
    )


def _changes(start: _Start) -> str:
    """Return what the run has changed so far, its agents' own papers aside."""
    begun = start.order.run_base
    if begun is None or begun == start.base:
        return ""
    found = start.workspace.differences(begun, start.base)
    found = {path: sides for path, sides in found.items() if path.split("/")[0] not in RESERVED}
    return changes_text(found, most_bytes=start.policy.runs.context_bytes // _DIFF_SHARE)


def _conclude(start: _Start, work: _Work, attempt: Attempt) -> Outcome:
    """Judge what an agent left, and keep what may be kept."""
    ran = work.ran
    if ran.obstacle is not None:
        return _deferred(start, work, attempt, ran.obstacle)
    if ran.files is None:
        return _ended(ran.failed or _failure("none of its files are accepted"), ran)
    with attempt.step("judge"):
        taken = _accept(start, work, attempt, ran.files)
    dropped = (*taken.report(), *ran.refused)
    if dropped:
        attempt.report(EventKind.PROGRESS, {"text": f"{len(dropped)} writes were dropped", "dropped": list(dropped)})
    result = _refusal(taken, attempt) or ran.failed or _result(ran.files, start.policy, attempt.secrets)
    if isinstance(result, Failed):
        return _with_kept(result, start, taken, work, attempt)
    result, missing = _with_real_artifacts(result, start.snapshot, taken)
    with attempt.step("commit"):
        changes = {**taken.changes, RESULT_FILE: ran.files[RESULT_FILE]}
        commit = _commit(start, changes, attempt, said=result.summary)
    return StepReport(
        result=result.model_dump(mode="json", exclude_none=True),
        base=start.base,
        commit=commit,
        changed=tuple(sorted(taken.changes)),
        dropped=(*dropped, *missing),
        facts=ran.facts,
    )


def _accept(start: _Start, work: _Work, attempt: Attempt, files: Mapping[str, bytes]) -> Accepted:
    """Accept files within the step's paths and, whatever its plan says, within its agent's."""
    agent = start.order.agent
    widest = start.policy.agents[agent].writes if agent is not None else ()
    return collect_output(
        start.snapshot,
        work.given,
        files,
        known_keys=attempt.secrets,
        may_write=lambda path: is_covered(path, work.writes) and is_covered(path, widest),
    )


def _refusal(taken: Accepted, attempt: Attempt) -> Failed | None:
    """Return why nothing of a step may be kept."""
    if taken.keys:
        where = ", ".join(ascii(path) for path in taken.keys[:5])
        return Failed(State.FAILED, Reason.SCAN_REFUSED, f"a key of this installation stands in {where}")
    size = sum(len(data) for data in taken.changes.values() if data is not None)
    if size > attempt.limits.output_bytes:
        detail = f"its files have {size} bytes, the limit is {attempt.limits.output_bytes}"
        return Failed(State.OUTPUT_EXCEEDED, Reason.OUTPUT_CAP, detail)
    return None


def _result(files: Mapping[str, bytes], policy: Policy, known: tuple[str, ...]) -> AgentResult | Failed:
    raw = files.get(RESULT_FILE)
    if raw is None:
        return _failure(f"it left no {RESULT_FILE}")
    if len(raw) > policy.runs.result_bytes:
        return _failure(f"its {RESULT_FILE} has more than {policy.runs.result_bytes} bytes")
    if holds_key(RESULT_FILE, raw, known):
        return Failed(State.FAILED, Reason.SCAN_REFUSED, f"a key of this installation stands in {RESULT_FILE}")
    try:
        return parse_result(raw)
    except ResultInvalidError as error:
        return _failure(f"its {RESULT_FILE} is not valid: {error}")


def _with_real_artifacts(result: AgentResult, before: Snapshot, taken: Accepted) -> tuple[AgentResult, tuple[str, ...]]:
    """Remove a result's artifacts that are in no commit: whoever reads it must find what it names (S-044)."""
    there = {path for path in (*before.files, *taken.changes) if taken.changes.get(path, b"") is not None}
    missing = tuple(path for path in result.artifacts if path not in there)
    real = tuple(path for path in result.artifacts if path in there)
    named = tuple(f"{ascii(path)[1:-1]}: named as an artifact, and not there" for path in missing)
    return result.model_copy(update={"artifacts": real}), named


def _deferred(start: _Start, work: _Work, attempt: Attempt, obstacle: GatewayError) -> Outcome:
    """Let a step wait whose agent could not go on, with what it has done so far."""
    outcome = decide_end(obstacle)
    assert isinstance(outcome, Deferred)
    files = work.ran.files
    taken = _accept(start, work, attempt, files) if files is not None else None
    if taken is None or _refusal(taken, attempt) is not None:
        return outcome
    return replace(outcome, facts=work.ran.facts, begun=_begun(start, taken, work.ran, attempt, said=outcome.detail))


def _with_kept(failed: Failed, start: _Start, taken: Accepted, work: _Work, attempt: Attempt) -> Ended:
    """End a step and keep what it had written when it was cut off: for its next try, else for people.

    Only the next try of the same step uses it, and only if it can go on with the conversation, too.
    """
    is_cut = failed.state in (State.TIMED_OUT, State.BUDGET_EXCEEDED)
    goes_on = failed.reason in (Reason.AGENT_FAILED, Reason.RESOURCE_LIMIT) and _transcript(work.ran) is not None
    if not is_cut and not goes_on:
        return _ended(failed, work.ran)
    begun = _begun(start, taken, work.ran, attempt, said=failed.detail)
    if begun["commit"] is not None:
        failed = replace(failed, detail=f"{failed.detail}; what it had written is kept as {step_of(start.order).ref}")
    return _ended(failed, replace(work.ran, facts={**work.ran.facts, "begun": begun}) if goes_on else work.ran)


def _begun(start: _Start, taken: Accepted, ran: AgentRun, attempt: Attempt, *, said: str) -> dict[str, Any]:
    """Keep what a step has done so far, and return what its next attempt or try continues from."""
    return {
        "report": redact(said, known=attempt.secrets),
        "is_kept": True,
        TRANSCRIPT: _transcript(ran),
        "base": start.base,
        "commit": _commit(start, taken.changes, attempt, said=said) if taken.changes else None,
    }


def _transcript(ran: AgentRun) -> str | None:
    found: str | None = ran.facts.get("agent", {}).get(TRANSCRIPT)
    return found


def _commit(start: _Start, changes: Mapping[str, bytes | None], attempt: Attempt, *, said: str) -> str:
    order = start.order
    subject = redact(f"{order.key}: {said}", known=attempt.secrets).splitlines()[0][:_MAX_SUBJECT]
    began = attempt.claim.attempt.started_at
    commit = partial(
        start.workspace.commit_step,
        start.base,
        changes,
        step=step_of(order),
        when=int(began.timestamp()),
        message=f"{subject}\n\nAgent: {order.agent or 'build'}\nTry: {order.attempt}\n",
    )
    return attempt.store(commit)


def step_of(order: StepOrder) -> Step:
    """Return the name of what a step commits."""
    return Step(order.key, order.attempt, round=order.run_id.hex if order.workspace_id else "")


def _failure(detail: str) -> Failed:
    return Failed(State.FAILED, Reason.AGENT_FAILED, detail)


def _ended(failed: Failed, ran: AgentRun) -> Ended:
    return Ended(failed.state, failed.reason, failed.detail, ran.facts)
