"""Holds new ratios against the kept ones: what got clearly slower beside its peers is a regression.

Ratios of one sitting repeat within a few percent on a quiet machine and within a third on a busy one, so only a loss
beyond that counts. Calls of functions, and what a job writes into the ledger, do not depend on the machine and are held
closely.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.answer import Answer

LEAST_SHARE = 0.7
"""Of the lower quartile of a kept ratio, that the new median has to reach."""
MOST_COUNTED = 1.1
"""Times a kept number of calls, transactions or events."""
_COUNTED = ("_transactions", "_events")


def regressions(kept: Answer, new: Answer) -> Iterator[str]:
    """Say what got worse; peers that are not in both answers are not compared."""
    before = {compared.peer: compared.ratio for compared in kept.comparisons}
    for compared in new.comparisons:
        if compared.peer in before:
            least = LEAST_SHARE * before[compared.peer].low
            if compared.ratio.median < least:
                found = f"{compared.ratio.median:.3g} times as {compared.unit.better} as {compared.peer}"
                yield f"{found}, at least {least:.3g} is kept"
    counted = _counted(new)
    for name, count in _counted(kept).items():
        if counted.get(name, 0) > (most := MOST_COUNTED * count):
            yield f"{counted[name]:,.3g} {name}, at most {most:,.3g} are kept"


def _counted(answer: Answer) -> dict[str, float]:
    """Return what an answer counts: the same on every machine, under every load."""
    calls = {"calls": float(answer.calls)} if answer.calls else {}
    limits = (answer.limits or {}).items()
    return calls | {
        name.replace("_", " "): value for name, value in limits if name.endswith(_COUNTED) and isinstance(value, float)
    }
