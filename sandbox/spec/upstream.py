"""The rules of json-render itself: those of `validateSpec` in `@json-render/core` 0.21.4, under its codes.

Nothing of ours is in here, so that a test can hold this module against the real package finding by finding. It takes
pages whose parts have the types that upstream declares but does not check; `structure` sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from sandbox.spec.conditions import complaint_about_condition
from sandbox.spec.errors import Finding, shown
from sandbox.spec.javascript import MISSING
from sandbox.spec.model import JsonObject, pointer
from sandbox.spec.paths import join_paths, look_up, repeat_path

MISPLACED_FIELDS: Final = ("visible", "on", "repeat", "watch")
INHERITED_NAMES: Final = frozenset(
    [
        "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString",
        "valueOf", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__", "__proto__",
    ]
)  # fmt: skip
"""Names that every JavaScript object answers to: upstream finds an element behind them where there is none."""
_MAX_VISITS: Final = 4000
"""Visits of the walk over repeats. Only shared children, which `structure` refuses, need more than one an element."""


class Overview(NamedTuple):
    """What the elements of a page have between them. A rule about what none of them has is not asked at all."""

    fields: set[str]
    """Names of fields that elements have."""
    props: set[str]
    """Names of their props."""
    below: dict[str, list[str]]
    """By element: the keys of its children and of what fills its slots, as `children_of` yields them."""
    placed: list[str]
    """All of those keys."""


def look_over(elements: JsonObject) -> Overview:
    """Return what a page's elements have between them."""
    fields = set[str]().union(*elements.values())
    props = set[str]().union(*[element["props"] for element in elements.values() if "props" in element])
    below = {key: keys_below(element) for key, element in elements.items()}
    return Overview(fields, props, below, [child for keys in below.values() for child in keys])


def check_upstream(page: JsonObject, overview: Overview, *, base: str) -> list[Finding]:
    """Return what upstream finds wrong with a page that has a root and an object of elements.

    Args:
        page: the page spec.
        overview: of its elements.
        base: JSON pointer of the page.
    """
    elements, root = page["elements"], page["root"]
    findings = []
    if not _is_known(root, elements):
        findings.append(Finding("root_not_found", f"{base}/root", f"root {shown(root)} is no key of elements"))
    if not elements:
        return [*findings, Finding("empty_spec", f"{base}/elements", "the spec has no elements")]
    if rules := _rules_for(overview):
        for key in elements:
            for rule in rules:
                findings += rule(key, elements, base=base)
    return [*findings, *(_check_repeats(page, base=base) if "repeat" in overview.fields else ())]


def children_of(element: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """Yield the keys of an element's children and of what fills its slots, each with its place in the element."""
    for index, key in enumerate(element.get("children") or ()):
        yield key, ("children", index)
    for slot, keys in sorted((element.get("slots") or {}).items()):
        for index, key in enumerate(keys):
            yield key, ("slots", slot, index)


def keys_below(element: Mapping[str, Any]) -> list[str]:
    """Return the keys that `children_of` yields."""
    if "slots" in element:
        return [key for key, _ in children_of(element)]
    return element.get("children") or []


def _is_known(key: str, elements: Mapping[str, Any]) -> bool:
    return key in elements or key in INHERITED_NAMES


def _rules_for(overview: Overview) -> list[Callable[..., Iterator[Finding]]]:
    """Return the rules for single elements that a page's elements can break at all, in the order of their findings."""
    rules = {
        _check_children: not overview.below.keys() >= set(overview.placed),
        _check_repeat: "repeat" in overview.fields,
        _check_visible: "visible" in overview.fields,
        _check_misplaced: not overview.props.isdisjoint(MISPLACED_FIELDS),
    }
    return [rule for rule, can_break in rules.items() if can_break]


def _check_children(key: str, elements: JsonObject, *, base: str) -> Iterator[Finding]:
    for child, steps in children_of(elements[key]):
        if not _is_known(child, elements):
            yield Finding(
                "missing_child", base + pointer("elements", key, *steps), f"{shown(child)} is no key of elements"
            )


def _check_repeat(key: str, elements: JsonObject, *, base: str) -> Iterator[Finding]:
    if "repeat" in elements[key] and not elements[key].get("children"):
        rule = "repeat needs a child that renders one item"
        yield Finding("repeat_without_children", base + pointer("elements", key, "repeat"), rule)


def _check_visible(key: str, elements: JsonObject, *, base: str) -> Iterator[Finding]:
    if "visible" in elements[key] and (complaint := complaint_about_condition(elements[key]["visible"])):
        yield Finding(complaint.code, base + pointer("elements", key, "visible"), complaint.message)


def _check_misplaced(key: str, elements: JsonObject, *, base: str) -> Iterator[Finding]:
    for name in MISPLACED_FIELDS:
        if name in elements[key].get("props", {}):
            rule = f"{name} stands beside props, not inside"
            yield Finding(f"{name}_in_props", base + pointer("elements", key, "props", name), rule)


class _Visit(NamedTuple):
    """One element on the walk over repeats, as one way leads to it."""

    key: str
    base: str | None
    """Path of the item of the repeat around it."""
    has_sample: bool
    """Whether that path leads to an item in the spec's own state."""
    ancestors: frozenset[str]


def _check_repeats(page: JsonObject, *, base: str) -> list[Finding]:
    """Check that each repeat goes over a list, where the spec's own state can tell."""
    elements = page["elements"]
    findings: list[Finding] = []
    seen: set[tuple[str, str | None, bool]] = set()
    reached: set[str] = set()
    for start in (page["root"], *elements):
        if start in reached:
            continue
        stack = [_Visit(start, None, True, frozenset())]
        while stack and len(seen) < _MAX_VISITS:
            visit = stack.pop()
            context = (visit.key, visit.base, visit.has_sample)
            if visit.key in visit.ancestors or visit.key not in elements or context in seen:
                continue
            seen.add(context)
            reached.add(visit.key)
            stack += reversed(_visit(visit, page, findings, base=base))
    return findings


def _visit(visit: _Visit, page: JsonObject, findings: list[Finding], *, base: str) -> list[_Visit]:
    """Check one element's repeat; return the visits that follow."""
    element = page["elements"][visit.key]
    inner_base, inner_sample = visit.base, visit.has_sample
    if "repeat" in element:
        where = base + pointer("elements", visit.key, "repeat")
        source = element["repeat"]["statePath"]
        path = repeat_path(source, visit.base)
        if path is None:
            rule = "$item needs a repeat around this element"
            findings.append(Finding("repeat_item_outside_scope", where, rule))
            inner_base, inner_sample = None, False
        else:
            can_check = "state" in page and (isinstance(source, str) or visit.has_sample)
            found = look_up(page["state"], path) if can_check else MISSING
            if can_check and not isinstance(found, list):
                rule = "statePath must lead to a list in state"
                findings.append(Finding("repeat_state_mismatch", where, rule))
            inner_base, inner_sample = join_paths(path, "0"), isinstance(found, list) and bool(found)
    below = visit.ancestors | {visit.key}
    return [
        _Visit(child, inner_base, inner_sample, below)
        if place[0] == "children"
        else _Visit(child, visit.base, visit.has_sample, below)
        for child, place in children_of(element)
    ]
