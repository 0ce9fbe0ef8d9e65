"""json-render's expressions and conditions, read once at build time.

A static page has one state: the one written in the spec. So `$state`, `$item`, `$index`, `$cond` and `$template` have
one value each, and a two-way binding (`$bindState`, `$bindItem`) shows that value and writes nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sandbox.spec.errors import refuse
from sandbox.spec.javascript import MISSING, is_number, is_same, is_truthy, text_of
from sandbox.spec.paths import look_up

MAX_RESOLVED_UNITS: Final = 4 * 1024 * 1024
"""What the expressions of a site may make: a unit for a character, more for a value, a condition and an element.

A site at all of its other caps needs less than half of it as long as it repeats nothing."""
MAX_PATH_CHARS: Final = 400
_UNITS_A_VALUE: Final = 8

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


@dataclass(frozen=True)
class Scope:
    """What expressions of one place can see."""

    state: Mapping[str, Any] = field(default_factory=dict)
    item: Any = MISSING
    index: int | None = None
    item_path: str | None = None
    """Path of the item in the state; None outside of a repeat."""
    allowance: Allowance = field(default_factory=lambda: Allowance(), compare=False, repr=False)


class Allowance:
    """How much the expressions of a site may still make. Repeats multiply what a template makes: it needs an end."""

    def __init__(self, units: int = MAX_RESOLVED_UNITS) -> None:
        self._left = units

    def spend(self, units: int) -> None:
        """Take units for work that is about to be done.

        Raises:
            SpecError: none are left; the spec's writer is at fault.
        """
        self._left -= units
        if self._left < 0:
            raise refuse("too_large", "", "expressions and repeats make more than a site may hold; use less of them")

    def spend_on(self, value: Any) -> None:
        """Take units for handing on a whole value."""
        stack = [value]
        while stack:
            item = stack.pop()
            self.spend(_UNITS_A_VALUE + (len(item) if isinstance(item, str) else 0))
            if isinstance(item, Mapping):
                stack.extend(item.values())
            elif isinstance(item, list):
                stack.extend(item)


class Complaint(NamedTuple):
    """An expression that breaks a rule."""

    code: str
    message: str


def is_expression(value: object) -> bool:
    """Whether an object stands for a value instead of being one."""
    return isinstance(value, Mapping) and any(isinstance(key, str) and key.startswith("$") for key in value)


def resolve(value: Any, scope: Scope) -> Any:
    """Return a prop value with every expression in it replaced by what it stands for.

    Call it with expressions that `complaint_about` has no complaint about.

    Raises:
        SpecError: it makes more than the scope's allowance holds.
    """
    scope.allowance.spend(_UNITS_A_VALUE + (len(value) if isinstance(value, str) else 0))
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
    """Evaluate a `visible` condition that `complaint_about_condition` has no complaint about.

    Raises:
        SpecError: the scope's allowance is used up.
    """
    scope.allowance.spend(_UNITS_A_VALUE)
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


INVALID_VISIBLE: Final = Complaint(
    "invalid_visible",
    'a condition is true, false, {"$state": "/path", "eq": value}, {"$item": ...}, {"$index": true, ...}, '
    'a list of those, or {"$and": [...]} / {"$or": [...]}; {"path": ...}, "and", "or" and "auth" are of an older '
    "json-render",
)
_LONG_PATH: Final = Complaint("bad_expression", f"a path has at most {MAX_PATH_CHARS} characters")


def _asks_about_item(condition: Any) -> bool:
    if isinstance(condition, list):
        return any(_asks_about_item(part) for part in condition)
    if not isinstance(condition, Mapping):
        return False
    parts = (*condition.get("$and", ()), *condition.get("$or", ()))
    return "$item" in condition or "$index" in condition or any(_asks_about_item(part) for part in parts)


def _complaint_about_expression(value: Mapping[str, Any]) -> Complaint | None:
    if "$computed" in value:
        return Complaint("unknown_function", "no function is registered for $computed in a static page")
    kind = next((key for key in _EXPRESSIONS if key in value), None)
    if kind is None or set(value) != _EXPRESSIONS[kind]:
        return Complaint("bad_expression", "an object with a $ key must be exactly one json-render expression")
    if kind == "$cond":
        found = complaint_about_condition(value["$cond"])
        return Complaint("bad_expression", f"in $cond {found.message}") if found else None
    if kind == "$index":
        return None if value[kind] is True else Complaint("bad_expression", "$index holds true")
    if not isinstance(value[kind], str):
        return Complaint("bad_expression", f"{kind} holds a {'text' if kind == '$template' else 'path'}")
    return _LONG_PATH if kind != "$template" and len(value[kind]) > MAX_PATH_CHARS else None


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


def _resolve_expression(value: Mapping[str, Any], scope: Scope) -> Any:
    if "$cond" in value:
        return resolve(value["$then"] if is_visible(value["$cond"], scope) else value["$else"], scope)
    if "$template" in value:
        return "".join(_pieces(value["$template"], scope))
    found = _value_of(value, scope)
    scope.allowance.spend_on(found)
    return found


def _value_of(value: Mapping[str, Any], scope: Scope) -> Any:
    if "$index" in value:
        return MISSING if scope.index is None else scope.index
    if "$item" in value:
        return look_up(scope.item, value["$item"])
    if "$bindItem" in value:
        return _bound_item(value["$bindItem"], scope)
    return look_up(scope.state, value["$state"] if "$state" in value else value["$bindState"])


def _bound_item(path: str, scope: Scope) -> Any:
    """Follow a two-way binding, which goes through the item's path in the state and not through the item."""
    if scope.item_path is None:
        return MISSING
    return look_up(scope.state, scope.item_path if path == "" else f"{scope.item_path}/{path}")


def _pieces(template: str, scope: Scope) -> Iterator[str]:
    """Yield a template's text with each `${path}` replaced; an opening without an end is plain text."""
    scope.allowance.spend(len(template))
    position = 0
    while (start := template.find("${", position)) >= 0:
        end = template.find("}", start + 2)
        if end < 0:
            break
        yield template[position:start]
        if end == start + 2:
            yield "${}"
        else:
            yield _interpolate(template[start + 2 : end], scope)
        position = end + 1
    yield template[position:]


def _interpolate(path: str, scope: Scope) -> str:
    found = MISSING if path.startswith("/") else look_up(scope.item, path)
    if found is MISSING or found is None:
        found = look_up(scope.state, path if path.startswith("/") else f"/{path}")
    scope.allowance.spend_on(found)
    return text_of(found)


def _compare(condition: Mapping[str, Any], scope: Scope) -> bool:
    value = _value_of(condition, scope)
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
