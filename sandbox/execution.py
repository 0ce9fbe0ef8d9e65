"""Follows one command in a box to its end: clocks, output limits and lines.

A `Channel` carries bytes both ways; the loop decides when to interrupt or stop reading, and why the command ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, Protocol

from sandbox.box_spec import MEBIBYTE
from sandbox.errors import BoxLostError

KILLED = 137
"""The exit code of what SIGKILL ended, whoever sent it, and of whoever says so."""

_POLL_SECONDS = 0.5
"""Longest wait for the channel."""
_DRAIN_SECONDS = 2.0
"""Longest time for output that is still on its way when a command has ended."""
_SOFT_MARGIN_SECONDS = 0.05
"""The soft clock runs inside the box, and may differ from ours by this."""
_TIMED_OUT_CODES = (124, 137)
"""Exit codes of `timeout` after SIGINT and after SIGKILL."""
_PIECE_BYTES = 65_536


@dataclass(frozen=True)
class Clocks:
    """Time limits of a command, in seconds."""

    soft_seconds: float
    """After this a clock inside the box sends SIGINT; the command then has `grace_seconds` to end."""
    hard_seconds: float
    """After this the whole box is frozen."""
    start_seconds: float | None = None
    """Limit for the first byte on stdout."""
    idle_seconds: float | None = None
    """Limit of a silence on stdout."""
    grace_seconds: float = 10.0

    @classmethod
    def within(
        cls, soft: float, *, grace: float, start_seconds: float | None = None, idle_seconds: float | None = None
    ) -> Clocks:
        """Return the clocks of a command that is interrupted after `soft` seconds and has `grace` to end."""
        return cls(soft, soft + grace + 2, start_seconds, idle_seconds, grace)


@dataclass(frozen=True)
class OutputLimits:
    """Limits of a command's output."""

    total_bytes: int = 10 * MEBIBYTE
    """Stdout and stderr together."""
    line_bytes: int = MEBIBYTE
    """One line of stdout, including its line feed."""
    stderr_tail_bytes: int = 65_536
    """How much of the end of stderr to keep."""


class Ending(StrEnum):
    """Why a command ended. Everything but `exited` was cut off by us."""

    EXITED = "exited"
    START_TIMEOUT = "start_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    SOFT_TIMEOUT = "soft_timeout"
    HARD_TIMEOUT = "hard_timeout"
    OUTPUT_LIMIT = "output_limit"
    LINE_LIMIT = "line_limit"
    STOPPED = "stopped"
    """The caller's `on_line` asked for it."""
    BOX_LOST = "box_lost"
    """The box or its engine went away under the command."""


@dataclass(frozen=True)
class ExecResult:
    """How a command ended. A nonzero status is a result, not an error."""

    ending: Ending
    exit_code: int | None
    """None when the command was cut off."""
    stdout: bytes
    """Empty if `on_line` took the lines."""
    stderr: bytes
    """The end of stderr."""
    output_bytes: int
    seconds: float
    oom_kills: int | None = None
    """Processes that the kernel killed since the last command for the box's memory limit; None if nobody counted."""

    @property
    def is_success(self) -> bool:
        """Whether the command exited with status 0."""
        return self.ending is Ending.EXITED and self.exit_code == 0

    @property
    def is_resource_limit(self) -> bool:
        """Whether the kernel killed the command for its memory use (threat A6)."""
        return self.ending is Ending.EXITED and self.exit_code == KILLED and self.oom_kills != 0

    def check_box(self) -> None:
        """Check that the box outlived the command, before its status is taken for anybody's fault.

        Raises:
            BoxLostError: it, or its engine, went away.
        """
        if self.ending is Ending.BOX_LOST:
            raise BoxLostError("the box went away under a command")

    @property
    def of_a_lost_box(self) -> ExecResult:
        """The same, where the box went away under the command: what killed it is no status of its own."""
        return replace(self, ending=Ending.BOX_LOST, exit_code=None)


OnLine = Callable[[bytes], bool | None]
"""Takes each line of stdout without its line feed; returning False stops the command."""


class Exchanged(NamedTuple):
    """The result of one exchange with a channel."""

    sent: int
    """Bytes of stdin that were accepted."""
    stdout: bytes
    stderr: bytes
    is_closed: bool
    """Whether the output has ended."""


class Channel(Protocol):
    """Stdin, stdout and stderr of a running command."""

    has_clock: bool
    """Whether a clock inside the box sends SIGINT when its soft time is over."""

    def exchange(self, outgoing: bytes, *, seconds: float) -> Exchanged:
        """Send what can be sent and return what arrived, after `seconds` at the latest.

        Raises:
            ConnectionError: the box or the engine is gone.
        """

    def end_input(self) -> None:
        """Close the command's stdin."""

    def interrupt(self) -> None:
        """Send SIGINT to the command and its children, if they still run."""

    def is_running(self) -> bool:
        """Return whether the command is running."""

    def exit_code(self) -> int | None:
        """Return the command's exit code; None while it runs or when it is unknown."""

    def close(self) -> None:
        """Release the channel; the command may still run."""


@dataclass
class _Progress:
    """The output of a command so far."""

    limits: OutputLimits
    on_line: OnLine | None
    total: int = 0
    line: bytearray = field(default_factory=bytearray)
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)

    def feed(self, came: Exchanged) -> Ending | None:
        """Take output; return an ending if it exceeds a limit or the caller stops the command."""
        self.stderr += came.stderr
        del self.stderr[: -self.limits.stderr_tail_bytes or None]
        room = self.limits.total_bytes - self.total
        self.total += len(came.stdout) + len(came.stderr)
        ending = self._lines(came.stdout[: max(room, 0)])
        return ending or (Ending.OUTPUT_LIMIT if self.total > self.limits.total_bytes else None)

    def _lines(self, data: bytes) -> Ending | None:
        """Split at line feeds only: a lone carriage return ends no line of NDJSON."""
        if self.on_line is None:
            self.stdout += data
        *ended, rest = data.split(b"\n")
        for piece in ended:
            if len(self.line) + len(piece) >= self.limits.line_bytes:
                return Ending.LINE_LIMIT
            if self.on_line is not None and not self._end_line(piece):
                return Ending.STOPPED
            self.line.clear()
        self.line += rest
        return Ending.LINE_LIMIT if len(self.line) > self.limits.line_bytes else None

    def _end_line(self, piece: bytes = b"") -> bool:
        whole = bytes(self.line + piece).removesuffix(b"\r")
        self.line.clear()
        return self.on_line is None or self.on_line(whole) is not False

    def finish(self) -> Ending | None:
        """Hand over an unterminated last line."""
        return Ending.STOPPED if self.line and not self._end_line() else None


@dataclass
class Watch:
    """The clocks of one command. Times are seconds since its start."""

    clocks: Clocks
    last_output: float | None = None
    interrupted: tuple[Ending, float] | None = None

    def saw_output(self, now: float) -> None:
        """Note output on stdout."""
        self.last_output = now

    def overdue(self, now: float) -> Ending | None:
        """Return the ending of the strictest expired clock."""
        clocks = self.clocks
        if now >= clocks.hard_seconds:
            return Ending.HARD_TIMEOUT
        if now >= clocks.soft_seconds:
            return Ending.SOFT_TIMEOUT
        if self.last_output is None:
            late = clocks.start_seconds is not None and now >= clocks.start_seconds
            return Ending.START_TIMEOUT if late else None
        late = clocks.idle_seconds is not None and now - self.last_output >= clocks.idle_seconds
        return Ending.IDLE_TIMEOUT if late else None

    def verdict(self, now: float) -> tuple[Ending | None, bool]:
        """Return the ending that is due, and whether the grace period is over too."""
        overdue = self.overdue(now)
        if overdue is None and self.interrupted is None:
            return None, False
        if self.interrupted is None:
            assert overdue is not None
            self.interrupted = (overdue, now)
        ending, since = self.interrupted
        if overdue is Ending.HARD_TIMEOUT:
            return overdue, True
        return ending, now - since >= self.clocks.grace_seconds + 1


def follow(
    channel: Channel,
    *,
    freeze: Callable[[], None],
    stdin: bytes,
    clocks: Clocks,
    limits: OutputLimits,
    on_line: OnLine | None,
    watch: Callable[[], None] | None = None,
    began: float,
    now: Callable[[], float] = time.monotonic,
) -> ExecResult:
    """Follow a command to its end, freeze the box if part of the command may still run, and close the channel.

    `watch` is called periodically while the command runs; it may raise. `began` is the time just before it was started:
    read later, on a busy machine, a command that its soft clock ended seems to have ended by itself.
    """
    follower = _Follower(channel, stdin, clocks=clocks, seen=_Progress(limits, on_line), began=began, now=now)
    has_to_freeze = True
    try:
        while (ending := follower.step()) is None:
            if watch is not None:
                watch()
        has_to_freeze = follower.code is None and ending is not Ending.BOX_LOST
        return follower.result(ending)
    finally:
        if has_to_freeze:
            freeze()
        channel.close()


class _Follower:
    """The state of one `follow`."""

    def __init__(
        self, channel: Channel, stdin: bytes, *, clocks: Clocks, seen: _Progress, began: float, now: Callable[[], float]
    ) -> None:
        self._channel = channel
        self._rest = memoryview(stdin)
        self._has_input = True
        self._watch = Watch(clocks)
        self._seen = seen
        self._now = now
        self._began = began
        self.code: int | None = None

    @property
    def _elapsed(self) -> float:
        return self._now() - self._began

    def step(self) -> Ending | None:
        """Do one exchange; return an ending when the command is over, or must be."""
        try:
            came = self._exchange()
        except ConnectionError:
            return Ending.BOX_LOST
        if (ending := self._seen.feed(came)) is not None:
            return ending
        is_quiet = not (came.stdout or came.stderr or came.sent)
        if came.is_closed or is_quiet:
            # A background child may hold the channel open after the command has ended.
            self.code = self._channel.exit_code()
            if came.is_closed or self.code is not None:
                at = self._elapsed
                cut = None if came.is_closed else self._drain()
                return cut or self._ended(at)
        return self._look_at_clocks()

    def _drain(self) -> Ending | None:
        """Take what came between the last exchange and the end; a child that stayed behind may write on."""
        until = self._elapsed + _DRAIN_SECONDS
        while self._elapsed < until:
            try:
                came = self._exchange()
            except ConnectionError:
                return None
            if (ending := self._seen.feed(came)) is not None:
                return ending
            if came.is_closed or not (came.stdout or came.stderr):
                return None
        return None

    def _exchange(self) -> Exchanged:
        came = self._channel.exchange(bytes(self._rest[:_PIECE_BYTES]), seconds=_POLL_SECONDS)
        self._rest = self._rest[came.sent :]
        if self._has_input and not self._rest:
            self._has_input = False
            self._channel.end_input()
        if came.stdout:
            self._watch.saw_output(self._elapsed)
        return came

    def _look_at_clocks(self) -> Ending | None:
        was_interrupted = self._watch.interrupted is not None
        ending, is_over = self._watch.verdict(self._elapsed)
        if is_over:
            return ending
        comes_from_inside = ending is Ending.SOFT_TIMEOUT and self._channel.has_clock
        if ending is not None and not was_interrupted and not comes_from_inside:
            self._channel.interrupt()
        return None

    def _ended(self, at: float) -> Ending:
        """Return why a command ended that was found to be over at this second."""
        if stopped := self._seen.finish():
            return stopped
        if self._watch.interrupted is not None:
            return self._watch.interrupted[0]
        if self.code is None:
            return Ending.BOX_LOST
        is_late = at >= self._watch.clocks.soft_seconds - _SOFT_MARGIN_SECONDS
        return Ending.SOFT_TIMEOUT if is_late and self.code in _TIMED_OUT_CODES else Ending.EXITED

    def result(self, ending: Ending) -> ExecResult:
        return ExecResult(
            ending=ending,
            exit_code=self.code,
            stdout=bytes(self._seen.stdout),
            stderr=bytes(self._seen.stderr),
            output_bytes=self._seen.total,
            seconds=self._elapsed,
        )
