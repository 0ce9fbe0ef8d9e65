"""Each exporter serves the whole ledger: an expression must read every series as one, however many are scraped."""

from __future__ import annotations

import re

_SERIES = r"\bpointsman_[a-z_]+(?:\{[^}]*\})?"
_READ = re.compile(rf"(?:\b\w+\()?{_SERIES}(?:\[[^\]]*\])?")
_ONCE = "max without (instance, pod) ("


def reads_each_series_once(expression: str) -> bool:
    """Whether every series, or a function over a window of it, is the operand of `max without (instance, pod)`."""
    return all(
        expression[: match.start()].endswith(_ONCE) and (match[0].endswith("]") or not re.match(r"\w+\(", match[0]))
        for match in _READ.finditer(expression)
    )
