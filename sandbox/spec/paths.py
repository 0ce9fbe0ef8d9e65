"""Paths into a state, as json-render reads them: JSON pointers whose first slash may be left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandbox.spec.javascript import MISSING, parse_int


def segments_of(path: str) -> list[str]:
    """Return the keys and indexes of a path, unescaped (RFC 6901)."""
    return [segment.replace("~1", "/").replace("~0", "~") for segment in path.removeprefix("/").split("/")]


def look_up(value: Any, path: str) -> Any:
    """Return what a path leads to, or `MISSING`; an empty path and a lone slash lead to the value itself."""
    if path in ("", "/"):
        return value
    for segment in segments_of(path):
        if isinstance(value, list):
            index = parse_int(segment)
            value = value[index] if index is not None and 0 <= index < len(value) else MISSING
        elif isinstance(value, Mapping):
            value = value.get(segment, MISSING)
        else:
            return MISSING
    return value


def join_paths(base: str, below: str) -> str:
    """Return the path of something below a base path."""
    rest = below.removeprefix("/")
    return f"/{rest}" if base in ("", "/") else f"{base}/{rest}"


def repeat_path(source: str | Mapping[str, str], base: str | None) -> str | None:
    """Return the absolute path of a repeat's list.

    Args:
        source: `statePath` as written: a path, or `{"$item": path}` below the item of the repeat around it.
        base: path of that item; None outside of a repeat, where a relative source leads nowhere.
    """
    if isinstance(source, str):
        return source
    if base is None:
        return None
    return base if source["$item"] in ("", "/") else join_paths(base, source["$item"])
