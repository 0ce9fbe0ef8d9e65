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
from monitoring.ledger.tables import Release, Site
from sandbox.den import Den
from sandbox.release import manifest_of, site_key, try_to_show_active

logger = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS = 60.0
ROUND_SECONDS = 1.0
"""After so long a round leaves the rest to the next: whoever calls this has other things to do."""
_PAGE = 200
_FIRST_PAUSE_SECONDS = 1.0


class Projector:
    """Shows what lags. Holds in memory only how long it leaves a site alone that it failed to show."""

    def __init__(self, ledger: Ledger, den: Den, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._den = den
        self._clock = clock
        self._is_looking = True
        self._looked_at: UUID | None = None
        self._pauses: dict[UUID, tuple[float, float]] = {}
        """When a site is tried again, and how long it then pauses if that fails too."""

    def run(self) -> None:
        """Show the sites that lag and are due; the first rounds also look whether the disk has what is believed."""
        if self._is_looking:
            self._look_at_a_page()
        started = self._clock()
        resting = [site_id for site_id, (due_at, _) in self._pauses.items() if started < due_at]
        with self._ledger.begin() as session:
            lagging = lagging_sites(session, besides=resting)
        for site_id in lagging:
            if self._clock() - started > ROUND_SECONDS:
                return
            self._show(site_id)

    def _show(self, site_id: UUID) -> None:
        _, pause = self._pauses.get(site_id, (0.0, _FIRST_PAUSE_SECONDS))
        if try_to_show_active(self._ledger, self._den, site_id) is None:
            self._pauses.pop(site_id, None)
            logger.info("projection_brought_up", extra={"site_id": str(site_id)})
        else:
            self._pauses[site_id] = (self._clock() + pause, min(2 * pause, LONGEST_PAUSE_SECONDS))

    def _look_at_a_page(self) -> None:
        with self._ledger.begin() as session:
            sites = shown_sites(session, after=self._looked_at, limit=_PAGE)
            for site in sites:
                release = active_release(session, site)
                if release is not None and not self._is_shown(site, release):
                    forget_shown(session, site)
        self._is_looking = len(sites) == _PAGE
        self._looked_at = sites[-1].id if sites else None

    def _is_shown(self, site: Site, release: Release) -> bool:
        return self._den.shows(site_key(site), manifest_of(release), release_id=str(release.id))
