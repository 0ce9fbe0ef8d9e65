"""JavaScript's semantics of values and paths, and the scope of an expression.

json-render is defined by its own evaluator: `true` is not 1, an empty list is true, and 1.0 prints as 1. By Python's
rules, an expression would show another text or hide another section than in any other client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any, Final, NamedTuple

from sites.errors import refuse

_SPACE: Final = "\t\n\v\f\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_INTEGER: Final = re.compile(f"[{_SPACE}]*([+-]?[0-9]+)")
_BLANK_ENDS: Final = re.compile(rf"\A[{_SPACE}]+|[{_SPACE}]+\Z")
_MAX_INDEX_CHARS: Final = 15
"""The most digits of a list index; more are beyond any list."""


class _Missing(Enum):
    MISSING = "undefined"


MISSING: Final = _Missing.MISSING
"""JavaScript's undefined: the value of a path that leads nowhere."""


def parse_int(text: str) -> int | None:
    """Return `parseInt(text, 10)`; None for NaN."""
    match = _INTEGER.match(text)
    if match is None:
        return None
    return int(match[1]) if len(match[1]) <= _MAX_INDEX_CHARS else 10**_MAX_INDEX_CHARS


def trim(text: str) -> str:
    """Return `text.trim()`."""
    return _BLANK_ENDS.sub("", text)


def is_truthy(value: Any) -> bool:
    """Return `Boolean(value)`: empty objects and lists are true."""
    return value is not MISSING and (isinstance(value, dict | list) or bool(value))


def is_number(value: Any) -> bool:
    """Whether `typeof value` is "number"; true and false are not numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_same(left: Any, right: Any) -> bool:
    """Return `left === right`: true is not 1, and two equal lists are not identical."""
    if isinstance(left, bool | dict | list) or isinstance(right, bool | dict | list):
        return left is right
    return bool(left == right)


def is_equal(left: Any, right: Any) -> bool:
    """Return upstream's `deepEqual`, for which `{"0": x}` equals `[x]` but not the reverse."""
    if isinstance(left, list):
        return (
            isinstance(right, list)
            and len(left) == len(right)
            and all(is_equal(one, other) for one, other in zip(left, right, strict=True))
        )
    if isinstance(left, Mapping) and isinstance(right, Mapping | list):
        fields = {str(index): item for index, item in enumerate(right)} if isinstance(right, list) else right
        return len(left) == len(fields) and all(is_equal(item, fields.get(key, MISSING)) for key, item in left.items())
    return is_same(left, right)


def text_of(value: Any) -> str:
    """Return `String(value)`, but empty for null and undefined, which templates leave out."""
    if value is MISSING or value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _number_text(value)
    if isinstance(value, list):
        return ",".join(text_of(item) for item in value)
    return "[object Object]" if isinstance(value, Mapping) else str(value)


def _number_text(value: float) -> str:
    """Format a float as ECMA-262's `Number::toString`: exponents only below 1e-6 and from 1e21."""
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    if text == "0":
        return "0"
    point = len(text) + exponent
    if len(text) <= point <= 21:
        shown = text + "0" * (point - len(text))
    elif 0 < point <= 21:
        shown = f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        shown = f"0.{'0' * -point}{text}"
    else:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        shown = f"{text[0]}{fraction}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return "-" * sign + shown


def segments_of(path: str) -> list[str]:
    """Return the keys and indexes of a path, unescaped (RFC 6901)."""
    return [segment.replace("~1", "/").replace("~0", "~") for segment in path.removeprefix("/").split("/")]


def look_up(value: Any, path: str) -> Any:
    """Return the value at a path, or `MISSING`; an empty path or a lone slash means the whole value."""
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


MAX_PATH_CHARS: Final = 400
MAX_RESOLVED_UNITS: Final = 4 * 1024 * 1024
"""The work allowed to a site's expressions: a unit per character, more per value, condition and element.

A site at all of its other limits needs less than half of it unless it repeats elements."""
UNITS_A_VALUE: Final = 8


class Allowance:
    """The remaining work of a site's expressions, limited because repeats multiply it."""

    def __init__(self, units: int = MAX_RESOLVED_UNITS) -> None:
        self._left = units

    def spend(self, units: int) -> None:
        """Spend units before doing work.

        Raises:
            SpecError: none are left (the spec's fault).
        """
        self._left -= units
        if self._left < 0:
            raise refuse("too_large", "", "expressions and repeats make more than a site may hold; use less of them")

    def spend_on(self, value: Any) -> None:
        """Spend units for passing on a whole value."""
        stack = [value]
        while stack:
            item = stack.pop()
            self.spend(UNITS_A_VALUE + (len(item) if isinstance(item, str) else 0))
            if isinstance(item, Mapping):
                stack.extend(item.values())
            elif isinstance(item, list):
                stack.extend(item)


@dataclass(frozen=True)
class Scope:
    """The scope of the expressions at one place."""

    state: Mapping[str, Any] = field(default_factory=dict)
    item: Any = MISSING
    index: int | None = None
    item_path: str | None = None
    """The item's path in the state; None outside of a repeat."""
    allowance: Allowance = field(default_factory=Allowance, compare=False, repr=False)


class Complaint(NamedTuple):
    """An expression that breaks a rule."""

    code: str
    message: str


def value_of(source: Mapping[str, Any], scope: Scope) -> Any:
    """Return the value of a source ($state, $item, $index or a binding to one of them), or `MISSING`."""
    if "$index" in source:
        return MISSING if scope.index is None else scope.index
    if "$item" in source:
        return look_up(scope.item, source["$item"])
    if "$bindItem" in source:
        return _bound_item(source["$bindItem"], scope)
    return look_up(scope.state, source["$state"] if "$state" in source else source["$bindState"])


def _bound_item(path: str, scope: Scope) -> Any:
    """Resolve a two-way binding, by the item's path in the state and not by the item."""
    if scope.item_path is None:
        return MISSING
    return look_up(scope.state, scope.item_path if path == "" else f"{scope.item_path}/{path}")
