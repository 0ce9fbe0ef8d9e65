"""json-render's expressions and conditions, read once at build time.

A static page has one state: the one written in the spec. So `$state`, `$item`, `$index`, `$cond` and `$template` have
one value each, and a two-way binding (`$bindState`, `$bindItem`) shows that value and writes nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

_EXPRESSIONS: Final = {
    "$state": frozenset({"$state"}),
    "$item": frozenset({"$item"}),
    "$index": frozenset({"$index"}),
    "$bindState": frozenset({"$bindState"}),
    "$bindItem": frozenset({"$bindItem"}),
    "$cond": frozenset({"$cond", "$then", "$else"}),
    "$template": frozenset({"$template"}),
}
_SOURCES: Final = frozenset({"$state", "$item", "$index"})
_ORDERINGS: Final = frozenset({"gt", "gte", "lt", "lte"})
_OPERATORS: Final = ("eq", "neq", "gt", "gte", "lt", "lte")
_REFERENCE: Final = re.compile(r"\$\{([^}]{1,200})\}")


class _Missing:
    """The type of `MISSING`."""


MISSING: Final = _Missing()
"""What JavaScript calls undefined: a path that leads nowhere."""


@dataclass(frozen=True)
class Scope:
    """What expressions of one place can see."""

    state: Mapping[str, Any] = field(default_factory=dict)
    item: Any = MISSING
    index: int | None = None


class Complaint(NamedTuple):
    """An expression that breaks a rule."""

    code: str
    message: str


def look_up(value: Any, path: str) -> Any:
    """Return what a JSON pointer (its first slash is optional) leads to, or `MISSING`."""
    if path in ("", "/"):
        return value
    for raw in path.removeprefix("/").split("/"):
        segment = raw.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and segment.isascii() and segment.isdigit() and len(segment) < 9:
            value = value[int(segment)] if int(segment) < len(value) else MISSING
        elif isinstance(value, Mapping):
            value = value.get(segment, MISSING)
        else:
            return MISSING
    return value


def is_expression(value: object) -> bool:
    """Whether an object stands for a value instead of being one."""
    return isinstance(value, Mapping) and any(isinstance(key, str) and key.startswith("$") for key in value)


def resolve(value: Any, scope: Scope) -> Any:
    """Return a prop value with every expression in it replaced by what it stands for.

    Call it with expressions that `complaint_about` has no complaint about.
    """
    if isinstance(value, list):
        resolved = [resolve(item, scope) for item in value]
        return [None if item is MISSING else item for item in resolved]
    if not isinstance(value, Mapping):
        return value
    if is_expression(value):
        return _resolve_expression(value, scope)
    pairs = {key: resolve(item, scope) for key, item in value.items()}
    return {key: item for key, item in pairs.items() if item is not MISSING}


def is_visible(condition: Any, scope: Scope) -> bool:
    """Evaluate a `visible` condition that `complaint_about_condition` has no complaint about."""
    if isinstance(condition, bool):
        return condition
    if isinstance(condition, list):
        return all(is_visible(part, scope) for part in condition)
    if "$and" in condition:
        return all(is_visible(part, scope) for part in condition["$and"])
    if "$or" in condition:
        return any(is_visible(part, scope) for part in condition["$or"])
    result = _compare(condition, scope)
    return not result if condition.get("not") is True else result


def uses_item(condition: Any) -> bool:
    """Whether a condition asks about the item of a repeat; such a condition filters items (upstream's rule)."""
    if isinstance(condition, list):
        return any(uses_item(part) for part in condition)
    if not isinstance(condition, Mapping):
        return False
    return (
        "$item" in condition
        or "$index" in condition
        or any(uses_item(part) for part in (*condition.get("$and", ()), *condition.get("$or", ())))
    )


def complaint_about(value: Any) -> Complaint | None:
    """Return what is wrong with the expressions inside a prop value, or None."""
    if isinstance(value, list):
        return next((found for item in value if (found := complaint_about(item))), None)
    if not isinstance(value, Mapping):
        return None
    if is_expression(value) and (found := _complaint_about_expression(value)):
        return found
    children = (item for key, item in value.items() if key != "$cond")
    return next((found for item in children if (found := complaint_about(item))), None)


def complaint_about_condition(condition: Any) -> Complaint | None:
    """Return what is wrong with a `visible` condition, or None."""
    if isinstance(condition, bool):
        return None
    if isinstance(condition, list):
        return next((_INVALID_VISIBLE for part in condition if not _is_single_condition(part)), None)
    if isinstance(condition, Mapping) and set(condition) in ({"$and"}, {"$or"}):
        parts = next(iter(condition.values()))
        if not isinstance(parts, list):
            return _INVALID_VISIBLE
        return next((found for part in parts if (found := complaint_about_condition(part))), None)
    return None if _is_single_condition(condition) else _INVALID_VISIBLE


_INVALID_VISIBLE: Final = Complaint(
    "invalid_visible",
    'a condition is true, false, {"$state": "/path", "eq": value}, {"$item": ...}, {"$index": true, ...}, '
    "a list of those, "
    'or {"$and": [...]} / {"$or": [...]}',
)


def _complaint_about_expression(value: Mapping[str, Any]) -> Complaint | None:
    if "$computed" in value:
        return Complaint("unknown_function", "no function is registered for $computed in a static page")
    kind = next((key for key in _EXPRESSIONS if key in value), None)
    if kind is None or set(value) != _EXPRESSIONS[kind]:
        return Complaint("bad_expression", "an object with a $ key must be exactly one json-render expression")
    if kind == "$cond":
        return complaint_about_condition(value["$cond"])
    wanted = value[kind] is True if kind == "$index" else isinstance(value[kind], str)
    return None if wanted else Complaint("bad_expression", f"{kind} holds {'true' if kind == '$index' else 'a path'}")


def _is_single_condition(condition: Any) -> bool:
    if not isinstance(condition, Mapping):
        return False
    sources = _SOURCES & set(condition)
    if len(sources) != 1 or set(condition) - sources - {*_OPERATORS, "not"}:
        return False
    source = next(iter(sources))
    if not (condition[source] is True if source == "$index" else isinstance(condition[source], str)):
        return False
    if condition.get("not", True) is not True:
        return False
    return all(_is_number_or_state(condition[operator]) for operator in _ORDERINGS & set(condition))


def _is_number_or_state(value: Any) -> bool:
    if isinstance(value, Mapping):
        return isinstance(value.get("$state"), str)
    return isinstance(value, int | float) and not isinstance(value, bool)


def _resolve_expression(value: Mapping[str, Any], scope: Scope) -> Any:
    if "$cond" in value:
        return resolve(value["$then"] if is_visible(value["$cond"], scope) else value["$else"], scope)
    if "$template" in value:
        return _REFERENCE.sub(lambda match: _interpolate(match[1], scope), value["$template"])
    for source, bound in (("$state", "$bindState"), ("$item", "$bindItem")):
        if source in value or bound in value:
            return _source_of({source: value.get(source, value.get(bound))}, scope)
    return _source_of(value, scope)


def _source_of(value: Mapping[str, Any], scope: Scope) -> Any:
    if "$index" in value:
        return MISSING if scope.index is None else scope.index
    if "$item" in value:
        return look_up(scope.item, value["$item"])
    return look_up(scope.state, value["$state"])


def _interpolate(path: str, scope: Scope) -> str:
    found = MISSING if path.startswith("/") else look_up(scope.item, path)
    if found is MISSING or found is None:
        found = look_up(scope.state, path)
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, float) and found.is_integer():
        return str(int(found))
    return str(found) if isinstance(found, str | int | float) else ""


def _compare(condition: Mapping[str, Any], scope: Scope) -> bool:
    value = _source_of(condition, scope)
    operator = next((name for name in _OPERATORS if name in condition), None)
    if operator is None:
        return _is_truthy(value)
    other = condition[operator]
    if isinstance(other, Mapping) and isinstance(other.get("$state"), str):
        other = look_up(scope.state, other["$state"])
    if operator in ("eq", "neq"):
        return _is_same(value, other) == (operator == "eq")
    if not (_is_number_or_state(value) and _is_number_or_state(other)):
        return False
    return bool({"gt": value > other, "gte": value >= other, "lt": value < other, "lte": value <= other}[operator])


def _is_truthy(value: Any) -> bool:
    return value is not MISSING and (isinstance(value, dict | list) or bool(value))


def _is_same(left: Any, right: Any) -> bool:
    """Compare as JavaScript's `===` does: true is not 1, and two equal lists are two things."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return not isinstance(left, dict | list) and left == right
