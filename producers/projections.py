"""Bring the copies of sites on disk to what the ledger says, until each shows its active release.

Whoever publishes does this at once; what a full disk or a death left behind is found here. The dispatcher owns it: it
looks at every site when it starts, since a disk may have been lost or restored meanwhile, and then at those that lag.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from uuid import UUID

from monitoring.ledger.releases import active_release, forget_shown, lagging_sites, shown_sites
from monitoring.ledger.store import Ledger
from sandbox.den import Den
from sandbox.release import manifest_of, site_key, try_to_show_active

logger = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 1.0


class Projector:
    """Shows what lags. Holds in memory only how long it leaves a site alone that it failed to show."""

    def __init__(self, ledger: Ledger, den: Den, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._den = den
        self._clock = clock
        self._has_looked = False
        self._pauses: dict[UUID, tuple[float, float]] = {}
        """When a site is tried again, and how long it then pauses if that fails too."""

    def run(self) -> None:
        """Show every site that lags and is due; the first time, look first whether the disk has what is believed."""
        if not self._has_looked:
            self._look_at_all()
            self._has_looked = True
        with self._ledger.begin() as session:
            lagging = lagging_sites(session)
        self._pauses = {site_id: pause for site_id, pause in self._pauses.items() if site_id in lagging}
        for site_id in lagging:
            self._show(site_id)

    def _show(self, site_id: UUID) -> None:
        due_at, pause = self._pauses.get(site_id, (0.0, _FIRST_PAUSE_SECONDS))
        if self._clock() < due_at:
            return
        if try_to_show_active(self._ledger, self._den, site_id) is None:
            self._pauses.pop(site_id, None)
            logger.info("projection_brought_up", extra={"site_id": str(site_id)})
        else:
            self._pauses[site_id] = (self._clock() + pause, min(2 * pause, LONGEST_PAUSE_SECONDS))

    def _look_at_all(self) -> None:
        after: UUID | None = None
        while True:
            with self._ledger.begin() as session:
                sites = shown_sites(session, after=after)
                for site in sites:
                    release = active_release(session, site)
                    if release is not None and not self._den.shows(
                        site_key(site), manifest_of(release), release_id=str(release.id)
                    ):
                        forget_shown(session, site)
            if not sites:
                return
            after = sites[-1].id
