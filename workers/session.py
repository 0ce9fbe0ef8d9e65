"""One session of the Claude Code CLI in a box, from its first line to its last."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from gateway.errors import GatewayError, GatewayUnreachableError, ProviderBusyError
from ledger.events import EventKind
from monitoring import traces
from routing.policy.prices import BudgetExceeded
from sandbox.box import Box, Clocks, ExecResult
from sandbox.claude_code import End, SessionPlan, SessionReader, Verdict, arguments, encode_prompt, environment
from workers.attempt import Attempt

TOKEN_PLACEHOLDER = "[token]"
LEAST_CHARACTERS = 16
"""Shortest token worth masking: the gateway's have 47, and a shorter one would mask ordinary words."""
MAX_BYTES = 2_097_152
"""Of one session; the beginning and the end are kept."""


class TokenMasker:
    """Masks an attempt's token in what is recorded.

    Any process in the box knows it and may print it, JSON-escaped too: so lines are masked, and what is parsed from
    them once more.
    """

    def __init__(self, token: str) -> None:
        self._token = token if len(token) >= LEAST_CHARACTERS else ""

    def line(self, line: bytes) -> bytes:
        """Return a line with the token masked."""
        return line.replace(self._token.encode(), TOKEN_PLACEHOLDER.encode()) if self._token else line

    def text(self, text: str) -> str:
        """Return a text with the token masked."""
        return text.replace(self._token, TOKEN_PLACEHOLDER) if self._token else text


class Transcript:
    """Collects a session's masked lines."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, line: bytes) -> None:
        """Take one line."""
        clean = line + b"\n"
        if not self._tail and len(self._head) + len(clean) <= MAX_BYTES // 2:
            self._head += clean
            return
        self._tail += clean
        del self._tail[: -(MAX_BYTES // 2)]

    def packed(self) -> bytes:
        """Return it compressed; equal lines give equal bytes."""
        return gzip.compress(bytes(self._head + self._tail), mtime=0)


@dataclass(frozen=True)
class SessionResult:
    """A finished session."""

    verdict: Verdict
    facts: Mapping[str, Any]
    """What is recorded: a session can be explained by it, though never repeated (H-048)."""


def hold_session(attempt: Attempt, box: Box, plan: SessionPlan, *, prompt: str, clocks: Clocks) -> SessionResult:
    """Run the CLI in a box until it ends or has to.

    Args:
        attempt: whose session it is; it is checked periodically that its job is still wanted.
        box: with the files in place.
        plan: what it may do.
        prompt: sent over stdin.
        clocks: its idle and time limits.

    Raises:
        UncontainedSessionError: the plan is for a container and the box is none; nothing was started.
        CancelledByOwnerError, LeaseLostError: nobody's fault: nothing that it did counts.
        BoxLostError: the box was gone before it began.
    """
    argv = arguments(plan, is_walled=box.is_walled)
    transcript = Transcript()
    hider = TokenMasker(attempt.token)
    reader = SessionReader(plan, tell=lambda news: attempt.report(EventKind.PROGRESS, {"text": hider.text(news)}))

    def on_line(line: bytes) -> bool:
        line = hider.line(line)
        transcript.add(line)
        return reader.take(line)

    attempt.check()
    result = box.run(
        argv,
        clocks=clocks,
        stdin=encode_prompt(prompt),
        on_line=on_line,
        watch=attempt.watcher(),
        env=environment(plan, gateway_url=box.egress.gateway_url, token=attempt.token, trace=traces.current()),
    )
    facts = _facts(reader, result) | {
        "prompt_sha256": hashlib.sha256(prompt.encode("utf-8", "replace")).hexdigest(),
        "transcript_sha256": attempt.content_store.put(transcript.packed()),
    }
    verdict = reader.judge(result)
    return SessionResult(replace(verdict, text=hider.text(verdict.text)), facts)


def obstacle_to(
    attempt: Attempt, verdict: Verdict, *, model: str, exceeded: BudgetExceeded | None
) -> GatewayError | None:
    """Return what prevented a session's model calls; None when it failed of something else.

    Not what the session says decides, but whether the gateway answers and the model's circuit is closed by now.
    """
    if verdict.end not in (End.FAILED, End.TIME) or exceeded is not None:
        return None
    if attempt.was_gateway_away():
        return GatewayUnreachableError("the gateway is away, or stood still while the agent worked")
    wait = attempt.circuit_wait(model) if verdict.end is End.FAILED else None
    return None if wait is None else ProviderBusyError(f"{model} opened while the agent worked", wait)


def _facts(reader: SessionReader, result: ExecResult) -> dict[str, Any]:
    started, finished = reader.started, reader.finished
    return {
        "session": started.session if started else None,
        "model": reader.plan.model,
        "cli": started.version if started else None,
        "ending": result.ending.value,
        "status": result.exit_code,
        "seconds": round(result.seconds, 1),
        "turns": finished.turns if finished else None,
        "denials": finished.denials if finished else None,
        "tools_used": reader.tools_used,
        "retries": reader.retries,
        "own_count": asdict(finished.own_count) if finished and finished.own_count else None,
    }
