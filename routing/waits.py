"""Why a waiting job must not go to the broker yet: every wait is a fact of the ledger, never a timer in a process."""

from __future__ import annotations

from enum import StrEnum


class Hold(StrEnum):
    """What a waiting job waits for besides its turn (`job.held_for`). The dispatcher alone lets it go on."""

    SITE = "site"
    """Another job writes its site. It goes on when the site is free; the most urgent and oldest first."""
    TIME = "time"
    """A time has to come first (`job.held_until`): a start in the future, or the pause before a further try."""
    PROVIDER = "provider"
    """The lane of its model is parked until then (`job.held_until`)."""
