"""What JavaScript makes of JSON values where Python makes something else.

json-render is defined by what its own evaluator does. `true` is not 1 there, an empty list is true, and 1.0 prints as
1. Read by Python's rules, an expression would show another text, or hide another section, than in any other client.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

_SPACE: Final = "\t\n\v\f\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_INTEGER: Final = re.compile(f"[{_SPACE}]*([+-]?[0-9]+)")
_BLANK_ENDS: Final = re.compile(rf"\A[{_SPACE}]+|[{_SPACE}]+\Z")
_MAX_INDEX_CHARS: Final = 15
"""Digits of a list index that are read: more lead beyond every list."""


class _Missing:
    """The type of `MISSING`."""

    def __repr__(self) -> str:
        return "MISSING"

    def __copy__(self) -> _Missing:
        return self

    def __deepcopy__(self, memo: object) -> _Missing:
        return self


MISSING: Final = _Missing()
"""What JavaScript calls undefined: a path that leads nowhere."""


def parse_int(text: str) -> int | None:
    """Return what `parseInt(text, 10)` does: the whole number that a text starts with; None for NaN."""
    match = _INTEGER.match(text)
    if match is None:
        return None
    return int(match[1]) if len(match[1]) <= _MAX_INDEX_CHARS else 10**_MAX_INDEX_CHARS


def trim(text: str) -> str:
    """Return what `text.trim()` does."""
    return _BLANK_ENDS.sub("", text)


def is_truthy(value: Any) -> bool:
    """Whether `Boolean(value)` holds: empty objects and lists count as true."""
    return value is not MISSING and (isinstance(value, dict | list) or bool(value))


def is_number(value: Any) -> bool:
    """Whether `typeof value` is "number": true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_same(left: Any, right: Any) -> bool:
    """Whether `left === right` holds: true is not 1, and two equal lists are two things."""
    if isinstance(left, bool | dict | list) or isinstance(right, bool | dict | list):
        return left is right
    return bool(left == right)


def is_equal(left: Any, right: Any) -> bool:
    """Whether upstream's `deepEqual` holds, which takes `{"0": x}` for equal to `[x]` but not the reverse."""
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
    """Return what `String(value)` does; null and undefined, which templates leave out, are empty."""
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
    """Print a float by the rule of ECMA-262, "Number::toString": exponents only below 1e-6 and from 1e21."""
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
