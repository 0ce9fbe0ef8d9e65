"""A person's terminal in a box: the keys go in, what is shown comes out and is kept, cut to its end."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import socket
import struct
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import docker.errors
from docker.api import APIClient

from sandbox.box_spec import WORKSPACE
from sandbox.docker.engine import UNREACHABLE
from sandbox.docker.recipe import HOME

MOST_BYTES = 64 * 1024
"""What is kept of a session: its end."""
_PIECE_BYTES = 65_536
_TICK_SECONDS = 0.5
_START = ("bash", "-c", r"read -rs _; PS1='box:\w$ ' exec bash --norc -i")
"""The shell starts once the connection is ready: what comes before is lost in the buffers of the HTTP client."""
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[@-Z\\-_=>]|\r(?=\n)")


def attend(api: APIClient, container: str, *, term: str, stdin: int, stdout: int, seconds: float) -> bytes:
    """Give a person a shell in a container until it ends or the time is over; return the end of what was shown.

    `stdin` and `stdout` are the person's descriptors, of a terminal of the kind `term`, which is put into raw mode
    meanwhile.

    Raises:
        DockerException: the engine refused, or is gone.
    """
    env = {"HOME": HOME, "USER": "agent", "LOGNAME": "agent", "SHELL": "/bin/bash", "TERM": term}
    made = api.exec_create(container, list(_START), stdin=True, tty=True, environment=env, workdir=WORKSPACE)["Id"]
    held: Any = api.exec_start(made, tty=True, socket=True)
    connection: socket.socket = getattr(held, "_sock", held)
    try:
        with _raw(stdin), _resized(api, made, stdout):
            connection.sendall(b"\n")
            return _exchange(connection, stdin=stdin, stdout=stdout, until=time.monotonic() + seconds)
    finally:
        with suppress(OSError):
            held.close()
            connection.close()


def _exchange(connection: socket.socket, *, stdin: int, stdout: int, until: float) -> bytes:
    shown = bytearray()
    sources: list[Any] = [connection, stdin]
    while time.monotonic() < until:
        ready, _, _ = select.select(sources, [], [], _TICK_SECONDS)
        if stdin in ready:
            typed = os.read(stdin, _PIECE_BYTES)
            connection.sendall(typed or b"\x04")  # the end of a file is a key to a terminal
            if not typed:
                sources.remove(stdin)
        if connection in ready:
            try:
                said = connection.recv(_PIECE_BYTES)
            except ConnectionResetError:
                break
            if not said:
                break
            os.write(stdout, said)
            shown += said
            del shown[:-MOST_BYTES]
    return bytes(shown)


@contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """Hand on each key as it is, Ctrl-C too."""
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextmanager
def _resized(api: APIClient, exec_id: str, descriptor: int) -> Iterator[None]:
    """Keep the shell's window as large as the person's."""
    if not os.isatty(descriptor):
        yield
        return

    def resize(*_: object) -> None:
        rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(descriptor, termios.TIOCGWINSZ, bytes(8)))
        with suppress(docker.errors.DockerException, *UNREACHABLE):
            api.exec_resize(exec_id, height=rows or 24, width=columns or 80)

    before = signal.signal(signal.SIGWINCH, resize)
    resize()
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def plain_text(shown: bytes) -> str:
    """Return what a terminal showed without its control sequences."""
    text = _CONTROL.sub("", shown.decode("utf-8", "replace"))
    return "".join(letter for letter in text if letter.isprintable() or letter in "\n\t").strip()
