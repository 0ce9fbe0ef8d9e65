"""YAML from outside, read so that every complaint about it can name a line.

The document is bounded before anything is built from it: size, depth, number of values. Aliases and tags are refused,
and so is a key that stands twice, which YAML itself would silently let win.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from routing.errors import YamlRefusedError

MAX_BYTES = 65_536
_MAX_DEPTH = 20
_BYTES_PER_VALUE = 8
"""A document may hold one value for so many bytes that it may have."""

Place = tuple[str | int, ...]
"""Where a value stands: keys and indices from the top."""


@dataclass(frozen=True)
class LocatedDocument:
    """A document's value, and the line on which each part of it begins."""

    value: Any
    _lines: Mapping[Place, int]

    def line_of(self, place: Sequence[str | int]) -> int:
        """Return the line of a place; for one that is not there, that of the nearest place around it."""
        at = tuple(place)
        while at and at not in self._lines:
            at = at[:-1]
        return self._lines.get(at, 1)


def read_located(text: str, *, max_bytes: int = MAX_BYTES) -> LocatedDocument:
    """Read one YAML document.

    Args:
        text: the document.
        max_bytes: its size, at most.

    Raises:
        YamlRefusedError: its author's fault.
    """
    if len(text.encode("utf-8", "replace")) > max_bytes:
        raise YamlRefusedError(0, f"has more than {max_bytes} bytes")
    try:
        _check_events(text, most=max_bytes // _BYTES_PER_VALUE)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlRefusedError(mark.line + 1 if mark else 0, error.problem or "is no YAML") from None
    except yaml.YAMLError:
        raise YamlRefusedError(0, "is no YAML text: it holds characters that YAML does not allow") from None
    if node is None:
        raise YamlRefusedError(0, "is empty")
    lines: dict[Place, int] = {}
    return LocatedDocument(_value(node, (), lines), lines)


def _check_events(text: str, *, most: int) -> None:
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if rule := _broken_rule(event, depth=depth, is_over=number > most):
            raise YamlRefusedError(event.start_mark.line + 1 if event.start_mark else 0, rule)


def _broken_rule(event: yaml.Event, *, depth: int, is_over: bool) -> str | None:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        return "anchors and aliases are not taken"
    if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None) is not None:
        return "tags are not taken"
    if depth > _MAX_DEPTH:
        return f"is nested deeper than {_MAX_DEPTH} levels"
    return "has too many values" if is_over else None


def _value(node: yaml.Node, place: Place, lines: dict[Place, int]) -> Any:
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, place, lines)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*place, index), lines) for index, item in enumerate(node.value)]
    return _scalar(node)


def _mapping(node: yaml.MappingNode, place: Place, lines: dict[Place, int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise YamlRefusedError(line, "a key must be a word")
        key = str(key_node.value)
        if key in found:
            raise YamlRefusedError(line, "the same key stands twice")
        lines[(*place, key)] = line
        found[key] = _value(value_node, (*place, key), lines)
    return found


def _scalar(node: yaml.Node) -> Any:
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (ValueError, yaml.YAMLError, OverflowError):
        raise YamlRefusedError(node.start_mark.line + 1, "is no value that can be read") from None
