"""A command in a container, as a channel: stdin, stdout and stderr over one hijacked connection to the engine."""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import docker.errors
from docker.api import APIClient

from sandbox.docker.failures import UNREACHABLE
from sandbox.docker.frames import Frames
from sandbox.docker.recipe import TOOLS, USER
from sandbox.execution import Exchanged

_PIECE_BYTES = 262_144
_GO = b"\n"


class ExecChannel:
    """One `docker exec`. Without soft seconds it has no clock inside.

    The runner inside waits for a first line before it starts the command: only then is it sure that no output of the
    command went into the buffers of the HTTP client, which the hijack leaves behind.
    """

    def __init__(
        self, api: APIClient, container: str, argv: Sequence[str], *, run_id: str, soft_seconds: float,
        grace_seconds: float, env: Mapping[str, str], cwd: str,
    ) -> None:  # fmt: skip
        self.has_clock = soft_seconds > 0
        self._api = api
        self._container = container
        self._run_id = run_id
        wrapped = [f"{TOOLS}/run", run_id, _seconds(soft_seconds), _seconds(grace_seconds), *argv]
        created = api.exec_create(
            container, wrapped, stdin=True, user=USER, environment=dict(env), workdir=cwd, privileged=False
        )
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
        """Send what can be sent and return what came; see `Channel`."""
        waiting = self._before + outgoing
        writers = [self._socket] if waiting else []
        readable, writable, _ = select.select([self._socket], writers, [], seconds)
        sent = self._send(waiting) if writable else 0
        data = self._receive() if readable else None
        out = self._frames.feed(data or b"")
        return Exchanged(sent, out.stdout, out.stderr, data == b"")

    def _send(self, waiting: bytes) -> int:
        try:
            sent = self._socket.send(waiting)
        except BlockingIOError:
            return 0
        except (BrokenPipeError, ConnectionResetError):  # the command does not read, or is over: what it says counts
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
        """Let the command see the end of its stdin."""
        if self._before:
            return
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def interrupt(self) -> None:
        """Send SIGINT to the command's process group, from inside."""
        with suppress(docker.errors.DockerException, *UNREACHABLE):
            made = self._api.exec_create(self._container, [f"{TOOLS}/interrupt", self._run_id], user=USER)
            self._api.exec_start(made["Id"], detach=True)

    def is_running(self) -> bool:
        """Return whether the command runs.

        Raises:
            DockerException: the engine does not say.
        """
        return bool(self._api.exec_inspect(self._exec_id)["Running"])

    def exit_code(self) -> int | None:
        """Return the status of the command; None while it runs, or when the engine does not know it."""
        with suppress(docker.errors.DockerException, *UNREACHABLE):
            found = self._api.exec_inspect(self._exec_id)
            if not found["Running"]:
                code: int | None = found["ExitCode"]
                return code
        return None

    def close(self) -> None:
        """Let go of the connection; the command may still run."""
        with suppress(OSError):
            self._held.close()
            self._socket.close()


def _seconds(value: float) -> str:
    return f"{value:.3f}"


def quick(api: APIClient, container: str, argv: Sequence[str]) -> tuple[int | None, bytes]:
    """Run one of our own short commands in a container and return its status and what it said."""
    made = api.exec_create(container, list(argv), user=USER)
    said: bytes = api.exec_start(made["Id"])
    code: int | None = api.exec_inspect(made["Id"])["ExitCode"]
    return code, said
