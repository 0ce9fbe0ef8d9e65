"""Seed 002's daily routing log as text, byte for byte (rulings A9, A31). Writing it is the business of its one writer.

A prompt cannot forge an entry: its newlines, quotation marks and control characters are escaped, and so is what a
trigger shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from routing.router import Mode, Route
from routing.triggers import Confidence, confidence_of

MESSAGE_LIMIT = 50
"""Characters of a message that an entry shows; a longer one ends in `...` (R-073)."""

_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\"\\]")
_LIST_UNSAFE = re.compile(r"[\[\],]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}


def file_name(moment: datetime) -> str:
    """Return the name of the log file that a decision of this moment belongs to (R-068)."""
    return f"{moment:%Y-%m-%d}.md"


def format_entry(
    message: str, route: Route, *, moment: datetime, redact: Callable[[str], str] = lambda text: text
) -> str:
    """Return one entry with its closing blank line.

    Args:
        message: the prompt as it was sent.
        route: the decision about it.
        moment: when it was decided, in the time zone of the log.
        redact: removes secrets from the whole message before it is cut (A31).
    """
    shown = redact(message)
    cut = shown[:MESSAGE_LIMIT] + "..." if len(shown) > MESSAGE_LIMIT else shown
    triggers = ", ".join(_LIST_UNSAFE.sub("_", _escape(redact(trigger.shown))) for trigger in route.triggers)
    lines = [
        f'{moment:%H:%M} ROUTE "{_escape(cut)}" → {route.mode.value}',
        f"  Triggers: [{triggers}]",
        f"  {_basis(route)}",
        f"  Routed to: {route.target.value}",
    ]
    return "\n".join(lines) + "\n\n"


def _basis(route: Route) -> str:
    if route.mode is Mode.ANSWER:
        return f"Pattern: {route.pattern}"
    count = len(route.triggers)
    confidence = confidence_of(count) if count else Confidence.NONE if route.trivial else route.confidence
    return f"Confidence: {confidence.value} ({count} trigger{'' if count == 1 else 's'})"


def _escape(text: str) -> str:
    return _UNSAFE.sub(lambda found: _SHORT.get(found.group()) or f"\\u{ord(found.group()):04x}", text)
