"""A box: the files put into it, the commands run in it, and the files collected from it.

There are two kinds: a container (`sandbox.docker`), and a local directory without isolation for tests and machines
without an engine (`sandbox.local_box`). One conformance suite runs against both.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from monitoring import traces
from sandbox.box_spec import WORKSPACE, BoxLimits, BoxSpec, Egress
from sandbox.errors import BoxFrozenError, BoxLostError
from sandbox.execution import Channel, Clocks, ExecResult, OnLine, OutputLimits, follow
from sandbox.tarball import CollectRules, stream_limit, unpack
from sites.content_store import ContentStore, Manifest
from sites.files import check_tree, is_planted

logger = logging.getLogger(__name__)


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


@dataclass(frozen=True)
class Injected:
    """What went into a workspace."""

    files: int
    bytes: int
    dropped: tuple[str, ...]
    """Paths left out because a tool would obey them (threat D1); sorted."""


def select_files(
    files: Mapping[str, bytes], planted: Callable[[str], bool], *, limits: BoxLimits
) -> tuple[dict[str, bytes], Injected]:
    """Return the checked files that may go into a box, without those that a tool would obey (threat D1)."""
    dropped = {path for path in files if planted(path)}
    wanted = {path: data for path, data in files.items() if path not in dropped}
    checked = check_tree(wanted, max_bytes=limits.workspace_bytes, max_files=limits.workspace_files)
    return checked, Injected(len(checked), sum(map(len, checked.values())), tuple(sorted(dropped)))


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
