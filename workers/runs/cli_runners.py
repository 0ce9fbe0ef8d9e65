"""Agents that are command-line programs, and the project's own build.

Runtime `claude_code` runs the Claude Code CLI in a box of its own, for agents that write source and run commands. The
box is the wall (ruling A18), so the CLI asks for no permission. The instructions are in the workspace as
`.agent-context/CLAUDE.md`, placed before anything has run in the box; the CLI reads them once, as it starts. An image
could hold them for the shipped agents only.

Runtime `codex_local` runs the Codex CLI as a process of the worker's own machine, with ADR-013's guarded retry. Nothing
isolates it and no gateway sees its calls. So it is off unless the operator names the installation's one tenant, it is
charged its whole step budget before it starts, and its environment is an explicit list.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ledger.events import EventKind
from routing.jobs import Reason, State
from routing.policy.agents import RESULT_FILE
from routing.policy.prices import NANOUSD_PER_USD, BudgetExceeded, nanousd_of
from routing.policy.project import Commands
from routing.policy.services import Service
from sandbox.box import Box
from sandbox.box_spec import WORKSPACE, BoxSpec, Target
from sandbox.claude_code import SessionPlan, ticket_role
from sandbox.errors import BoxLostError
from sandbox.execution import Clocks, Ending, ExecResult
from sandbox.local_box import LocalBox
from sandbox.session_reader import End, Verdict
from sandbox.tarball import CollectRules
from sites.content_store import ContentStore
from sites.errors import PathRefusedError, TreeRefusedError
from sites.files import is_planted
from workers.attempt import Attempt
from workers.handlers.agent import ENDS, TOO_LARGE
from workers.handlers.build import build_commands
from workers.runs.api_runner import session_seconds
from workers.runs.installs import left_out
from workers.runs.scheduling.view import MAX_ISSUES
from workers.runs.step_context import INSTRUCTIONS, AgentOrder, AgentRun, Failed
from workers.session import (
    GRACE_SECONDS,
    LEAST_SECONDS,
    SessionResult,
    hold_session,
    leave_box,
    obstacle_to,
    session_clocks,
)

logger = logging.getLogger(__name__)

_IGNORED = frozenset(
    {"node_modules", ".next", ".turbo", ".cache"}
    | {".venv", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"}
)
"""Directories that commands fill by themselves; they are skipped unread."""
_SPARE_FILES = 5_000


class Collected(NamedTuple):
    """A workspace as a box returns it."""

    files: Mapping[str, bytes] | None
    refused: Failed | None = None


def put(box: Box, files: Mapping[str, bytes]) -> None:
    """Copy a step's files into a box. The agent's own instructions are the one file there that a tool obeys.

    Raises:
        PathRefusedError, TreeRefusedError: they do not fit into a box (the project's fault).
        BoxLostError: the box is gone.
    """
    box.put(files, planted=lambda path: path != INSTRUCTIONS and is_planted(path))


def collect(box: Box, content_store: ContentStore, given: Mapping[str, bytes], *, most_bytes: int) -> Collected:
    """Copy the whole workspace out of a box; skipped directories stay as given, `most_bytes` is how much it may grow.

    Raises:
        BoxLostError: the box is gone, and its files with it.
    """
    room = sum(map(len, given.values())) + most_bytes
    # Planted files may come out: they are dropped and reported one by one (workers/runs/step.py).
    rules = CollectRules(
        max_bytes=room, max_files=len(given) + _SPARE_FILES, ignored=_IGNORED, planted=lambda path: False
    )
    try:
        files = content_store.read_tree(box.collect(content_store, rules))
    except (PathRefusedError, TreeRefusedError) as error:
        is_large = error.reason in TOO_LARGE
        state, reason = (State.OUTPUT_EXCEEDED, Reason.OUTPUT_CAP) if is_large else (State.FAILED, Reason.AGENT_FAILED)
        return Collected(None, Failed(state, reason, f"its files are not accepted: {error}"))
    passed_over = {path: data for path, data in given.items() if not _IGNORED.isdisjoint(path.split("/")[:-1])}
    return Collected({**files, **passed_over})


def _collect(box: Box, attempt: Attempt, order: AgentOrder) -> Collected:
    most_bytes = attempt.limits.output_bytes
    return attempt.store(partial(collect, box, attempt.content_store, order.files, most_bytes=most_bytes))


_CLOSING_SECONDS = 20.0
"""Reserved within the queue's soft limit for extracting, judging files and writing the commit."""


def run_claude_code(order: AgentOrder, attempt: Attempt) -> AgentRun:
    """Run an agent of runtime `claude_code`: a session in a box.

    Raises:
        SandboxUnavailableError: there is no engine, or no image (the operator's fault).
        ServiceFailedError: a service that the project needs did not become ready, or ended.
        UncontainedSessionError: the box is no container (the operator's fault); nothing was started.
        ProviderBusyError: nobody's fault: the step waits before anything was done.
    """
    attempt.await_circuit(order.model)
    given = {**order.files, INSTRUCTIONS: order.instructions.encode()}
    with attempt.step("provision"):
        box = attempt.resources.boxes.acquire(order.services, image=order.image, watch=attempt.watcher())
    try:
        attempt.enter(box)
        with attempt.step("inject"):
            put(box, given)
        with attempt.step("execute"):
            plan, clocks = _plan(order, attempt), agent_clocks(order, attempt)
            held = hold_session(attempt, box, plan, prompt=order.prompt, clocks=clocks, begun=order.begun)
        exceeded = attempt.budget_exceeded() if held.verdict.end in (End.FAILED, End.BUDGET) else None
        obstacle = obstacle_to(attempt, held.verdict, model=order.model, exceeded=exceeded)
        with attempt.step("extract"):
            return replace(_extract(attempt, box, held, order, exceeded=exceeded), obstacle=obstacle)
    finally:
        with attempt.step("teardown"):
            leave_box(attempt, box)


def _plan(order: AgentOrder, attempt: Attempt) -> SessionPlan:
    role = ticket_role(order.agent.tools, rules_file=f"{WORKSPACE}/{INSTRUCTIONS}")
    return SessionPlan(
        role=role,
        model=order.model,
        max_turns=order.agent.max_turns,
        budget_usd=min(order.cap_usd, attempt.remaining_nanousd / NANOUSD_PER_USD),
        max_output_tokens=order.agent.max_output_tokens,
    )


def agent_clocks(order: AgentOrder, attempt: Attempt) -> Clocks:
    """Return a session's clocks: its agent's, within the queue's limit less the time for the steps after it."""
    soft = session_seconds(order, attempt, closing=_CLOSING_SECONDS + GRACE_SECONDS)
    return session_clocks(attempt, soft, tool_seconds=order.agent.tool_seconds)


def _extract(
    attempt: Attempt, box: Box, held: SessionResult, order: AgentOrder, *, exceeded: BudgetExceeded | None
) -> AgentRun:
    """Take the files out, however the session ended; they are returned without the instructions."""
    failed = _failure(held.verdict, exceeded=exceeded)
    facts = {"agent": held.facts}
    try:
        files, refused = _collect(box, attempt, order)
    except BoxLostError:
        if failed is None:
            raise
        return AgentRun(None, failed, facts=facts)
    if files is None:
        return AgentRun(None, failed or refused, facts=facts)
    kept = {path: data for path, data in files.items() if path != INSTRUCTIONS}
    if failed is None and RESULT_FILE not in kept:
        said = held.verdict.text[:300] or "nothing"
        failed = Failed(State.FAILED, Reason.AGENT_FAILED, f"it left no {RESULT_FILE}; its last words: {said}")
    return AgentRun(kept, failed, facts=facts)


def _failure(verdict: Verdict, *, exceeded: BudgetExceeded | None) -> Failed | None:
    if verdict.is_done:
        return None
    if verdict.end in (End.FAILED, End.BUDGET) and exceeded is not None:
        return Failed(State.BUDGET_EXCEEDED, Reason.COST_CAP, str(exceeded))
    state, reason = ENDS[verdict.end]
    return Failed(state, reason, f"the agent's session ended: {verdict.text}")


_CHECK_GRACE_SECONDS = 3.0
_CHECK_CLOSING_SECONDS = 10.0
_SHOWN_CHARS = 6_000
_TITLE_CHARS = 100
_PLACE = re.compile(r"(?P<file>[\w./@()\[\]-]{1,200}\.[a-z]{1,5})[(:](?P<line>[0-9]{1,6})[,:]")
"""How compilers name a location: `src/a.ts(3,5): error` or `src/a.ts:3:5`."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def run_check(
    files: Mapping[str, bytes],
    attempt: Attempt,
    own: Commands | None = None,
    *,
    services: Sequence[Service] = (),
    image: str | None = None,
) -> AgentRun:
    """Run a project's own commands, else its npm build, and report as a result whose findings a developer gets.

    It runs in a box of its own, without a token for any model; packages come from the mirror, and of their scripts only
    those run that the project lists.

    Raises:
        SandboxUnavailableError: there is no engine, or no image (the operator's fault).
        ServiceFailedError: a service that the project needs did not become ready, or ended.
        BoxLostError: the box went away.
        CancelledByOwnerError, LeaseLostError: nobody's fault.
    """
    lines = own.named().values() if own is not None else ()
    commands = tuple(("bash", "-c", line) for line in lines) or build_commands(files)
    if not commands:
        return _result(files, "The project has no build.", [])
    with attempt.step("provision"):
        box = attempt.resources.boxes.acquire(services, image=image, watch=attempt.watcher())
    try:
        attempt.enter(box)
        put(box, files)
        for command in commands:
            with attempt.step(_shown(command)[:_TITLE_CHARS]):
                result = _run(box, command, attempt)
            if not result.is_success:
                box.check_services(watch=attempt.watcher())
                issue = _issue(command, result, files, own.scripts if own is not None else ())
                return _result(files, f"`{_shown(command)}` failed.", [issue])
    finally:
        leave_box(attempt, box)
    return _result(files, f"`{_shown(commands[-1])}` succeeded.", [])


def _run(box: Box, command: Sequence[str], attempt: Attempt) -> ExecResult:
    attempt.check()
    until = attempt.began + attempt.limits.soft_seconds - _CHECK_CLOSING_SECONDS - _CHECK_GRACE_SECONDS
    clocks = Clocks.within(max(1.0, until - time.monotonic()), grace=_CHECK_GRACE_SECONDS)
    result = box.run(command, clocks=clocks, watch=attempt.watcher())
    result.check_box()
    return result


def _shown(command: Sequence[str]) -> str:
    return command[-1] if command[0] == "bash" else " ".join(command)


def _issue(
    command: Sequence[str], result: ExecResult, files: Mapping[str, bytes], scripts: Collection[str]
) -> dict[str, Any]:
    """Return the one finding of a failed build, at the first location in the project that its output names."""
    said = _COLOURS.sub("", (result.stdout + b"\n" + result.stderr)[-_SHOWN_CHARS:].decode("utf-8", "replace"))
    how = f"status {result.exit_code}" if result.ending is Ending.EXITED else result.ending.value
    place = next((found for found in _PLACE.finditer(said) if found["file"].removeprefix("./") in files), None)
    where = {"file": place["file"].removeprefix("./"), "line": max(1, int(place["line"]))} if place else {}
    title = f"`{_shown(command)[:_TITLE_CHARS]}` fails ({how})"
    return {
        "severity": "blocking",
        "title": title,
        "detail": "\n\n".join((*left_out(files, said, scripts=scripts), said.replace("\0", " ").strip())),
        **where,
    }


def _result(files: Mapping[str, bytes], summary: str, issues: Sequence[Mapping[str, Any]]) -> AgentRun:
    result = {"status": "complete", "summary": summary, "issues": list(issues[:MAX_ISSUES])}
    return AgentRun({**files, RESULT_FILE: json.dumps(result).encode()}, facts={"how": "the project's build"})


FALLBACK_FLAG = "SPRINTFOUNDRY_ENABLE_CODEX_HOME_AUTH_FALLBACK"
"""With the value 1, and no other, a process that failed because of Codex's own home is retried once without it."""
AUTH_SIGNATURE = b"401 Unauthorized: Missing bearer or basic authentication in header"
"""Trusted on stderr alone: a model writes to stdout, and must not decide about an environment."""
CODEX_HOME = ".codex-home"
"""Within the workspace; never part of what the agent left."""

_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE")
_CODEX_SHOWN_CHARS = 400


def run_codex(order: AgentOrder, attempt: Attempt) -> AgentRun:
    """Run an agent of runtime `codex_local`."""
    if (refused := _codex_refusal(order, attempt)) is not None:
        return AgentRun(None, refused)
    with closing(LocalBox(BoxSpec(image="none", gateway=Target("", 1)))) as box:
        home = {f"{CODEX_HOME}/config.toml": b""}
        box.put({**order.files, **home}, planted=lambda path: False)
        result, retried = _with_codex_retry(box, order, attempt)
        files, refused = _collect(box, attempt, order)
    facts = {
        "how": "codex on the worker's machine",
        "status": result.exit_code,
        "seconds": round(result.seconds, 1),
        "auth_retry": retried,
        "tokens": "unknown",
    }
    failed = _codex_failure(result, attempt.resources.environment) or refused
    if files is None:
        return AgentRun(None, failed, facts=facts)
    kept = {path: data for path, data in files.items() if not path.startswith(f"{CODEX_HOME}/")}
    return AgentRun(kept, failed, facts=facts)


def _codex_refusal(order: AgentOrder, attempt: Attempt) -> Failed | None:
    """Return why Codex may not run here; nothing was started."""
    tenant = attempt.resources.runs.codex_tenant
    if not tenant:
        return Failed(State.FAILED, Reason.NOT_AVAILABLE, "runtime codex_local is off in this installation")
    if attempt.claim.job.tenant != tenant:
        detail = "runtime codex_local is not isolated: it is for the installation's one tenant only"
        return Failed(State.FAILED, Reason.NOT_AVAILABLE, detail)
    exceeded = attempt.charge_unmetered(nanousd_of(order.cap_usd), order.model)
    return Failed(State.BUDGET_EXCEEDED, Reason.COST_CAP, str(exceeded)) if exceeded is not None else None


def codex_arguments(order: AgentOrder, *, command: str) -> tuple[str, ...]:
    """Return Codex's command line; the prompt goes over stdin."""
    return (
        command,
        "exec",
        f"--model={order.model}",
        "--sandbox=workspace-write",
        "--skip-git-repo-check",
        "--color=never",
        "-",
    )


def codex_environment(inherited: Mapping[str, str], *, home: Path | None) -> dict[str, str]:
    """Return Codex's environment: a few of the worker's variables, and none of Pointsman's.

    Without `home`, Codex's home within the workspace, it is the environment of the retry (S-133).
    """
    passed_on = {name: inherited[name] for name in _PASSED_ON if name in inherited}
    return passed_on if home is None else {**passed_on, "CODEX_HOME": str(home)}


def may_retry_codex(result: ExecResult, inherited: Mapping[str, str]) -> bool:
    """Whether ADR-013 allows the one retry: its flag is set, the process failed, its signature is on stderr."""
    has_failed = result.ending is Ending.EXITED and result.exit_code != 0
    return inherited.get(FALLBACK_FLAG) == "1" and has_failed and AUTH_SIGNATURE in result.stderr


def _with_codex_retry(box: LocalBox, order: AgentOrder, attempt: Attempt) -> tuple[ExecResult, bool]:
    result = _run_codex(box, order, attempt, home=box.workspace / CODEX_HOME)
    if not may_retry_codex(result, attempt.resources.environment):
        return result, False
    logger.warning("codex_auth_fallback", extra={"agent": order.name})
    attempt.report(EventKind.PROGRESS, {"text": "codex had no authentication in its home: tried once without it"})
    return _run_codex(box, order, attempt, home=None), True


def _run_codex(box: LocalBox, order: AgentOrder, attempt: Attempt, *, home: Path | None) -> ExecResult:
    attempt.check()
    soft = max(session_seconds(order, attempt) - GRACE_SECONDS, LEAST_SECONDS)
    return box.run(
        codex_arguments(order, command=attempt.resources.runs.codex_command),
        clocks=Clocks.within(soft, grace=GRACE_SECONDS),
        stdin=f"{order.instructions}\n\n{order.prompt}".encode("utf-8", "replace"),
        env=codex_environment(attempt.resources.environment, home=home),
        watch=attempt.watcher(),
    )


def _codex_failure(result: ExecResult, inherited: Mapping[str, str]) -> Failed | None:
    if result.ending is not Ending.EXITED:
        is_late = result.ending in (Ending.SOFT_TIMEOUT, Ending.HARD_TIMEOUT)
        state, reason = (State.TIMED_OUT, Reason.TIME_LIMIT) if is_late else (State.OUTPUT_EXCEEDED, Reason.OUTPUT_CAP)
        return Failed(state, reason, f"codex was cut off: {result.ending.value}")
    if result.exit_code == 0:
        return None
    said = result.stderr[-_CODEX_SHOWN_CHARS:].decode("utf-8", "replace").strip()
    hint = ""
    if AUTH_SIGNATURE in result.stderr and inherited.get(FALLBACK_FLAG) != "1":
        hint = f" (the operator can allow one retry without CODEX_HOME by {FALLBACK_FLAG}=1)"
    return Failed(State.FAILED, Reason.AGENT_FAILED, f"codex ended with status {result.exit_code}{hint}: {said}")
