"""End the embedded database when the process that started it was killed: PostgreSQL makes itself nobody's child.

`pointsman up` runs this beside its other processes. It is told to stop like all of them, by its supervisor or, when
that is killed, by the kernel; only in the second case it ends the database, since otherwise its owner does.
"""

from __future__ import annotations

import os
import signal
import sys
import time

GRACE_SECONDS = 3.0
"""How long the other processes, which end now as well, can still write to the ledger."""


def main() -> int:
    """Wait for the end: `python -m producers.local.orphan_guard OWNER_PID DATABASE_PID`."""
    owner, database = (int(argument) for argument in sys.argv[1:])
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    if os.getppid() == owner:  # otherwise it died before the kernel was asked to tell
        signal.sigwait(ends)
    if os.getppid() != owner:
        time.sleep(GRACE_SECONDS)
        _end_quickly(database)
    return 0


def _end_quickly(database: int) -> None:
    try:
        os.kill(database, signal.SIGINT)  # PostgreSQL's "fast" shutdown
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(main())
