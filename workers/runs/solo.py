"""One agent against a directory, without a run, a ledger or a queue (P-061).

The same runner, order, staging and judging as in a run, so that an agent's instructions can be worked on by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from monitoring.ledger.events import EventKind
from monitoring.ledger.start_attempt import Claim
from monitoring.ledger.tables import Attempt as AttemptRow
from monitoring.ledger.tables import Job
from routing.errors import PolicyError
from routing.path_rules import RESULT_FILE, is_covered
from routing.policy import Policy
from routing.queues import QueueName
from sandbox.den import Den
from sandbox.errors import PathRefusedError, TreeRefusedError
from sandbox.paths import is_planted
from sandbox.tree import NameSet
from sandbox.worktree import Worktree
from workers.attempt import Attempt
from workers.boxes import Boxes
from workers.config import RunsConfig
from workers.errors import ResultInvalidError
from workers.runs.claude_md import claude_md
from workers.runs.context import StepWords, order_text, stage
from workers.runs.results import parse_result
from workers.runs.runners.protocol import AgentOrder
from workers.runs.step import RUNNERS
from workers.runs.takeover import take_over
from workers.runs.trees import LeftOut, Snapshot, TreeLimits

_UNLIMITED_USD = 5.0
_TENANT = "alone"


@dataclass(frozen=True, kw_only=True)
class Place:
    """What an agent alone works with."""

    policy: Policy
    url: str
    """A Messages API: a gateway, or the rehearsal model."""
    token: str
    den: Den
    boxes: Boxes
    runs: RunsConfig
    environment: Mapping[str, str]
    tell: Callable[[str], None]
    """Takes news, one line each."""


@dataclass(frozen=True)
class Alone:
    """What came of it."""

    result: Mapping[str, Any] | None
    failure: str | None
    changes: Mapping[str, bytes | None]
    dropped: tuple[str, ...]
    facts: Mapping[str, Any]

    def told(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        changed = {path: None if data is None else len(data) for path, data in sorted(self.changes.items())}
        return {
            "result": self.result, "failure": self.failure, "changed": changed, "dropped": list(self.dropped),
            "facts": dict(self.facts),
        }  # fmt: skip


def run_alone(name: str, *, task: str, project: Snapshot, place: Place) -> Alone:
    """Run one agent against a project's files; nothing is written.

    Raises:
        PolicyError: there is no such agent, or none of its instructions (the caller's fault).
        SandboxError: it could not be run (the operator's fault, or the model's).
    """
    definition = place.policy.agents.get(name)
    if definition is None:
        raise PolicyError(f"there is no agent {name!a}; there are {', '.join(sorted(place.policy.agents))}")
    words = StepWords(
        key="alone", agent=name, task=task, ticket={"title": task[:100], "body": task}, results={}, context=(),
        writes=definition.writes,
    )  # fmt: skip
    staged = stage(words, project, definition, most_bytes=place.policy.runs.context_bytes, redact=str)
    order = AgentOrder(
        name=name, agent=definition, model=definition.model, instructions=claude_md(name, definition),
        prompt=order_text(words, redact=str), files={**project.files, **staged.files}, writes=definition.writes,
        cap_usd=definition.step_usd or _UNLIMITED_USD,
    )  # fmt: skip
    attempt = _attempt(place)
    try:
        ran = RUNNERS[definition.runtime].run(order, attempt)
    finally:
        attempt.close()
    failure = ran.failed.detail if ran.failed is not None else None
    if ran.files is None:
        return Alone(None, failure or "it left no files", {}, ran.refused, ran.facts)
    taken = take_over(
        project, order.files, ran.files, may_write=lambda path: is_covered(path, definition.writes),
        known_keys=(place.token,),
    )  # fmt: skip
    try:
        result = parse_result(ran.files.get(RESULT_FILE, b"")).model_dump(mode="json", exclude_none=True)
    except ResultInvalidError as error:
        result, failure = None, failure or f"its {RESULT_FILE} is missing or not valid: {error}"
    return Alone(result, failure, taken.changes, (*taken.report(), *ran.refused), ran.facts)


def read_project(worktree: Worktree, limits: TreeLimits) -> Snapshot:
    """Return a directory's files as agents see them, under the rules of a repository's.

    Raises:
        TreeRefusedError: `too_many_bytes` (the caller's fault).
    """
    names, files = NameSet(), dict[str, bytes]()
    left_out = [LeftOut(path, "symlink") for path in worktree.obstacles]
    total = 0
    for path in worktree:
        reason = _objection(path, names)
        data = worktree[path] if reason is None else b""
        if reason is None and len(data) > limits.max_file_bytes:
            reason = "file_too_large"
        if reason is not None:
            left_out.append(LeftOut(path, reason))
            continue
        total += len(data)
        if total > limits.max_bytes or len(files) >= limits.max_entries:
            raise TreeRefusedError("too_many_bytes", path, "the directory holds more than a project may")
        files[path] = data
    return Snapshot(files, tuple(left_out))


def _objection(path: str, names: NameSet) -> str | None:
    if "node_modules" in path.split("/")[:-1]:
        return "node_modules"
    if is_planted(path):
        return "planted"
    try:
        return None if names.add_file(path) == path else "unicode_form"
    except (PathRefusedError, TreeRefusedError) as error:
        return error.reason


def _attempt(place: Place) -> Attempt:
    """Return an attempt that nothing but this process knows of."""
    queue = QueueName.STEPS.value
    tenant = place.runs.codex_tenant or _TENANT
    job_id = uuid4()
    job = Job(
        id=job_id, tenant=tenant, door="cli", state="running", prompt="", request_digest="", root_id=job_id, queue=queue
    )  # fmt: skip
    row = AttemptRow(job_id=job_id, number=1, queue=queue, fence=1, worker="alone", token_hash="")

    def report(kind: EventKind, data: Mapping[str, Any]) -> None:
        if kind is EventKind.PROGRESS:
            place.tell(str(data.get("text", "")))

    return Attempt(
        claim=Claim(job, row, place.token, place.policy), site=None, base=None, den=place.den, gateway_url=place.url,
        check=lambda: None, report=report, budget_exceeded=lambda: None, bind_door=lambda address, token: None,
        boxes=place.boxes, charge_whole=lambda nanousd, model: None, runs=place.runs, environment=place.environment,
    )  # fmt: skip
