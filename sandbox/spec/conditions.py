"""json-render's conditions: the forms that `visible` and `$cond` take, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sandbox.spec.javascript import is_number, is_same, is_truthy
from sandbox.spec.paths import look_up
from sandbox.spec.scope import MAX_PATH_CHARS, UNITS_A_VALUE, Complaint, Scope, value_of

_SOURCES: Final = frozenset({"$state", "$item", "$index"})
_ORDERINGS: Final = frozenset({"gt", "gte", "lt", "lte"})
_OPERATORS: Final = ("eq", "neq", "gt", "gte", "lt", "lte")
INVALID_VISIBLE: Final = Complaint(
    "invalid_visible",
    'a condition is true, false, {"$state": "/path", "eq": value}, {"$item": ...}, {"$index": true, ...}, '
    'a list of those, or {"$and": [...]} / {"$or": [...]}; {"path": ...}, "and", "or" and "auth" are of an older '
    "json-render",
)


def is_visible(condition: Any, scope: Scope) -> bool:
    """Evaluate a `visible` condition that `complaint_about_condition` has no complaint about.

    Raises:
        SpecError: the scope's allowance is used up.
    """
    scope.allowance.spend(UNITS_A_VALUE)
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


class RepeatCondition(NamedTuple):
    """The condition of an element that repeats, taken apart."""

    container: Any
    """Whether the element itself is shown."""
    item: Any
    """Which items it shows."""


def split_repeat_condition(condition: Any) -> RepeatCondition:
    """Take the parts that ask about an item out of the condition of an outermost repeat: they filter its items."""
    if not _asks_about_item(condition):
        return RepeatCondition(condition, True)
    parts = condition if isinstance(condition, list) else condition.get("$and")
    if parts is None:
        return RepeatCondition(True, condition)
    return RepeatCondition(
        {"$and": [part for part in parts if not _asks_about_item(part)]},
        {"$and": [part for part in parts if _asks_about_item(part)]},
    )


def complaint_about_condition(condition: Any) -> Complaint | None:
    """Return what upstream finds wrong with a `visible` condition, or None."""
    if isinstance(condition, bool):
        return None
    if isinstance(condition, list):
        return next((INVALID_VISIBLE for part in condition if not _is_single_condition(part)), None)
    if isinstance(condition, Mapping) and set(condition) in ({"$and"}, {"$or"}):
        parts = next(iter(condition.values()))
        if not isinstance(parts, list):
            return INVALID_VISIBLE
        return next((found for part in parts if (found := complaint_about_condition(part))), None)
    return None if _is_single_condition(condition) else INVALID_VISIBLE


def has_long_path(condition: Any) -> bool:
    """Whether a condition holds a path of more than `MAX_PATH_CHARS`."""
    if isinstance(condition, list):
        return any(has_long_path(part) for part in condition)
    if not isinstance(condition, Mapping):
        return False
    return any(
        (key in _SOURCES and isinstance(item, str) and len(item) > MAX_PATH_CHARS) or has_long_path(item)
        for key, item in condition.items()
    )


def _asks_about_item(condition: Any) -> bool:
    if isinstance(condition, list):
        return any(_asks_about_item(part) for part in condition)
    if not isinstance(condition, Mapping):
        return False
    parts = (*condition.get("$and", ()), *condition.get("$or", ()))
    return "$item" in condition or "$index" in condition or any(_asks_about_item(part) for part in parts)


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
    return is_number(value) or (isinstance(value, Mapping) and isinstance(value.get("$state"), str))


def _compare(condition: Mapping[str, Any], scope: Scope) -> bool:
    value = value_of(condition, scope)
    operator = next((name for name in _OPERATORS if name in condition), None)
    if operator is None:
        return is_truthy(value)
    other = condition[operator]
    if isinstance(other, Mapping) and isinstance(other.get("$state"), str):
        other = look_up(scope.state, other["$state"])
    if operator in ("eq", "neq"):
        return is_same(value, other) == (operator == "eq")
    if not (is_number(value) and is_number(other)):
        return False
    return bool({"gt": value > other, "gte": value >= other, "lt": value < other, "lte": value <= other}[operator])
