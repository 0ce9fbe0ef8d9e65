"""A box, and how it follows one command to its end: clocks, output limits and lines.

A `Channel` carries bytes both ways; the loop decides when to interrupt or stop reading, and why the command ended.

There are two kinds of box: a container (`sandbox.docker`), and a local directory without isolation for tests and
machines without an engine (`sandbox.local_box`). One conformance suite runs against both.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from monitoring import traces
from sandbox.box import (
    WORKSPACE,
    BoxFrozenError,
    BoxLostError,
    BoxSpec,
    Clocks,
    CollectRules,
    Egress,
    Ending,
    ExecResult,
    Injected,
    OnLine,
    OutputLimits,
    select_files,
)
from sandbox.tarball import stream_limit, unpack
from sites.content_store import ContentStore, Manifest
from sites.files import is_planted

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
"""Longest wait for the channel."""
_DRAIN_SECONDS = 2.0
"""Longest time for output that is still on its way when a command has ended."""
_SOFT_MARGIN_SECONDS = 0.05
"""The soft clock runs inside the box, and may differ from ours by this."""
_TIMED_OUT_CODES = (124, 137)
"""Exit codes of `timeout` after SIGINT and after SIGKILL."""
_PIECE_BYTES = 65_536


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


@dataclass(frozen=True)
class Standby:
    """A command that was started before its job was known."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    channel: Channel

    def hand_over(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> Channel | None:
        """Return the channel if the command still waits and is exactly the wanted one; otherwise end it."""
        is_wanted = (tuple(argv), dict(env), cwd) == (self.argv, dict(self.env), WORKSPACE)
        if is_wanted and self.channel.exit_code() is None:
            return self.channel
        self.dismiss()
        return None

    def dismiss(self) -> None:
        """Close the command's stdin, which ends it."""
        self.channel.end_input()
        self.channel.close()


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


class Box(ABC):
    """A box for one job. Every method but `close` fails once it is closed."""

    is_walled = False
    """Whether it isolates what runs in it."""

    def __init__(self, id: str, spec: BoxSpec, egress: Egress) -> None:
        self.id = id
        """For logs and receipts."""
        self.egress = egress
        """The only way out."""
        self.is_warm = False
        """Whether it waited in a pool."""
        self.token: str | None = None
        """Of the standby command, if any. It is worthless until it is bound to an attempt."""
        self.on_closed: Callable[[], None] = lambda: None
        """Called once it is destroyed."""
        self._spec = spec
        self._standby: Standby | None = None
        self._has_run = False
        self._is_frozen = False
        self._is_closed = False

    def stand_by(self, argv: Sequence[str], *, env: Mapping[str, str], token: str | None = None) -> None:
        """Start a command that waits for its input on stdin.

        The next `run` of exactly this command continues it; any other ends it first. No outside data has reached it by
        then, so files may still be put.

        `token` is a new secret in `env`, to be bound to the attempt that uses the box.

        Raises:
            BoxLostError: the box is gone.
        """
        self._check_usable()
        channel = self._start(argv, env=env, cwd=WORKSPACE, clocks=None)
        self._standby, self.token = Standby(tuple(argv), env, channel), token

    def put(self, files: Mapping[str, bytes], *, planted: Callable[[str], bool] = is_planted) -> Injected:
        """Put files into the workspace, before the first `run`: nothing untrusted may be running.

        Raises:
            PathRefusedError: a name breaks a rule (the sender's fault).
            TreeRefusedError: the tree breaks a rule (the sender's fault).
            BoxLostError: the box or its engine is gone (the operator's fault, or transient).
        """
        self._check_usable()
        if self._has_run:
            raise BoxFrozenError("files must be put before the first command")
        checked, injected = select_files(files, planted, limits=self._spec.limits)
        self._lay(checked)
        return injected

    def run(
        self,
        argv: Sequence[str],
        *,
        clocks: Clocks,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str = WORKSPACE,
        on_line: OnLine | None = None,
        watch: Callable[[], None] | None = None,
    ) -> ExecResult:
        """Run a command as the unprivileged user until it ends or is cut off.

        After an ending by the hard clock, an output limit or `on_line` the box is frozen: nothing in it moves any more,
        and its files can be collected. `on_line` runs in this thread, and so does `watch`, every half second at least,
        whether the command says anything or not; what they raise freezes the box and goes on.

        Raises:
            BoxFrozenError: the box is frozen (ours).
            BoxLostError: the box was gone before the command began.
        """
        self._check_usable()
        self._has_run = True
        began, standby, self._standby = time.monotonic(), self._standby, None
        with traces.span("box exec", facts={"process.executable.name": argv[0].rpartition("/")[2]}) as span:
            channel = standby.hand_over(argv, env or {}, cwd) if standby is not None else None
            result = follow(
                channel or self._start(argv, env=env or {}, cwd=cwd, clocks=clocks),
                freeze=self._freeze_quietly,
                stdin=stdin,
                clocks=clocks,
                limits=OutputLimits(),
                on_line=on_line,
                watch=watch,
                began=began,
            )
            span.note({"process.exit.code": result.exit_code, "pointsman.ending": result.ending.value})
            return result.of_a_lost_box if self._is_closed else self._judged(result)

    def collect(self, content_store: ContentStore, rules: CollectRules) -> Manifest:
        """Freeze the box for good and store its files by content.

        Raises:
            PathRefusedError: a name breaks a rule (the fault of the code in the box, as all of these).
            TreeRefusedError: one reason code: `symlink hardlink fifo device sparse planted name_collision
                file_as_directory file_too_large too_many_bytes too_many_files too_many_members stream_too_long
                bad_archive not_a_directory`.
            BoxLostError: the box is gone, and its files with it.
        """
        self.freeze()
        limits = self._spec.limits
        longest = stream_limit(workspace_bytes=limits.workspace_bytes, workspace_files=limits.workspace_files)
        with self._packed() as chunks:
            return unpack(chunks, content_store, rules, max_stream_bytes=longest)

    @abstractmethod
    def check_services(self, *, watch: Callable[[], None]) -> None:
        """Check that the services beside the box still run; what `watch` raises ends the wait for those about to end.

        Raises:
            ServiceFailedError: one has ended.
            BoxLostError: the engine is gone.
        """

    @abstractmethod
    def is_usable(self) -> bool:
        """Return whether it is unchanged since it was created."""

    def freeze(self) -> None:
        """Stop everything in the box for good; its files stay readable. A frozen box is left as it is.

        Raises:
            BoxLostError: the box is gone.
        """
        if self._is_closed:
            raise BoxLostError("the box is closed")
        if not self._is_frozen:
            self._stop()
            self._is_frozen = True

    def close(self) -> None:
        """Destroy the box and everything that belongs to it. Never fails; may be called again, at any time."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._standby is not None:
                self._standby.dismiss()
            self._destroy()
        finally:
            self.on_closed()

    def _freeze_quietly(self) -> None:
        try:
            self.freeze()
        except BoxLostError:
            logger.warning("box_lost", extra={"box": self.id})

    def _check_usable(self) -> None:
        if self._is_closed:
            raise BoxLostError("the box is closed")
        if self._is_frozen:
            raise BoxFrozenError("the box is frozen")

    @abstractmethod
    def _lay(self, files: Mapping[str, bytes]) -> None:
        """Write checked files into the workspace."""

    @abstractmethod
    def _start(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, clocks: Clocks | None) -> Channel:
        """Start a command; without clocks its time has not begun yet."""

    def _judged(self, result: ExecResult) -> ExecResult:
        """Return a result with what only this kind of box can tell of it."""
        return result

    @abstractmethod
    def _packed(self) -> AbstractContextManager[Iterable[bytes]]:
        """Open the archive of the workspace."""

    @abstractmethod
    def _stop(self) -> None:
        """Stop all processes for good."""

    @abstractmethod
    def _destroy(self) -> None:
        """Remove everything; never fails."""
