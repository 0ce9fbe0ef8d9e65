"""What strangers, models and agents wrote, as people may be shown it: on a terminal, and in a diff to be approved."""

from __future__ import annotations

import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""All but tab and newline, and what changes the direction of text: one would read other code than runs."""


def harmless(text: str) -> str:
    """Return text of the same length without characters that control how it is shown."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
