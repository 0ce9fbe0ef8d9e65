"""A local sandbox without isolation, for tests and machines without an engine; never for untrusted code.

It keeps the promises of `Box` that an ordinary process in its own directory can keep: files, clocks, output limits and
collection.
"""

from __future__ import annotations

import io
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from sandbox.box import (
    WORKSPACE,
    BoxFrozenError,
    BoxLostError,
    BoxSpec,
    Clocks,
    CollectRules,
    Egress,
    ExecResult,
    Injected,
    OnLine,
    OutputLimits,
    select_files,
)
from sandbox.execution import Exchanged, Standby, follow
from sandbox.tarball import stream_limit, unpack
from sites.content_store import ContentStore, Manifest
from sites.directories import write_directory
from sites.files import is_planted

_PIECE_BYTES = 262_144
_INTERRUPTIBLE = ("env", "--default-signal=INT")
"""Shells start what runs behind `&` with SIGINT ignored, which a command inherits: it would miss its soft limit."""


class _PipeChannel:
    """A subprocess as a channel."""

    def __init__(self, process: subprocess.Popen[bytes], *, has_clock: bool) -> None:
        self.has_clock = has_clock
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin = process.stdin
        self._selector = selectors.DefaultSelector()
        for stream in (process.stdout, process.stderr):
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ)
        os.set_blocking(self._stdin.fileno(), False)
        self._outputs = {process.stdout: 0, process.stderr: 1}

    def exchange(self, outgoing: bytes, *, seconds: float) -> Exchanged:
        sent = self._send(outgoing)
        came = [b"", b""]
        for key, _ in self._selector.select(0 if sent else seconds):
            data = os.read(key.fd, _PIECE_BYTES)
            came[self._outputs[key.fileobj]] = data  # type: ignore[index]
            if not data:
                self._selector.unregister(key.fileobj)
        is_closed = not self._selector.get_map()
        if is_closed:
            self._process.wait()
        return Exchanged(sent, came[0], came[1], is_closed)

    def _send(self, outgoing: bytes) -> int:
        if not outgoing:
            return 0
        try:
            return os.write(self._stdin.fileno(), outgoing)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            return len(outgoing)

    def end_input(self) -> None:
        with suppress(BrokenPipeError):
            self._stdin.close()

    def interrupt(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)

    def exit_code(self) -> int | None:
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def close(self) -> None:
        self._selector.close()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


class LocalBox:
    """A box that is a directory with ordinary processes, without isolation."""

    def __init__(self, spec: BoxSpec) -> None:
        self.id = secrets.token_hex(6)
        self.is_warm = False
        self.is_walled = False
        self.token: str | None = None
        mirror_url = f"http://127.0.0.1:{spec.mirror.port}" if spec.mirror is not None else None
        self.egress = Egress("127.0.0.1", f"http://127.0.0.1:{spec.gateway.port}", mirror_url)
        self._spec = spec
        self._home = Path(tempfile.mkdtemp(prefix="pointsman-unwalled-"))
        self.workspace = self._home / "workspace"
        self.workspace.mkdir(mode=0o700)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._has_run = False
        self._standby: Standby[_PipeChannel] | None = None
        self._state = "open"

    def put(self, files: Mapping[str, bytes], *, planted: Callable[[str], bool] = is_planted) -> Injected:
        """See `Box.put`."""
        self._check_usable()
        if self._has_run:
            raise BoxFrozenError("files must be put before the first command")
        checked, injected = select_files(files, planted, limits=self._spec.limits)
        write_directory(checked, self.workspace)
        return injected

    def run(
        self,
        argv: Sequence[str],
        *,
        clocks: Clocks,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str = WORKSPACE,
        output: OutputLimits | None = None,
        on_line: OnLine | None = None,
        watch: Callable[[], None] | None = None,
    ) -> ExecResult:
        """See `Box.run`."""
        self._check_usable()
        self._has_run = True
        began, standby, self._standby = time.monotonic(), self._standby, None
        channel = standby.hand_over(argv, env or {}, cwd) if standby is not None else None
        if channel is None:
            clock = ["timeout", "--signal=INT", f"--kill-after={clocks.grace_seconds}", str(clocks.soft_seconds)]
            channel = self._start(argv, env=env or {}, cwd=cwd, clock=clock)
        result = follow(
            channel,
            freeze=self.freeze,
            stdin=stdin,
            clocks=clocks,
            limits=output or OutputLimits(),
            on_line=on_line,
            watch=watch,
            began=began,
        )
        return result.of_a_lost_box if self._state == "closed" else result

    def stand_by(self, argv: Sequence[str], *, env: Mapping[str, str], token: str | None = None) -> None:
        """See `Box.stand_by`."""
        self._check_usable()
        self._standby, self.token = Standby(tuple(argv), env, self._start(argv, env=env, cwd=WORKSPACE)), token

    def _start(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, clock: Sequence[str] = ()
    ) -> _PipeChannel:
        process = subprocess.Popen(
            [*_INTERRUPTIBLE, *clock, *argv],
            cwd=self.workspace / Path(cwd).relative_to(WORKSPACE),
            stdin=subprocess.PIPE,
            env={"PATH": os.defpath, "HOME": str(self._home), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._processes.append(process)
        return _PipeChannel(process, has_clock=bool(clock))

    def collect(self, content_store: ContentStore, rules: CollectRules) -> Manifest:
        """See `Box.collect`."""
        self.freeze()
        limits = self._spec.limits
        longest = stream_limit(workspace_bytes=limits.workspace_bytes, workspace_files=limits.workspace_files)
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            archive.add(self.workspace, arcname=WORKSPACE.strip("/"))
        return unpack([packed.getvalue()], content_store, rules, max_stream_bytes=longest)

    def check_services(self, *, watch: Callable[[], None]) -> None:
        """Do nothing: it has none."""

    def freeze(self) -> None:
        """Kill all processes, since an ordinary process group cannot be kept from waking up."""
        if self._state == "closed":
            raise BoxLostError("the box is closed")
        self._state = "frozen"
        self._kill()

    def _kill(self) -> None:
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _check_usable(self) -> None:
        if self._state == "closed":
            raise BoxLostError("the box is closed")
        if self._state == "frozen":
            raise BoxFrozenError("the box is frozen")

    def is_usable(self) -> bool:
        """Return whether it is unchanged since it was created."""
        is_awake = self._standby is None or self._standby.channel.exit_code() is None
        return self._state == "open" and self.workspace.is_dir() and is_awake

    def close(self) -> None:
        """See `Box.close`."""
        if self._state != "closed":
            self._state = "closed"
            if self._standby is not None:
                self._standby.dismiss()
            self._kill()
            shutil.rmtree(self._home, ignore_errors=True)
