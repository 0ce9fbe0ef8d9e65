"""json-render's expressions, read once at build time.

A static page has one state: the one written in the spec. So `$state`, `$item`, `$index`, `$cond` and `$template` have
one value each, and a two-way binding (`$bindState`, `$bindItem`) shows that value and writes nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sandbox.spec.conditions import complaint_about_condition, is_visible
from sandbox.spec.javascript import MISSING, text_of
from sandbox.spec.paths import look_up
from sandbox.spec.scope import MAX_PATH_CHARS, UNITS_A_VALUE, Complaint, Scope, value_of

_EXPRESSIONS: Final = {
    "$state": frozenset({"$state"}),
    "$item": frozenset({"$item"}),
    "$index": frozenset({"$index"}),
    "$bindState": frozenset({"$bindState"}),
    "$bindItem": frozenset({"$bindItem"}),
    "$cond": frozenset({"$cond", "$then", "$else"}),
    "$template": frozenset({"$template"}),
}
_KINDS: Final = frozenset(_EXPRESSIONS)
_HOLDERS: Final = (dict, list)
_LONG_PATH: Final = Complaint("bad_expression", f"a path has at most {MAX_PATH_CHARS} characters")


def is_expression(value: object) -> bool:
    """Whether an object stands for a value instead of being one."""
    return isinstance(value, Mapping) and any(isinstance(key, str) and key.startswith("$") for key in value)


def resolve(value: Any, scope: Scope) -> Any:
    """Return a prop value with every expression in it replaced by what it stands for.

    Call it with expressions that `complaint_about` has no complaint about.

    Raises:
        SpecError: it makes more than the scope's allowance holds.
    """
    units = _units_of_static(value)
    if units is None:
        return _resolve_parts(value, scope)
    scope.allowance.spend(units)
    return value


def _units_of_static(value: Any) -> int | None:
    """Return what it takes to hand on a value that stands for nothing else; None for one with an expression in it."""
    units, items = 0, [value]
    for item in items:
        units += UNITS_A_VALUE
        if isinstance(item, str):
            units += len(item)
        elif isinstance(item, dict):
            if not _KINDS.isdisjoint(item):
                return None
            items += item.values()
        elif isinstance(item, list):
            items += item
    return units


def _resolve_parts(value: Any, scope: Scope) -> Any:
    scope.allowance.spend(UNITS_A_VALUE + (len(value) if isinstance(value, str) else 0))
    if isinstance(value, list):
        resolved = [_resolve_parts(item, scope) for item in value]
        return [None if item is MISSING else item for item in resolved]
    if not isinstance(value, dict):
        return value
    if not _KINDS.isdisjoint(value):
        return _resolve_expression(value, scope)
    pairs = {key: _resolve_parts(item, scope) for key, item in value.items()}
    return {key: item for key, item in pairs.items() if item is not MISSING}


def complaint_about(value: Any) -> Complaint | None:
    """Return what is wrong with the expressions inside a prop value, or None."""
    if isinstance(value, dict):
        if is_expression(value) and (found := _complaint_about_expression(value)):
            return found
        held = [item for key, item in value.items() if key != "$cond"]
    else:
        held = value if isinstance(value, list) else []
    for item in held:
        if isinstance(item, _HOLDERS) and (found := complaint_about(item)):
            return found
    return None


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


def _resolve_expression(value: Mapping[str, Any], scope: Scope) -> Any:
    if "$cond" in value:
        return _resolve_parts(value["$then"] if is_visible(value["$cond"], scope) else value["$else"], scope)
    if "$template" in value:
        return "".join(_pieces(value["$template"], scope))
    found = value_of(value, scope)
    scope.allowance.spend_on(found)
    return found


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
