"""The channel of a command in a container: its input and output over the engine's connection, and its exit code."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import docker.errors
from docker.api import APIClient

from sandbox.docker.engine import UNREACHABLE
from sandbox.docker.recipe import TOOLS
from sandbox.execution import Exchanged

_PIECE_BYTES = 262_144
_GO = b"\n"
_HEADER = struct.Struct(">BxxxL")
_STDOUT, _STDERR, _ERROR = 1, 2, 3


class Output(NamedTuple):
    """Output in one piece of the connection."""

    stdout: bytes
    stderr: bytes


class Frames:
    """Splits the engine's multiplexed output, in which each frame has a header with its stream and length.

    A frame's data is passed on at once, before the frame is complete.
    """

    def __init__(self) -> None:
        self._header = b""
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> Output:
        """Return the output in some bytes.

        Raises:
            ConnectionError: the bytes are not frames (the engine's fault).
        """
        stdout, stderr = bytearray(), bytearray()
        place = 0
        while place < len(data):
            if not self._left:
                place = self._read_header(data, place)
                continue
            piece = data[place : place + self._left]
            place += len(piece)
            self._left -= len(piece)
            (stdout if self._stream == _STDOUT else stderr).extend(piece)
        return Output(bytes(stdout), bytes(stderr))

    def _read_header(self, data: bytes, place: int) -> int:
        wanted = _HEADER.size - len(self._header)
        self._header += data[place : place + wanted]
        if len(self._header) == _HEADER.size:
            self._stream, self._left = _HEADER.unpack(self._header)
            self._header = b""
            if self._stream not in (_STDOUT, _STDERR, _ERROR):
                raise ConnectionError("the engine sent something other than a command's output")
        return place + wanted


class ExecChannel:
    """The channel of one `docker exec`, over a hijacked connection. Without soft seconds it has no clock inside.

    The runner inside waits for a first line before it starts the command; otherwise the command's first output could
    end up in the buffers of the HTTP client, which the hijack abandons.
    """

    def __init__(
        self,
        api: APIClient,
        container: str,
        argv: Sequence[str],
        *,
        run_id: str,
        soft_seconds: float,
        grace_seconds: float,
        env: Mapping[str, str],
        cwd: str,
    ) -> None:
        self.has_clock = soft_seconds > 0
        self._api = api
        self._container = container
        self._run_id = run_id
        wrapped = [f"{TOOLS}/run", run_id, f"{soft_seconds:.3f}", f"{grace_seconds:.3f}", *argv]
        created = api.exec_create(container, wrapped, stdin=True, environment=dict(env), workdir=cwd, privileged=False)
        self._exec_id: str = created["Id"]
        self._held: Any = api.exec_start(self._exec_id, socket=True)
        self._socket: socket.socket = getattr(self._held, "_sock", self._held)
        self._socket.setblocking(False)
        self._frames = Frames()
        self._before = _GO

    def begin(self) -> None:
        """Let the command start before there is anything to exchange."""
        self._send(self._before)

    def exchange(self, outgoing: bytes, *, seconds: float) -> Exchanged:
        """Send what can be sent and return what arrived."""
        waiting = self._before + outgoing
        poller = select.poll()  # `select.select` takes no descriptor above 1023, as a pool of threads may have
        poller.register(self._socket, select.POLLIN | (select.POLLOUT if waiting else 0))
        ready = dict(poller.poll(seconds * 1000)).get(self._socket.fileno(), 0)
        sent = self._send(waiting) if ready & select.POLLOUT else 0
        data = self._receive() if ready & ~select.POLLOUT else None
        out = self._frames.feed(data or b"")
        return Exchanged(sent, out.stdout, out.stderr, data == b"")

    def _send(self, waiting: bytes) -> int:
        try:
            sent = self._socket.send(waiting)
        except BlockingIOError:
            return 0
        except (BrokenPipeError, ConnectionResetError):  # the command does not read, or is over
            self._before = b""
            return len(waiting)
        skipped = min(sent, len(self._before))
        self._before = self._before[skipped:]
        return sent - skipped

    def _receive(self) -> bytes | None:
        try:
            return self._socket.recv(_PIECE_BYTES)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            return b""

    def end_input(self) -> None:
        """Close the command's stdin."""
        if self._before:
            return
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def interrupt(self) -> None:
        """Send SIGINT to the command's process group, from inside."""
        with suppress(docker.errors.DockerException, *UNREACHABLE):
            made = self._api.exec_create(self._container, [f"{TOOLS}/interrupt", self._run_id])
            self._api.exec_start(made["Id"], detach=True)

    def is_running(self) -> bool:
        """Return whether the command is running.

        Raises:
            DockerException: the engine does not answer.
        """
        return bool(self._api.exec_inspect(self._exec_id)["Running"])

    def exit_code(self) -> int | None:
        """Return the command's exit code; None while it runs or when it is unknown."""
        with suppress(docker.errors.DockerException, *UNREACHABLE):
            found = self._api.exec_inspect(self._exec_id)
            if not found["Running"]:
                code: int | None = found["ExitCode"]
                return code
        return None

    def close(self) -> None:
        """Close the connection; the command may still run."""
        with suppress(OSError):
            self._held.close()
            self._socket.close()


def run_quickly(api: APIClient, container: str, argv: Sequence[str]) -> tuple[int | None, bytes]:
    """Run one of our own short commands in a container and return its exit code and output."""
    made = api.exec_create(container, list(argv))
    output: bytes = api.exec_start(made["Id"])
    code: int | None = api.exec_inspect(made["Id"])["ExitCode"]
    return code, output
