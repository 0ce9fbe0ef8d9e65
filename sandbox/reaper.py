"""Takes away what dead workers left on an engine: containers, networks and volumes of this installation alone.

It goes by labels, and by what its own process gave up on; so it may run anywhere that reaches the engine, at any time,
and several at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from sandbox.docker.engine import Engine, Leftover, is_outer
from sandbox.docker.failures import using
from sandbox.docker.recipe import DEADLINE, OWNER, SLOT
from sandbox.errors import SandboxError
from sandbox.owner import is_alive

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 30
"""How often whoever reaches an engine should sweep: twice, then, within the minute that a leftover may last."""


class Swept(NamedTuple):
    """How many objects were removed."""

    containers: int = 0
    networks: int = 0
    volumes: int = 0

    @property
    def total(self) -> int:
        """All of them together."""
        return sum(self)


def keep_swept(
    reaper: Reaper,
    stopping: threading.Event,
    *,
    seconds: float = SWEEP_SECONDS,
    before: Callable[[], None] = lambda: None,
    after: Callable[[Swept], None] = lambda swept: None,
) -> None:
    """Sweep now and every so often until `stopping` is set; an engine that is away is tried again, not an end.

    Args:
        reaper: sweeps.
        stopping: ends it.
        seconds: between two sweeps.
        before: called before each sweep, to let go of what is not worth keeping.
        after: told of each sweep that removed something.
    """
    while True:
        before()
        try:
            if (swept := reaper.sweep()).total:
                after(swept)
        except SandboxError as error:
            logger.warning("sweep_failed", extra={"reason": getattr(error, "reason", type(error).__name__)})
        if stopping.wait(seconds):
            return


Judge = Callable[[str], bool | None]
"""Says whether the process that an owner label names lives; None when it cannot tell."""


def is_due(found: Leftover, *, now: float, judge: Judge, given_up: Collection[str] = ()) -> bool:
    """Return whether an object has to go: its deadline has passed, or its owner is dead or is done with it.

    A missing or broken label is nobody's: it goes. Age alone is never a reason, since long jobs live long.
    """
    if is_outer(found):
        return False
    if found.labels.get(SLOT) in given_up:
        return True
    deadline = found.labels.get(DEADLINE, "")
    if not deadline.isdigit() or now >= int(deadline):
        return True
    return judge(found.labels.get(OWNER, "")) is False


class Reaper:
    """Sweeps one installation's objects off one engine."""

    def __init__(self, engine: Engine, *, judge: Judge = is_alive, now: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._judge = judge
        self._now = now

    def sweep(self) -> Swept:
        """Remove what is due; containers first, as they hold the rest.

        Raises:
            SandboxUnavailableError: no engine.
            BoxLostError: the engine went away meanwhile.
        """
        with using():
            standing, given_up, now = list(self._engine.leftovers()), frozenset(self._engine.given_up), self._now()
            due = [found for found in standing if is_due(found, now=now, judge=self._judge, given_up=given_up)]
            return self._remove(due)

    def clear(self) -> Swept:
        """Remove all that this installation has on the engine, the outer network included: for its end."""
        with using():
            return self._remove(list(self._engine.leftovers()))

    def _remove(self, due: list[Leftover]) -> Swept:
        counts = {"container": 0, "network": 0, "volume": 0}
        for found in due:
            if self._engine.remove(found):
                counts[found.sort] += 1
        swept = Swept(counts["container"], counts["network"], counts["volume"])
        if swept.total:
            logger.warning("reaped", extra=swept._asdict())
        return swept
