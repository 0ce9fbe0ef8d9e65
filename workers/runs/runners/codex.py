"""Runtime `codex_local`: the Codex CLI as a process of the worker's own machine, with ADR-013's guarded retry.

Nothing isolates it and no gateway sees its calls. So it is off unless the operator names the installation's one tenant,
it is charged its whole step budget before it starts, and its environment is an explicit list.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from ledger.events import EventKind
from routing.jobs import Reason, State
from routing.policy.prices import nanousd_of
from sandbox.box import BoxSpec, Clocks, Ending, ExecResult, Target
from sandbox.local_box import LocalBox
from workers.attempt import Attempt
from workers.runs.runners.api import session_seconds
from workers.runs.runners.claude_code import collect
from workers.runs.step_context import AgentOrder, AgentRun, Failed

logger = logging.getLogger(__name__)

FALLBACK_FLAG = "SPRINTFOUNDRY_ENABLE_CODEX_HOME_AUTH_FALLBACK"
"""With the value 1, and no other, a process that failed because of Codex's own home is retried once without it."""
AUTH_SIGNATURE = b"401 Unauthorized: Missing bearer or basic authentication in header"
"""Trusted on stderr alone: a model writes to stdout, and must not decide about an environment."""
CODEX_HOME = ".codex-home"
"""Within the workspace; never part of what the agent left."""

_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE")
_GRACE_SECONDS = 8.0
_LEAST_SECONDS = 5.0
_SHOWN_CHARS = 400


class CodexRunner:
    """Runs agents of runtime `codex_local`."""

    def run(self, order: AgentOrder, attempt: Attempt) -> AgentRun:
        """Run an agent on the worker's machine."""
        if (refused := _refusal(order, attempt)) is not None:
            return AgentRun(None, refused)
        box = LocalBox(BoxSpec(image="none", gateway=Target("", 1)))
        try:
            home = {f"{CODEX_HOME}/config.toml": b""}
            box.put({**order.files, **home}, planted=lambda path: False)
            result, retried = _with_retry(box, order, attempt)
            files, refused = collect(box, attempt, order.files)
        finally:
            box.close()
        facts = {
            "how": "codex on the worker's machine",
            "status": result.exit_code,
            "seconds": round(result.seconds, 1),
            "auth_retry": retried,
            "tokens": "unknown",
        }
        failed = _failure(result, attempt.environment) or refused
        if files is None:
            return AgentRun(None, failed, facts=facts)
        kept = {path: data for path, data in files.items() if not path.startswith(f"{CODEX_HOME}/")}
        return AgentRun(kept, failed, facts=facts)


def _refusal(order: AgentOrder, attempt: Attempt) -> Failed | None:
    """Return why Codex may not run here; nothing was started."""
    tenant = attempt.runs.codex_tenant
    if not tenant:
        return Failed(State.FAILED, Reason.NOT_AVAILABLE, "runtime codex_local is off in this installation")
    if attempt.claim.job.tenant != tenant:
        detail = "runtime codex_local is not isolated: it is for the installation's one tenant only"
        return Failed(State.FAILED, Reason.NOT_AVAILABLE, detail)
    exceeded = attempt.charge_unmetered(nanousd_of(order.cap_usd), order.model)
    return Failed(State.BUDGET_EXCEEDED, Reason.COST_CAP, str(exceeded)) if exceeded is not None else None


def arguments(order: AgentOrder, *, command: str) -> tuple[str, ...]:
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


def environment_of(inherited: Mapping[str, str], *, home: Path | None) -> dict[str, str]:
    """Return Codex's environment: a few of the worker's variables, and none of Pointsman's.

    Args:
        inherited: the worker's own.
        home: Codex's home within the workspace; None for the retry without it (S-133).
    """
    passed_on = {name: inherited[name] for name in _PASSED_ON if name in inherited}
    return passed_on if home is None else {**passed_on, "CODEX_HOME": str(home)}


def may_retry(result: ExecResult, inherited: Mapping[str, str]) -> bool:
    """Whether ADR-013 allows the one retry: its flag is set, the process failed, its signature is on stderr."""
    has_failed = result.ending is Ending.EXITED and result.exit_code != 0
    return inherited.get(FALLBACK_FLAG) == "1" and has_failed and AUTH_SIGNATURE in result.stderr


def _with_retry(box: LocalBox, order: AgentOrder, attempt: Attempt) -> tuple[ExecResult, bool]:
    result = _run(box, order, attempt, home=box.workspace / CODEX_HOME)
    if not may_retry(result, attempt.environment):
        return result, False
    logger.warning("codex_auth_fallback", extra={"agent": order.name})
    attempt.report(EventKind.PROGRESS, {"text": "codex had no authentication in its home: tried once without it"})
    return _run(box, order, attempt, home=None), True


def _run(box: LocalBox, order: AgentOrder, attempt: Attempt, *, home: Path | None) -> ExecResult:
    attempt.check()
    soft = max(session_seconds(order, attempt) - _GRACE_SECONDS, _LEAST_SECONDS)
    return box.run(
        arguments(order, command=attempt.runs.codex_command),
        clocks=Clocks(soft_seconds=soft, hard_seconds=soft + _GRACE_SECONDS + 2, grace_seconds=_GRACE_SECONDS),
        stdin=f"{order.instructions}\n\n{order.prompt}".encode("utf-8", "replace"),
        env=environment_of(attempt.environment, home=home),
        watch=attempt.watcher(),
    )


def _failure(result: ExecResult, inherited: Mapping[str, str]) -> Failed | None:
    if result.ending is not Ending.EXITED:
        is_late = result.ending in (Ending.SOFT_TIMEOUT, Ending.HARD_TIMEOUT)
        state, reason = (State.TIMED_OUT, Reason.TIME_LIMIT) if is_late else (State.OUTPUT_EXCEEDED, Reason.OUTPUT_CAP)
        return Failed(state, reason, f"codex was cut off: {result.ending.value}")
    if result.exit_code == 0:
        return None
    said = result.stderr[-_SHOWN_CHARS:].decode("utf-8", "replace").strip()
    hint = ""
    if AUTH_SIGNATURE in result.stderr and inherited.get(FALLBACK_FLAG) != "1":
        hint = f" (the operator can allow one retry without CODEX_HOME by {FALLBACK_FLAG}=1)"
    return Failed(State.FAILED, Reason.AGENT_FAILED, f"codex ended with status {result.exit_code}{hint}: {said}")
