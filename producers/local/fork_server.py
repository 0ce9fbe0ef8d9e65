"""Forks the Python programs of an installation from one process, so that what they import is in memory once.

`python -m producers.local.fork_server DATABASE MODULE...` imports the modules, and forks for each message of
its supervisor, with which come a socket and the descriptor of a log. The child reads its command and environment from
the socket itself: this process never sees a program's secrets, so its later children do not inherit them.

It ends when its supervisor tells it to or is killed. In the second case it ends the programs and stops the database,
which has detached itself from its parent; otherwise the supervisor does.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

FORK, END = b"1", b"0"
"""Orders of the supervisor. Without END it was killed."""
GRACE_SECONDS = 3.0
"""How long programs that are stopping too can still write to the ledger."""
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_OWN_SIGNALS = {signal.SIGTERM, signal.SIGCHLD}
_LIBC = ctypes.CDLL(None, use_errno=True)


class ForkServer:
    """Forks programs, and tells the supervisor of their ends."""

    def __init__(self, database: Path) -> None:
        self._pid = os.getpid()
        self._database = database
        self._orders = socket.socket(fileno=0)
        self._running: dict[int, socket.socket] = {}
        self._is_stopping = False

    def serve(self) -> socket.socket:
        """Fork a program for each order; returns in every child, with its socket. Ends the process otherwise."""
        signal.signal(signal.SIGCHLD, lambda *_: self._reap())
        signal.signal(signal.SIGTERM, lambda *_: self._stop(is_orphan=True))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _OWN_SIGNALS)
        while True:
            order, descriptors, _, _ = socket.recv_fds(self._orders, 1, 2)
            if order != FORK:
                self._stop(is_orphan=order != END)
            program, log = socket.socket(fileno=descriptors[0]), descriptors[1]
            signal.pthread_sigmask(signal.SIG_BLOCK, _OWN_SIGNALS)
            if (pid := os.fork()) == 0:
                self._become_program(log)
                return program
            os.close(log)
            self._running[pid] = program
            with open(os.pidfd_open(pid), "rb") as handle:  # opened here, where no other program has its number yet
                socket.send_fds(program, [f"{pid}\n".encode()], [handle.fileno()])
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _OWN_SIGNALS)

    def _become_program(self, log: int) -> None:
        os.setsid()
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != self._pid:
            os._exit(1)
        for number in _OWN_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _OWN_SIGNALS)
        for other in (self._orders, *self._running.values()):
            other.close()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for descriptor, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(descriptor, target)
        for descriptor in {nothing, log} - {0, 1, 2}:
            os.close(descriptor)

    def _reap(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self._running.pop(pid) as program, suppress(OSError):  # the supervisor may be gone
                program.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        if self._is_stopping:
            os._exit(0)

    def _stop(self, *, is_orphan: bool) -> NoReturn:
        """End with the last program; without a supervisor, which otherwise ends them, see to that."""
        self._is_stopping = True
        signal.pthread_sigmask(signal.SIG_BLOCK, _OWN_SIGNALS)
        if is_orphan:
            for pid in self._running:
                os.kill(pid, signal.SIGTERM)
            time.sleep(GRACE_SECONDS)
            stop_database(self._database)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _OWN_SIGNALS)
        self._reap()
        while True:
            signal.pause()


def stop_database(directory: Path) -> None:
    """Let PostgreSQL in this directory shut down fast, if it runs."""
    try:
        os.kill(int((directory / "postmaster.pid").read_text().split()[0]), signal.SIGINT)
    except (OSError, ValueError, IndexError):
        return


def main(argv: Sequence[str]) -> int:
    """Serve; in a child, run the program."""
    database, *modules = argv
    signal.pthread_sigmask(signal.SIG_BLOCK, _OWN_SIGNALS)  # the database is to be stopped whenever the owner dies
    gc.disable()  # a collection would write to every page
    for module in modules:
        import_module(module)
    if orm := sys.modules.get("sqlalchemy.orm"):
        orm.configure_mappers()
    gc.freeze()
    with ForkServer(Path(database)).serve() as program, program.makefile() as orders:
        order = json.loads(orders.readline())
    gc.enable()
    _LIBC.prctl(_PR_SET_NAME, order["name"].encode()[:15])
    os.environ.clear()  # noqa: TID251 - the program reads it, as its own composition root
    os.environ.update(order["environment"])  # noqa: TID251
    sys.argv = order["argv"]
    return int(import_module(sys.argv[0]).main() or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
