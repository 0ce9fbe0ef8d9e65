"""`python -m workers.runs.alone AGENT`: run one agent against a directory, without a run, a ledger or a queue (P-061).

Runner, order, staging and checks are those of a run, so that an agent's instructions can be developed by themselves.
Without the URL of a model the fake provider answers. A composition root of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from pydantic import BaseModel, ConfigDict

from gateway.errors import GatewayError
from gateway.fake_provider.config import FakeProviderConfig
from gateway.fake_provider.server import running_fake_provider
from ledger.events import EventKind
from ledger.start_attempt import Claim
from ledger.tables import ClaimedAttempt, ClaimedJob
from routing.config import PolicyConfig, read_settings, strip_settings
from routing.errors import PolicyError
from routing.policy.agents import RESULT_FILE, is_covered
from routing.policy.platform import Policy, load_policy
from routing.queues import QueueName
from sandbox.config import BoxConfig
from sandbox.errors import SandboxError
from sites.content_store import ContentStore
from sites.directories import Worktree
from sites.errors import PathRefusedError, SiteError, TreeRefusedError
from sites.files import NameSet, is_planted
from sites.repository.trees import LeftOut, Snapshot, TreeLimits
from workers.attempt import Attempt, HandlerResources
from workers.boxes import EnginePool, PoolOnDemand, no_boxes, open_engine_pool
from workers.config import RunsConfig
from workers.errors import ResultInvalidError, WorkerError
from workers.runs.scheduling.view import parse_result
from workers.runs.step import RUNNERS, collect_output
from workers.runs.step_context import StepBrief, agent_order

_UNLIMITED_USD = 5.0
_TENANT = "alone"


@dataclass(frozen=True)
class AloneResult:
    """The result of an agent alone."""

    result: Mapping[str, Any] | None
    failure: str | None
    changes: Mapping[str, bytes | None]
    dropped: tuple[str, ...]
    facts: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        changed = {path: None if data is None else len(data) for path, data in sorted(self.changes.items())}
        return {
            "result": self.result,
            "failure": self.failure,
            "changed": changed,
            "dropped": list(self.dropped),
            "facts": dict(self.facts),
        }


def run_alone(name: str, *, task: str, project: Snapshot, attempt: Attempt) -> AloneResult:
    """Run one agent against a project's files; nothing is written.

    Raises:
        PolicyError: there is no such agent, or none of its instructions (the caller's fault).
        SandboxError: it could not be run (the operator's fault, or the model's).
    """
    policy = attempt.policy
    definition = policy.agents.get(name)
    if definition is None:
        raise PolicyError(f"there is no agent {name!a}; there are {', '.join(sorted(policy.agents))}")
    brief = StepBrief(
        key="alone",
        agent=name,
        task=task,
        ticket={"title": task[:100], "body": task},
        results={},
        context=(),
        writes=definition.writes,
    )
    order = agent_order(
        brief,
        project,
        definition,
        cap_usd=definition.step_usd or _UNLIMITED_USD,
        most_bytes=policy.runs.context_bytes,
        redact=str,
    )
    try:
        ran = RUNNERS[definition.runtime](order, attempt)
    finally:
        attempt.close()
    failure = ran.failed.detail if ran.failed is not None else None
    if ran.files is None:
        return AloneResult(None, failure or "it left no files", {}, ran.refused, ran.facts)
    taken = collect_output(
        project,
        order.files,
        ran.files,
        may_write=lambda path: is_covered(path, definition.writes),
        known_keys=attempt.secrets,
    )
    try:
        result = parse_result(ran.files.get(RESULT_FILE, b"")).model_dump(mode="json", exclude_none=True)
    except ResultInvalidError as error:
        result, failure = None, failure or f"its {RESULT_FILE} is missing or not valid: {error}"
    return AloneResult(result, failure, taken.changes, (*taken.report(), *ran.refused), ran.facts)


def read_project(worktree: Worktree, limits: TreeLimits) -> Snapshot:
    """Return a directory's files as agents see them, under the rules for a repository's.

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
        return None if names.add(path) == path else "unicode_form"
    except (PathRefusedError, TreeRefusedError) as error:
        return error.reason


def attempt_alone(
    policy: Policy,
    resources: HandlerResources,
    *,
    token: str,
    content_store: ContentStore,
    tell: Callable[[str], None],
) -> Attempt:
    """Return an attempt that exists in this process only; `tell` prints one line of progress.

    The gateway of `resources` may be any Messages API, the fake provider's too.
    """
    queue = QueueName.STEPS.value
    tenant = resources.runs.codex_tenant or _TENANT
    job_id = uuid4()
    job = ClaimedJob(id=job_id, tenant=tenant, state="running", prompt="", root_id=job_id, queue=queue)
    row = ClaimedAttempt(uuid4(), job_id, 1, queue, None, 1, "alone", datetime.now(UTC))

    def report(kind: EventKind, data: Mapping[str, Any]) -> None:
        if kind is EventKind.PROGRESS:
            tell(str(data.get("text", "")))

    return Attempt(
        claim=Claim(job, row, token, policy),
        content_store=content_store,
        resources=resources,
        check=lambda: None,
        report=report,
        budget_exceeded=lambda: None,
        bind_egress=lambda address, token: None,
        charge_unmetered=lambda nanousd, model: None,
    )


class AloneSettings(BaseModel):
    """The sections that an agent alone reads."""

    model_config = ConfigDict(frozen=True)

    policy: PolicyConfig = PolicyConfig()
    box: BoxConfig = BoxConfig()
    runs: RunsConfig = RunsConfig()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pointsman agent run", description="Run one agent against a directory.")
    parser.add_argument("name", help="an agent of the policy, such as frontend-dev")
    parser.add_argument("--task", required=True, help="its task")
    parser.add_argument("--dir", type=Path, required=True, help="the project")
    parser.add_argument("--url", help="a Messages API; without one the fake provider answers")
    parser.add_argument("--token-file", type=Path, help="a file with the token for --url")
    parser.add_argument("--dry-run", action="store_true", help="write nothing into the directory")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one agent and return the exit code: 0 it did its task, 1 it did not, 2 it could not start."""
    given = _parser().parse_args(sys.argv[1:] if argv is None else argv)
    try:
        settings = read_settings(AloneSettings, os.environ)
        worktree = Worktree(given.dir)
        with _attempt(given, settings) as attempt:
            project = read_project(worktree, TreeLimits(max_bytes=attempt.policy.runs.workspace_bytes))
            alone = run_alone(given.name, task=given.task, project=project, attempt=attempt)
    except (PolicyError, TreeRefusedError, OSError) as error:
        sys.stderr.write(f"pointsman agent run: {error}\n")
        return 2
    except (SandboxError, GatewayError, SiteError, WorkerError) as error:
        sys.stderr.write(f"pointsman agent run: {error}\n")
        return 1
    if not given.dry_run and alone.failure is None:
        worktree.write(alone.changes, {})
    sys.stdout.write(json.dumps(alone.as_dict()) + "\n" if given.json else _format(alone))
    return 1 if alone.failure is not None else 0


@contextmanager
def _attempt(given: argparse.Namespace, settings: AloneSettings) -> Iterator[Attempt]:
    policy = load_policy(settings.policy.path)
    agent = policy.agents.get(given.name)
    needs_box = agent is not None and agent.needs_box
    token = given.token_file.read_text("ascii").strip() if given.token_file else "alone"
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-alone-"))
        url = given.url
        if url is None:
            # A box reaches this machine through its engine's outer network, so listen on every address.
            config = FakeProviderConfig(host="0.0.0.0" if needs_box else "127.0.0.1", speed="max")
            url = stack.enter_context(running_fake_provider(config)).url
        boxes = no_boxes()
        if needs_box:
            boxes = PoolOnDemand(lambda: _open_pool(settings.box, url, is_here=given.url is None))
        stack.callback(boxes.close)
        yield attempt_alone(
            policy,
            HandlerResources(gateway_url=url, boxes=boxes, runs=settings.runs, environment=strip_settings(os.environ)),
            token=token,
            content_store=ContentStore(Path(home)),
            tell=lambda news: print(news, file=sys.stderr),
        )


def _open_pool(config: BoxConfig, url: str, *, is_here: bool) -> EnginePool:
    parts = urlsplit(url)
    host = "" if is_here else parts.hostname or ""
    changes = {"warm": 0, "gateway_host": host, "gateway_port": parts.port or 80, "network": ""}
    return open_engine_pool(BoxConfig.model_validate(config.model_dump() | changes))


def _format(alone: AloneResult) -> str:
    lines = [f"{'deleted' if data is None else 'wrote  '} {path}" for path, data in sorted(alone.changes.items())]
    lines += [f"dropped {line}" for line in alone.dropped]
    if alone.failure is not None:
        lines.append(f"failed: {alone.failure}")
    if alone.result is not None:
        lines.append(json.dumps(alone.result, indent=2, ensure_ascii=False))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
