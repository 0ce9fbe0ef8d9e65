"""Stop the embedded database after its owner was killed: PostgreSQL detaches itself from its parent.

`pointsman up` runs this beside its other processes. Like them it is stopped by its supervisor or, if that is killed, by
the kernel; only in the second case does it stop the database, since otherwise the owner does.
"""

from __future__ import annotations

import os
import signal
import sys
import time

GRACE_SECONDS = 3.0
"""How long the other processes, which are stopping too, can still write to the ledger."""


def main() -> int:
    """Wait for the end: `python -m producers.local.orphan_guard OWNER_PID DATABASE_PID`."""
    owner, database = (int(argument) for argument in sys.argv[1:])
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    if os.getppid() == owner:  # otherwise it died before the death signal was set up
        signal.sigwait(ends)
    if os.getppid() != owner:
        time.sleep(GRACE_SECONDS)
        _stop_database(database)
    return 0


def _stop_database(database: int) -> None:
    try:
        os.kill(database, signal.SIGINT)  # PostgreSQL's "fast" shutdown
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(main())
