"""`--processes 4`: tests are imported and collected once, and run in processes forked from then on.

Tests that share servers (tests/order.py) run in one process, one after the other; whichever is free takes the next.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest
from _pytest._io import TerminalWriter
from _pytest.config import Config
from _pytest.config.argparsing import Parser

from tests.order import servers_of

Group = Sequence[pytest.Item]


def pytest_addoption(parser: Parser) -> None:
    parser.addoption("--processes", type=int, default=1, help="in how many processes tests run")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = session.config.getoption("--processes")
    if count == 1 or session.testsfailed or session.config.option.collectonly:
        return None
    groups: dict[str, list[pytest.Item]] = {}
    for item in session.items:
        groups.setdefault(servers_of(item.nodeid.partition("::")[0]), []).append(item)
    session.config._tmp_path_factory.getbasetemp()
    children: dict[Connection, int] = {}
    try:
        while len(children) < min(count, len(groups)):
            _fork(session.config, list(groups.values()), children)
        _serve(session, children, iter(range(len(groups))))
    finally:
        for connection, pid in children.items():
            connection.close()
            os.waitpid(pid, 0)
    return True


def _serve(session: pytest.Session, children: dict[Connection, int], left: Iterator[int]) -> None:
    """Give each process a group when it asks for one, and take its reports, until none is left."""
    hook, running = session.config.hook, dict.fromkeys(children, "")
    while running:
        for connection in wait(list(running)):
            assert isinstance(connection, Connection)
            try:
                said = connection.recv()
            except EOFError:
                raise session.Interrupted(f"the process that ran {running[connection]} died") from None
            if said is None:
                connection.send(next(left, None))
            elif isinstance(said, str):
                running[connection] = said
            elif said:
                hook.pytest_runtest_logreport(
                    report=hook.pytest_report_from_serializable(config=session.config, data=said)
                )
            else:
                del running[connection]
            if session.shouldfail:
                raise session.Failed(session.shouldfail)


def _fork(config: Config, groups: Sequence[Group], children: dict[Connection, int]) -> None:
    ours, theirs = Pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        theirs.close()
        children[ours] = pid
        return
    try:
        for end in (ours, *children):
            end.close()
        _run(config, groups, len(children), theirs)
    except (EOFError, ConnectionError, KeyboardInterrupt):
        pass  # the parent has ended the run
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _run(config: Config, groups: Sequence[Group], number: int, parent: Connection) -> None:
    capture, factory = config.pluginmanager.getplugin("capturemanager"), config._tmp_path_factory
    capture.stop_global_capturing()  # its files are the parent's
    capture.start_global_capturing()
    capture.suspend_global_capture()
    factory._basetemp = factory.getbasetemp() / f"process-{number}"
    factory._basetemp.mkdir(mode=0o700)
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(_Reporter(config, parent), "terminalreporter")

    def ask() -> Group | None:
        parent.send(None)
        given = parent.recv()
        return None if given is None else groups[given]

    group = ask()
    while group is not None:
        for place, item in enumerate(group):
            parent.send(item.nodeid)
            is_last = place == len(group) - 1
            following = ask() if is_last else group
            after = None if following is None else following[0 if is_last else place + 1]
            config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        group = following
    parent.send({})


class _Reporter:
    """Stands for the terminal, which is the parent's."""

    def __init__(self, config: Config, parent: Connection) -> None:
        self._config = config
        self._parent = parent
        self._tw = TerminalWriter(sys.__stderr__)
        """Where pytest-timeout shows stacks."""

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._parent.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))
