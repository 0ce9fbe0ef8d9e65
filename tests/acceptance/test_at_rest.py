"""What `pointsman up` costs while nobody asks anything of it (issue 19, point 8)."""

import os
from pathlib import Path

import psutil
import pytest

from producers.local.embedded import Embedded, Options
from tests.acceptance.conftest import NO_ENGINE
from tests.acceptance.installation import Installation
from tests.chaos.samples import pss_bytes

MOST_PROCESSES = 15
"""Besides those of connections to the ledger, which close within a minute: two are left."""
MOST_MIB = 700


def memory_of(process: psutil.Process) -> int:
    """Bytes; none of a connection's process that has just ended."""
    try:
        return pss_bytes(process.pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0


def is_a_connection(process: psutil.Process) -> bool:
    """Also one that has just ended: it cannot have been a program of the database's own."""
    try:
        return "[local]" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return True


@pytest.mark.slow
def test_an_installation_at_rest_is_few_and_small_processes_and_pool_children_come_with_work(tmp_path: Path) -> None:
    tmp_path.parent.chmod(0o755)
    options = Options(home=tmp_path, api_port=0, environment=NO_ENGINE, idle_children=0)
    with Embedded(options, base_environment=os.environ) as embedded:
        assert embedded.supervisor is not None
        pids = embedded.supervisor.pids()
        workers = {name: psutil.Process(pid) for name, pid in pids.items() if name.startswith("worker-")}
        children = {name: len(worker.children(recursive=True)) for name, worker in workers.items()}
        assert children == {"worker-edits": 0, "worker-quick": 0, "worker-agent": 0}

        server = psutil.Process(pids["api"]).parent()
        database = psutil.Process(embedded._postgres.get_pid())
        assert server is not None
        programs = {server, *server.children(recursive=True), psutil.Process(pids["valkey"])}
        own = {each for each in database.children() if not is_a_connection(each)}
        assert len({*programs, database, *own}) + 1 <= MOST_PROCESSES  # and `pointsman up` itself
        everything = {*programs, database, *database.children()}
        assert sum(memory_of(each) for each in everything) / 2**20 <= MOST_MIB - 40

        running = Installation(embedded)
        assert running.wait_for(running.submit("date -u"))["state"] == "answered"
        assert {name for name, worker in workers.items() if worker.children()} == {"worker-quick"}
        running.http.close()
