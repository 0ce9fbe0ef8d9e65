"""What a job request tells the router: one translation, whether its site was named at once or in a later reply."""

from __future__ import annotations

from routing.jobs import JobRequest
from routing.queues import tier_named
from routing.router import Signals, SiteSignals


def signals_of(request: JobRequest, *, site: SiteSignals | None, debated: frozenset[str]) -> Signals:
    """Return the router's signals.

    Args:
        request: what was asked.
        site: the site that it is bound to, or None.
        debated: keys of what its session has debated.
    """
    return Signals(
        prompt=request.prompt,
        site=site,
        new_site=request.new_site is not None,
        project=request.project is not None,
        preference=request.preference,
        advanced_edit=request.advanced_edit,
        tier=tier_named(request.tier) if request.tier else None,
        session_debated=debated,
    )
