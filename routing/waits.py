"""Why a waiting job must not go to the broker yet: every wait is a fact of the ledger, never a timer in a process."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum


class Hold(StrEnum):
    """What a waiting job waits for besides its turn (`job.held_for`). The dispatcher alone lets it go on."""

    SITE = "site"
    """Another job writes its site. It goes on when the site is free; the most urgent and oldest first."""
    TIME = "time"
    """A time has to come first (`job.held_until`): a start in the future, or the pause before a further try."""
    PROVIDER = "provider"
    """The lane of its model is parked until then (`job.held_until`)."""


RESTING = "resting"
"""Under this name a job's result holds what its work waits for, as long as it does."""


def pause_before(pauses: Sequence[float], *, tries: int) -> float:
    """Return how many seconds work rests before it is tried again.

    Args:
        pauses: seconds before the second try, the third and so on; the last one holds for all that follow.
        tries: how often it was tried so far.
    """
    return pauses[min(tries, len(pauses)) - 1] if pauses and tries > 0 else 0.0
