"""Say plainly that a tier is not part of this installation, instead of pretending to work."""

from __future__ import annotations

from collections.abc import Callable

from routing.jobs import Reason, State
from workers.attempt import Attempt
from workers.outcomes import Ended, Outcome


def not_available(what: str) -> Callable[[Attempt], Outcome]:
    """Return a handler that ends every job with that message."""

    def handle(attempt: Attempt) -> Outcome:
        return Ended(State.FAILED, Reason.NOT_AVAILABLE, f"{what} is not available in this installation")

    return handle
