"""Forks the Python programs of an installation from one process, so that what they import is in memory once.

`python -m producers.local.fork_server DATABASE MODULE...` imports the modules, and forks for each message of
its supervisor or of a program, with which come a socket and the descriptor of a log; numbers of further descriptors are
appended to the command. The child reads its command and environment from the socket itself: this process never sees a
program's secrets, so its later children do not inherit them.

It ends when its supervisor tells it to or is killed. In the second case it ends the programs and stops the database,
which has detached itself from its parent; otherwise the supervisor does.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import select
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
    """Forks programs, and reports their ends to the supervisor."""

    def __init__(self, database: Path) -> None:
        self._pid = os.getpid()
        self._database = database
        self._orders = socket.socket(fileno=0)
        self._running: dict[int, socket.socket] = {}
        self._programs: set[socket.socket] = set()
        """Over which programs order."""
        self._woken, self._wake = socket.socketpair()
        """A signal writes to it: one that comes just before `select` would otherwise wait for the next order."""
        self._is_stopping = False

    def serve(self) -> tuple[socket.socket, list[int]]:
        """Fork a program for each order. Ends the process otherwise.

        Returns in every child, with its socket and the descriptors that it was given, or made for it to order.
        """
        signal.signal(signal.SIGCHLD, lambda *_: self._reap())
        signal.signal(signal.SIGTERM, lambda *_: self._stop(is_orphan=True))
        for end in (self._woken, self._wake):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _OWN_SIGNALS)
        while True:
            for source in select.select([self._orders, self._woken, *self._programs], [], [])[0]:
                if source is self._woken:
                    source.recv(1024)
                    continue
                order, descriptors, _, _ = socket.recv_fds(source, 1, 3)
                if order == FORK:
                    if (given := self._fork(*descriptors)) is not None:
                        return given
                elif source is self._orders:
                    self._stop(is_orphan=order != END)
                else:
                    self._programs.remove(source)
                    source.close()

    def _fork(self, descriptor: int, log: int, *more: int) -> tuple[socket.socket, list[int]] | None:
        program, (ours, theirs) = socket.socket(fileno=descriptor), socket.socketpair()
        signal.pthread_sigmask(signal.SIG_BLOCK, _OWN_SIGNALS)
        try:
            pid = os.fork()
        except OSError as error:  # no more tasks or memory: the other programs go on
            print(f"not forked: {error}", file=sys.stderr, flush=True)
            pid = None
        if pid == 0:
            ours.close()
            self._become_program(log)
            return program, [*more, theirs.detach()]
        for each in (log, *more):
            os.close(each)
        theirs.close()
        if pid is None:
            ours.close()
            program.close()
        else:
            self._programs.add(ours)
            self._running[pid] = program
            handle = os.pidfd_open(pid)  # opened here, where no other program has its number yet
            with suppress(OSError):  # who ordered it may be gone
                socket.send_fds(program, [f"{pid}\n".encode()], [handle])
            os.close(handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _OWN_SIGNALS)
        return None

    def _become_program(self, log: int) -> None:
        os.setsid()
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != self._pid:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for number in _OWN_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _OWN_SIGNALS)
        for other in (self._orders, self._woken, self._wake, *self._running.values(), *self._programs):
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
        """End with the last program: the supervisor has ended all but one that it was just having forked, if any."""
        self._is_stopping = True
        signal.pthread_sigmask(signal.SIG_BLOCK, _OWN_SIGNALS)
        for pid in self._running:
            os.kill(pid, signal.SIGTERM)
        if is_orphan:
            time.sleep(GRACE_SECONDS)
            stop_database(self._database)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _OWN_SIGNALS)
        self._reap()
        while True:
            select.select([self._woken], [], [])  # and on until the handler has reaped the last
            self._woken.recv(1024)


def stop_database(directory: Path) -> None:
    """Let PostgreSQL in this directory shut down fast, if it runs."""
    try:
        os.kill(int((directory / "postmaster.pid").read_text().split()[0]), signal.SIGINT)
    except (OSError, ValueError, IndexError):
        return


_code = 1
"""What a program ends with, unless it says otherwise."""


def _leave() -> None:
    """End without taking down modules and objects, which writes to every page that the programs share."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(_code)


def main(argv: Sequence[str]) -> int:
    """Serve; in a child, run the program."""
    global _code
    atexit.register(_leave)  # before what imports register: the first is called last
    database, *modules = argv
    signal.pthread_sigmask(signal.SIG_BLOCK, _OWN_SIGNALS)  # the database is to be stopped whenever the owner dies
    gc.disable()  # a collection would write to every page
    for module in modules:
        import_module(module)
    if orm := sys.modules.get("sqlalchemy.orm"):
        orm.configure_mappers()
    if vocabulary := sys.modules.get("routing.prompt.vocabulary"):
        vocabulary.shipped_vocabulary()
    gc.freeze()
    program, (*given, server) = ForkServer(Path(database)).serve()
    with program, program.makefile() as orders:
        order = json.loads(orders.readline())
    gc.enable()
    _LIBC.prctl(_PR_SET_NAME, order["name"].encode()[:15])
    os.environ.clear()  # noqa: TID251 - the program reads it, as its own composition root
    os.environ.update(order["environment"])  # noqa: TID251
    os.environ["POINTSMAN_WORKER__FORK_SERVER"] = str(server)  # noqa: TID251
    sys.argv = [*order["argv"], *map(str, given)]
    try:
        _code = int(import_module(sys.argv[0]).main() or 0)
    except SystemExit as end:
        _code = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise
    return _code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
