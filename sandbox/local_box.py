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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from sandbox.box import Box
from sandbox.box_spec import WORKSPACE, BoxSpec, Egress
from sandbox.execution import Clocks, Exchanged
from sites.directories import write_directory

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

    def is_running(self) -> bool:
        return self._process.poll() is None

    def exit_code(self) -> int | None:
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def close(self) -> None:
        self._selector.close()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


class LocalBox(Box):
    """A box that is a directory with ordinary processes, without isolation."""

    def __init__(self, spec: BoxSpec) -> None:
        mirror_url = f"http://127.0.0.1:{spec.mirror.port}" if spec.mirror is not None else None
        egress = Egress("127.0.0.1", f"http://127.0.0.1:{spec.gateway.port}", mirror_url)
        super().__init__(secrets.token_hex(6), spec, egress)
        self._home = Path(tempfile.mkdtemp(prefix="pointsman-unwalled-"))
        self.workspace = self._home / "workspace"
        self.workspace.mkdir(mode=0o700)
        self._processes: list[subprocess.Popen[bytes]] = []

    def _lay(self, files: Mapping[str, bytes]) -> None:
        write_directory(files, self.workspace)

    def _start(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, clocks: Clocks | None) -> _PipeChannel:
        clock: list[str] = []
        if clocks is not None:
            clock = ["timeout", "--signal=INT", f"--kill-after={clocks.grace_seconds}", str(clocks.soft_seconds)]
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
        return _PipeChannel(process, has_clock=clocks is not None)

    @contextmanager
    def _packed(self) -> Iterator[Iterable[bytes]]:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            archive.add(self.workspace, arcname=WORKSPACE.strip("/"))
        yield [packed.getvalue()]

    def check_services(self, *, watch: Callable[[], None]) -> None:
        """Do nothing: it has none."""

    def _stop(self) -> None:
        """Kill all processes, since an ordinary process group cannot be kept from waking up."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def is_usable(self) -> bool:
        """See `Box.is_usable`."""
        is_awake = self._standby is None or self._standby.channel.is_running()
        return not self._is_frozen and not self._is_closed and self.workspace.is_dir() and is_awake

    def _destroy(self) -> None:
        self._stop()
        shutil.rmtree(self._home, ignore_errors=True)
