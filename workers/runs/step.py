"""One step of a run, from its order to a commit: read the workspace, run the agent, take over what it may leave.

The run's coordinator decides what follows; a step settles itself and touches nothing of its run. What an agent left is
judged here and only here: its result by its schema, its files by their paths, both by what must never be kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from monitoring.ledger.events import EventKind
from monitoring.ledger.steps import StepOrder, StepReport
from routing.agents import AgentDefinition, Runtime
from routing.errors import PolicyError
from routing.jobs import Reason, State
from routing.layers import for_project
from routing.path_rules import RESULT_FILE, is_covered
from routing.policy import Policy
from routing.prices import NANOUSD_PER_USD
from routing.project import ProjectConfig
from routing.redaction import redact
from workers.attempt import Attempt
from workers.errors import ResultInvalidError
from workers.outcomes import Ended, Outcome
from workers.runs.claude_md import claude_md
from workers.runs.context import StepWords, order_text, stage
from workers.runs.exchange import create_workspace
from workers.runs.remotes import pack_limits, remote_of, remote_rules, tree_limits
from workers.runs.results import AgentResult, parse_result
from workers.runs.runners.api import ApiRunner
from workers.runs.runners.check import run_check
from workers.runs.runners.claude_code import ClaudeCodeRunner
from workers.runs.runners.codex import CodexRunner
from workers.runs.runners.protocol import AgentOrder, AgentRun, AgentRunner, Failed
from workers.runs.takeover import Taken, holds_key, take_over
from workers.runs.trees import Snapshot
from workers.runs.workspace import Step, Workspace

RUNNERS: Mapping[Runtime, AgentRunner] = {
    "api": ApiRunner(), "claude_code": ClaudeCodeRunner(), "codex_local": CodexRunner(),
}  # fmt: skip
HANDOFF_README = "artifacts/handoff/README.md"
_HANDOFF = b"Documents for the next agent: `{from}-to-{to}.md`, where {from} is whoever writes it.\n"
_CLONE_SECONDS = 60.0
_MAX_SUBJECT = 72


@dataclass(frozen=True)
class _Start:
    """What a step begins with."""

    order: StepOrder
    policy: Policy
    """As the project's configuration leaves it."""
    workspace: Workspace
    base: str
    snapshot: Snapshot


@dataclass(frozen=True)
class _Work:
    """What an agent was given and left."""

    given: Mapping[str, bytes]
    writes: tuple[str, ...]
    ran: AgentRun


class StepHandler:
    """Does the steps of runs.

    Args:
        runners: by runtime.
    """

    def __init__(self, runners: Mapping[Runtime, AgentRunner] = RUNNERS) -> None:
        self._runners = runners

    def __call__(self, attempt: Attempt) -> Outcome:
        """Do one step.

        Raises:
            SandboxError, WorkspaceError: the step ends by the table of retries (workers/retries.py).
            CancelledByOwnerError, LeaseLostError: nobody's fault: nothing that was done counts.
        """
        if attempt.step_order is None:
            return Ended(State.FAILED, Reason.INVALID_REQUEST, "only a run puts work on this queue")
        try:
            start = _start(attempt, attempt.step_order)
            work = self._work(start, attempt)
        except PolicyError as error:
            return Ended(State.FAILED, Reason.NOT_AVAILABLE, str(error))
        return _conclude(start, work, attempt)

    def _work(self, start: _Start, attempt: Attempt) -> _Work:
        if start.order.agent is None:
            return _Work(start.snapshot.files, (), run_check(start.snapshot.files, attempt))
        definition = start.policy.agents.get(start.order.agent)
        if definition is None:
            raise PolicyError(f"there is no agent {start.order.agent}")
        runner = self._runners.get(definition.runtime)
        if runner is None:
            raise PolicyError(f"agents.{start.order.agent}: runtime {definition.runtime} is not available here")
        order = _agent_order(start, start.order.agent, definition, attempt)
        return _Work(order.files, order.writes, runner.run(order, attempt))


def _start(attempt: Attempt, order: StepOrder) -> _Start:
    project = ProjectConfig.model_validate(order.project_config)
    policy = for_project(attempt.policy, project)
    workspace = Workspace.of_run(attempt.runs.root, order.run_id, limits=tree_limits(policy.runs))
    base = order.base_commit
    with attempt.step("workspace"):
        if base is None:
            base = create_workspace(
                workspace, remote_of(project, attempt.accounts, tenant=attempt.claim.job.tenant),
                remote_rules(attempt.runs, policy.runs, seconds=_CLONE_SECONDS), limits=pack_limits(policy.runs),
            )  # fmt: skip
        return _Start(order, policy, workspace, base, workspace.read(base))


def _agent_order(start: _Start, name: str, definition: AgentDefinition, attempt: Attempt) -> AgentOrder:
    order = start.order
    known = attempt.secrets
    words = StepWords(
        key=order.key, agent=name, task=order.task, ticket={**order.ticket, "priority": attempt.claim.job.priority},
        results=order.results, context=[part for part in order.context if part not in order.results],
        writes=order.writes or definition.writes,
    )  # fmt: skip

    def clean(text: str) -> str:
        return redact(text, known=known)

    staged = stage(words, start.snapshot, definition, most_bytes=start.policy.runs.context_bytes, redact=clean)
    cap = order.cap_nanousd if order.cap_nanousd is not None else attempt.claim.job.cap_nanousd
    return AgentOrder(
        name=name, agent=definition, model=order.model or definition.model,
        instructions=claude_md(name, definition), prompt=order_text(words, redact=clean),
        files={HANDOFF_README: _HANDOFF, **start.snapshot.files, **staged.files}, writes=tuple(words.writes),
        cap_usd=cap / NANOUSD_PER_USD,
    )  # fmt: skip


def _conclude(start: _Start, work: _Work, attempt: Attempt) -> Outcome:
    """Judge what an agent left, and keep what may be kept."""
    ran = work.ran
    if ran.files is None:
        return _ended(ran.failed or _failure("none of its files are taken"), ran)
    with attempt.step("judge"):
        taken = _taken(start, work, attempt, ran.files)
    dropped = (*taken.report(), *ran.refused)
    if dropped:
        attempt.report(EventKind.PROGRESS, {"text": f"{len(dropped)} writes were dropped", "dropped": list(dropped)})
    result = _refusal(taken, attempt) or ran.failed or _result(ran.files, start.policy, attempt.secrets)
    if isinstance(result, Failed):
        return _ended(_with_kept(result, start, taken, attempt), ran)
    result, missing = _with_real_artifacts(result, start.snapshot, taken)
    with attempt.step("commit"):
        changes = {**taken.changes, RESULT_FILE: ran.files[RESULT_FILE]}
        commit = _commit(start, changes, attempt, said=result.summary)
    return StepReport(
        result=result.model_dump(mode="json", exclude_none=True), base=start.base, commit=commit,
        changed=tuple(sorted(taken.changes)), dropped=(*dropped, *missing), facts=ran.facts,
    )  # fmt: skip


def _taken(start: _Start, work: _Work, attempt: Attempt, files: Mapping[str, bytes]) -> Taken:
    """Take files over within the step's paths and, whatever its plan says, within its agent's."""
    agent = start.order.agent
    widest = start.policy.agents[agent].writes if agent is not None else ()
    return take_over(
        start.snapshot, work.given, files, known_keys=attempt.secrets,
        may_write=lambda path: is_covered(path, work.writes) and is_covered(path, widest),
    )  # fmt: skip


def _refusal(taken: Taken, attempt: Attempt) -> Failed | None:
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


def _with_real_artifacts(
    result: AgentResult, before: Snapshot, taken: Taken
) -> tuple[AgentResult, tuple[str, ...]]:  # fmt: skip
    """Take from a result the artifacts that are in no commit: whoever reads it next must find what it names (S-044)."""
    there = {path for path in (*before.files, *taken.changes) if taken.changes.get(path, b"") is not None}
    missing = tuple(path for path in result.artifacts if path not in there)
    kept = tuple(path for path in result.artifacts if path in there)
    named = tuple(f"{ascii(path)[1:-1]}: named as an artifact, and not there" for path in missing)
    return result.model_copy(update={"artifacts": kept}), named


def _with_kept(failed: Failed, start: _Start, taken: Taken, attempt: Attempt) -> Failed:
    """Keep, for people, what a step had written when it was cut off; its run takes nothing of it."""
    if failed.state not in (State.TIMED_OUT, State.BUDGET_EXCEEDED) or not taken.changes:
        return failed
    _commit(start, taken.changes, attempt, said=failed.detail)
    return replace(failed, detail=f"{failed.detail}; what it had written is kept as {_step_of(start).ref}")


def _commit(start: _Start, changes: Mapping[str, bytes | None], attempt: Attempt, *, said: str) -> str:
    order = start.order
    subject = redact(f"{order.key}: {said}", known=attempt.secrets).splitlines()[0][:_MAX_SUBJECT]
    began = attempt.claim.attempt.started_at
    return start.workspace.commit_step(
        start.base, changes, step=_step_of(start), when=int(began.timestamp()),
        message=f"{subject}\n\nAgent: {order.agent or 'build'}\nTry: {order.attempt}\n",
    )  # fmt: skip


def _step_of(start: _Start) -> Step:
    return Step(start.order.key, start.order.attempt)


def _failure(detail: str) -> Failed:
    return Failed(State.FAILED, Reason.AGENT_FAILED, detail)


def _ended(failed: Failed, ran: AgentRun) -> Ended:
    return Ended(failed.state, failed.reason, failed.detail, ran.facts)


run_step = StepHandler()
"""The handler of queue `steps`."""
