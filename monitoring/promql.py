"""PromQL over what exporters serve: each shows the whole ledger, so what two of them serve is there twice."""

from __future__ import annotations

import re

_SERIES = r"\bpointsman_[a-z_]+(?:\{[^}]*\})?"
_READ = re.compile(rf"\b\w+\({_SERIES}\[[^\]]*\](?: offset \w+)?\)|{_SERIES}(?: offset \w+)?")
"""A series that is read as it is, or a function over a window of it."""


def once(expression: str) -> str:
    """Return an expression that counts every series once, however many exporters of an installation are scraped."""
    return _READ.sub(lambda read: f"max without (instance, pod) ({read[0]})", expression)
