"""The blocks that a reply is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Text:
    """A block of text."""

    text: str


@dataclass(frozen=True)
class ToolUse:
    """The use of a tool."""

    name: str
    input: dict[str, Any]


Block = Text | ToolUse
