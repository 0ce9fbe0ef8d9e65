"""One session of the Claude Code CLI in a box, from its first line to its last."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from gateway.errors import GatewayError, GatewayUnreachableError, ProviderBusyError
from ledger.events import EventKind
from monitoring import traces
from routing.policy.prices import TOKENS_PER_PRICE, BudgetExceeded, Price, price_of
from sandbox.box import Box
from sandbox.claude_code import CONVERSATION_FILE, SessionPlan, arguments, encode_prompt, environment
from sandbox.execution import Clocks, ExecResult
from sandbox.session_reader import End, SessionReader, Verdict
from sandbox.transcripts import MAX_RESUMED_BYTES, Transcript, TranscriptRefusedError, conversation, unpack
from sites.errors import BlobCorruptError, BlobMissingError
from workers.attempt import Attempt

TOKEN_PLACEHOLDER = "[token]"
LEAST_CHARACTERS = 16
"""Shortest token worth masking: the gateway's have 47, and a shorter one would mask ordinary words."""


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


class Allowance(NamedTuple):
    """The limits of a session, as its agent is told them."""

    turns: int
    """Model calls."""
    seconds: float
    """At most: what the queue leaves may be less."""
    usd: float

    @property
    def text(self) -> str:
        """The same in words."""
        minutes = max(1, round(self.seconds / 60))
        return f"{self.turns} replies, {minutes} min and ${self.usd:.2f}"

    @property
    def told(self) -> str:
        """The sentence about it for a session that hands in no result."""
        return f"You have at most {self.text}. Whichever ends first ends your work: finish it in good time."


GRACE_SECONDS = 8.0
"""How long an interrupted session has to end by itself."""
LEAST_SECONDS = 5.0


def session_clocks(attempt: Attempt, soft_seconds: float, *, tool_seconds: float = 0.0) -> Clocks:
    """Return the clocks of a session that is interrupted after `soft_seconds`; one tool may take `tool_seconds`."""
    rules, soft = attempt.policy.agent, max(soft_seconds, LEAST_SECONDS)
    start, idle = min(rules.start_seconds, soft), rules.idle_seconds + tool_seconds / 2
    return Clocks.within(soft, grace=GRACE_SECONDS, start_seconds=start, idle_seconds=idle)


def allowance_of(plan: SessionPlan, clocks: Clocks) -> Allowance:
    """Return what a session may use that begins now."""
    return Allowance(plan.max_turns, clocks.soft_seconds, plan.budget_usd)


_GO_ON = "Your session was interrupted. Go on where you stopped; what its last command did may have to be looked at."


class Begun(NamedTuple):
    """An earlier session of the same work, from which this one goes on."""

    transcript_sha256: str
    """Of what it said, in the content store."""
    told: str
    """Sent to a resumed agent instead of its whole task, with the limits that are left."""


@dataclass(frozen=True)
class SessionResult:
    """A finished session."""

    verdict: Verdict
    facts: Mapping[str, Any]
    """What is recorded: a session can be explained by it, though never repeated (H-048)."""


def hold_session(
    attempt: Attempt, box: Box, plan: SessionPlan, *, prompt: str, clocks: Clocks, begun: Begun | None = None
) -> SessionResult:
    """Run the CLI in a box until it ends or has to.

    A conversation that cannot be gone on from costs nothing: the session begins afresh, on the same bill.

    The prompt goes over stdin. It is checked periodically that the attempt's job is still wanted.

    Raises:
        UncontainedSessionError: the plan is for a container and the box is none; nothing was started.
        CancelledByOwnerError, LeaseLostError: nobody's fault: nothing that it did counts.
        BoxLostError: the box was gone before it began.
    """
    if begun is not None:
        asked = time.monotonic()
        try:
            lines = _lay_conversation(attempt, box, plan, begun)
            told = "\n\n".join((begun.told, _GO_ON, allowance_of(plan, clocks).told))
            reader, held = _hold(attempt, box, replace(plan, goes_on=True), told, clocks=clocks, begun=lines)
            if not (reader.found_nothing and held.verdict.end is End.FAILED):
                return replace(held, facts={**held.facts, "went_on_from": begun.transcript_sha256})
            why = reader.finished.text if reader.finished is not None else held.verdict.text
        except (BlobMissingError, BlobCorruptError, TranscriptRefusedError) as error:
            why = str(error)
        text = f"the earlier session cannot be gone on from, so a new one begins: {why}"
        attempt.report(EventKind.PROGRESS, {"text": text})
        clocks = _less(clocks, time.monotonic() - asked)
    return _hold(attempt, box, plan, prompt, clocks=clocks)[1]


_LAY = ("bash", "-c", f"cat > {CONVERSATION_FILE}")
_LAYING = Clocks(soft_seconds=10, hard_seconds=15, grace_seconds=2)
_BYTES_A_TOKEN = 3
"""At least, of a conversation as JSON."""
_READING_SHARE = 0.5
"""Of a session's budget may go into reading what it goes on from."""


def _less(clocks: Clocks, passed: float) -> Clocks:
    return replace(clocks, soft_seconds=max(clocks.soft_seconds - passed, 1), hard_seconds=clocks.hard_seconds - passed)


def readable_bytes(price: Price, budget_usd: float) -> int:
    """Return up to which size a conversation is resumed: beyond it, a new session is cheaper."""
    usd_per_byte = max(price.cache_write, price.input) / TOKENS_PER_PRICE / _BYTES_A_TOKEN
    most = _READING_SHARE * budget_usd
    return int(most / usd_per_byte) if most < MAX_RESUMED_BYTES * usd_per_byte else MAX_RESUMED_BYTES


def _lay_conversation(attempt: Attempt, box: Box, plan: SessionPlan, begun: Begun) -> bytes:
    """Put what the session goes on from into its box, and return the transcript.

    Raises:
        BlobMissingError, BlobCorruptError, TranscriptRefusedError: it cannot go on from it.
    """
    lines = unpack(attempt.content_store.get(begun.transcript_sha256))
    price = price_of(attempt.policy.prices, plan.model)
    file = conversation(lines, model=plan.model, most_bytes=readable_bytes(price, plan.budget_usd))
    if not box.run(_LAY, clocks=_LAYING, stdin=file).is_success:
        raise TranscriptRefusedError("its box did not take it")
    return lines


def _hold(
    attempt: Attempt, box: Box, plan: SessionPlan, prompt: str, *, clocks: Clocks, begun: bytes = b""
) -> tuple[SessionReader, SessionResult]:
    argv = arguments(plan, is_walled=box.is_walled)
    transcript = Transcript(known=attempt.secrets, begun=begun)
    hider = TokenMasker(attempt.token)
    reader = SessionReader(plan, tell=lambda news: attempt.report(EventKind.PROGRESS, {"text": hider.text(news)}))
    message = encode_prompt(prompt)
    transcript.add(message.rstrip())

    def on_line(line: bytes) -> bool:
        line = hider.line(line)
        transcript.add(line)
        return reader.take(line)

    attempt.check()
    result = box.run(
        argv,
        clocks=clocks,
        stdin=message,
        on_line=on_line,
        watch=attempt.watcher(),
        env=environment(plan, gateway_url=box.egress.gateway_url, token=attempt.token, trace=traces.current()),
    )
    facts = _facts(reader, result) | {
        "prompt_sha256": hashlib.sha256(prompt.encode("utf-8", "replace")).hexdigest(),
        "transcript_sha256": attempt.store(partial(attempt.content_store.put, transcript.packed())),
    }
    verdict = reader.judge(result)
    return reader, SessionResult(replace(verdict, text=hider.text(verdict.text)), facts)


def leave_box(attempt: Attempt, box: Box) -> None:
    """Destroy a box; the token ends first, because its address will be another box's before the work is judged."""
    with closing(box):
        attempt.leave()


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
