"""Workers that publish one release each and die by SIGKILL where told: after a step, or at a change of the disk.

Each line on stdin is one worker: LEDGER_URL DEN JOB FENCE WHERE. Its exit status is told on stdout. They are forked
from a process that has imported everything, which takes seconds.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

from ledger.store import Ledger, create_ledger_engine
from routing.jobs import JobMessage
from routing.policy.platform import platform_policy
from sites.content_store import ContentStore
from sites.disk import Disk
from workers.handlers import publish as publishing
from workers.lifecycle import Resources

AFTER = ("claim_job", "_check", "_lay_out", "_swap", "try_show_active")
"""The steps of a publish."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DeadlyDisk(Disk):
    """Kills its process before the nth change."""

    def __init__(self, changes_left: int) -> None:
        self.changes_left = changes_left

    def _change(self) -> None:
        if self.changes_left == 0:
            die()
        self.changes_left -= 1

    def replace(self, *arguments: Any) -> None:
        self._change()
        super().replace(*arguments)

    def symlink(self, *arguments: Any) -> None:
        self._change()
        super().symlink(*arguments)

    def link(self, *arguments: Any) -> None:
        self._change()
        super().link(*arguments)

    def sync_directory(self, path: Path) -> None:
        self._change()
        super().sync_directory(path)


def publish(ledger_url: str, content_store: str, job_id: str, fence: str, where: str) -> None:
    changes = int(where) if where.isdigit() else -1

    if where in AFTER:
        step = getattr(publishing, where)
        setattr(publishing, where, lambda *values, **named: (step(*values, **named), die()))
    resources = Resources(
        ledger=Ledger(create_ledger_engine(ledger_url, pool_size=2)),
        content_store=ContentStore(Path(content_store), disk=DeadlyDisk(changes)),
        policy=platform_policy(),
        gateway_url="http://127.0.0.1:1",
        worker="doomed",
    )
    publishing.run_control(JobMessage(job_id=UUID(job_id), fence=int(fence)), resources)


def main() -> None:
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            try:
                publish(*line.split())
            finally:
                os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
