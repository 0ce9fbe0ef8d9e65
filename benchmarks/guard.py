"""Holds new ratios against the kept ones: what got clearly slower beside its peers is a regression.

Ratios of one sitting repeat within a few percent on a quiet machine and within a third on a busy one, so only a loss
beyond that counts. Calls of functions do not depend on the machine and are held closely.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.answer import Answer

LEAST_SHARE = 0.7
"""Of the lower quartile of a kept ratio, that the new median has to reach."""
MOST_CALLS = 1.1
"""Times the kept number of calls."""


def regressions(kept: Answer, new: Answer) -> Iterator[str]:
    """Say what got worse; peers that are not in both answers are not compared."""
    before = {compared.peer: compared.ratio for compared in kept.comparisons}
    for compared in new.comparisons:
        if compared.peer in before:
            least = LEAST_SHARE * before[compared.peer].low
            if compared.ratio.median < least:
                found = f"{compared.ratio.median:.3g} times as {compared.unit.better} as {compared.peer}"
                yield f"{found}, at least {least:.3g} is kept"
    if kept.calls and new.calls and new.calls > MOST_CALLS * kept.calls:
        yield f"{new.calls:,} calls, at most {MOST_CALLS * kept.calls:,.0f} are kept"
