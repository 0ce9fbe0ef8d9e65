"""Somebody else's words, made so that no forge or tracker acts on them. They read the same."""

from __future__ import annotations

import re

from routing.ticket import visible

_ACTIVE = re.compile(r"(?<![\w`])@(?=\w)|!(?=\[)|<(?=[a-zA-Z/!?])|(?<=\w)#(?=\d)|(?<![\w&])#(?=\d)")
"""A mention, a picture, markup, and the number of another ticket."""


def inert(text: str) -> str:
    """Return text in which nothing names people, loads pictures, closes tickets or is markup."""
    return _ACTIVE.sub(lambda found: f"{found.group()}\u2060" if found.group() != "<" else "&lt;", visible(text))
