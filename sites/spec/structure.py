"""Check the structure of a page spec, before any prop is read.

First come the types that upstream leaves to TypeScript, then the rules of `validateSpec` in `@json-render/core` 0.21.4
(`check_upstream`: nothing of ours, so that a test can hold it against the real package finding by finding), then what
upstream lacks. `errors` lists the rules of all three.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

from sites.errors import Finding, shown
from sites.spec.catalog import Component
from sites.spec.expressions import complaint_about, complaint_about_condition, has_long_path
from sites.spec.model import MAX_ELEMENTS, JsonObject, pointer
from sites.spec.state import MAX_PATH_CHARS, MISSING, join_paths, look_up, repeat_path

MISPLACED_FIELDS: Final = ("visible", "on", "repeat", "watch")
_INHERITED: Final = (
    "constructor hasOwnProperty isPrototypeOf propertyIsEnumerable toLocaleString toString valueOf __defineGetter__ "
    "__defineSetter__ __lookupGetter__ __lookupSetter__ __proto__"
)
INHERITED_NAMES: Final = frozenset(_INHERITED.split())
"""Properties of every JavaScript object, behind which upstream finds elements that do not exist."""
_MAX_VISITS: Final = 4000
"""Visits of the walk over repeats; only shared children, which are refused, need more than one per element."""


class Overview(NamedTuple):
    """What a page's elements have between them, so that rules about anything else are skipped."""

    fields: set[str]
    """The names of their fields."""
    props: set[str]
    """The names of their props."""
    below: dict[str, list[str]]
    """By element: the keys of its children and of what fills its slots, as `children_of` yields them."""
    placed: list[str]
    """All of those keys."""


def look_over(elements: JsonObject) -> Overview:
    """Return the overview of a page's elements."""
    fields = set[str]().union(*elements.values())
    props = set[str]().union(*[element["props"] for element in elements.values() if "props" in element])
    below = {key: keys_below(element) for key, element in elements.items()}
    return Overview(fields, props, below, [child for keys in below.values() for child in keys])


def check_upstream(page: JsonObject, overview: Overview, *, base: str) -> list[Finding]:
    """Return upstream's findings on a page that has a root and an object of elements."""
    elements, root = page["elements"], page["root"]
    findings = []
    if not _is_known(root, elements):
        findings.append(Finding("root_not_found", f"{base}/root", f"root {shown(root)} is no key of elements"))
    if not elements:
        return [*findings, Finding("empty_spec", f"{base}/elements", "the spec has no elements")]
    if rules := _upstream_rules(overview):
        for key in elements:
            for rule in rules:
                findings += rule(key, elements, base=base)
    return [*findings, *(_check_repeats(page, base=base) if "repeat" in overview.fields else ())]


def children_of(element: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """Yield the keys of an element's children and slot contents, each with its place in the element."""
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


def _upstream_rules(overview: Overview) -> list[Callable[..., Iterator[Finding]]]:
    """Return the rules for single elements that a page's elements can break at all, in the order of their findings."""
    rules = {
        _check_children: not overview.below.keys() >= set(overview.placed),
        _check_repeat: "repeat" in overview.fields,
        _check_condition: "visible" in overview.fields,
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


def _check_condition(key: str, elements: JsonObject, *, base: str) -> Iterator[Finding]:
    if "visible" in elements[key] and (complaint := complaint_about_condition(elements[key]["visible"])):
        yield Finding(complaint.code, base + pointer("elements", key, "visible"), complaint.message)


def _check_misplaced(key: str, elements: JsonObject, *, base: str) -> Iterator[Finding]:
    for name in MISPLACED_FIELDS:
        if name in elements[key].get("props", {}):
            rule = f"{name} stands beside props, not inside"
            yield Finding(f"{name}_in_props", base + pointer("elements", key, "props", name), rule)


class _Visit(NamedTuple):
    """One visit of an element on the walk over repeats."""

    key: str
    base: str | None
    """The path of the item of the enclosing repeat."""
    has_sample: bool
    """Whether that path exists in the spec's own state."""
    ancestors: frozenset[str]


def _check_repeats(page: JsonObject, *, base: str) -> list[Finding]:
    """Check that each repeat is over a list, as far as the spec's own state shows."""
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


MAX_TREE_DEPTH: Final = 16
PAGE_TYPE: Final = "Page"
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_PAGE_FIELDS: Final = frozenset({"root", "elements", "state"})
_ACTIONS: Final = ("on", "watch")
_ELEMENT_FIELDS: Final = frozenset({"type", "props", "children", "slots", "visible", "repeat", "on", "watch"})


def check_page(page: JsonObject, catalog: Mapping[str, Component], *, base: str) -> list[Finding]:
    """Return the findings on a page's structure; later checks need a page without errors."""
    if findings := [*_check_types(page, base=base)]:
        return findings
    elements, root = page["elements"], page["root"]
    overview = look_over(elements)
    findings = [*check_upstream(page, overview, base=base), *_check_fields(page, _PAGE_FIELDS, "a page", base=base)]
    findings += [] if _is_key(root) else [_bad_key(f"{base}/root")]
    rules = _rules_for(overview, elements)
    for key, element in elements.items():
        for rule in rules:
            findings += rule(key, element, base=base)
        findings += _check_catalog(key, element, page, catalog, base=base)
    if root in elements:
        if elements[root]["type"] != PAGE_TYPE:
            findings.append(
                Finding("not_a_page", base + pointer("elements", root, "type"), "the root element is a Page")
            )
        findings += _check_tree(root, elements, overview, base=base)
    return findings


def _rules_for(overview: Overview, elements: JsonObject) -> list[Callable[..., Iterator[Finding]]]:
    """Return the rules for single elements that a page's elements can break at all, in the order of their findings."""
    names = {*elements, *overview.placed}
    rules = {
        _check_key: not (INHERITED_NAMES.isdisjoint(names) and all(map(_KEY.fullmatch, elements))),
        _check_element_fields: not overview.fields <= _ELEMENT_FIELDS,
        _check_props: _can_hold_expressions(elements) or any(map(_is_no_prop, overview.props)),
        _check_visible: "visible" in overview.fields,
        _check_actions: not overview.fields.isdisjoint(_ACTIONS),
    }
    return [rule for rule, can_break in rules.items() if can_break]


def _can_hold_expressions(elements: JsonObject) -> bool:
    props = [element["props"].values() for element in elements.values() if "props" in element]
    kinds = set(map(type, chain.from_iterable(props)))
    return any(issubclass(kind, dict | list) for kind in kinds)


def _is_no_prop(name: str) -> bool:
    return name == "children" or name.startswith("$")


def _check_types(page: JsonObject, *, base: str) -> Iterator[Finding]:
    """Check what upstream's types guarantee and its validator assumes; after a finding nothing else is checked."""
    root, elements = page.get("root"), page.get("elements")
    if not root:
        yield Finding("missing_root", f"{base}/root", "root is the key of the page's first element")
        return
    if not isinstance(root, str):
        yield Finding("bad_root", f"{base}/root", "root is the key of an element, so it is text")
    if not isinstance(page.get("state", {}), dict):
        yield Finding("bad_state", f"{base}/state", "state is an object")
    if not isinstance(elements, dict):
        yield Finding("not_a_spec", f"{base}/elements", "elements is an object of elements by key")
    elif len(elements) > MAX_ELEMENTS:
        yield Finding("too_large", f"{base}/elements", f"a page holds at most {MAX_ELEMENTS} elements")
    else:
        for key, element in elements.items():
            yield from _check_element_types(key, element, base=base)


def _check_element_types(key: str, element: Any, *, base: str) -> Iterator[Finding]:
    if not isinstance(element, dict):
        yield Finding("not_an_element", base + pointer("elements", key), "an element is an object")
        return
    if not isinstance(element.get("type"), str):
        yield Finding(
            "missing_type", base + pointer("elements", key, "type"), "type is the name of a catalog component"
        )
    if not isinstance(element.get("props", {}), dict):
        yield Finding("bad_props", base + pointer("elements", key, "props"), "props is an object")
    if "children" in element and not _is_key_list(element["children"]):
        yield Finding("bad_children", base + pointer("elements", key, "children"), "children is a list of element keys")
    if "slots" in element and not _is_slots(element["slots"]):
        yield Finding(
            "bad_slots", base + pointer("elements", key, "slots"), "slots is an object of lists of element keys"
        )
    if "repeat" in element and not _is_repeat(element["repeat"]):
        rule = 'repeat is {"statePath": "/path"} or {"statePath": {"$item": "path"}}, with an optional key'
        yield Finding("bad_repeat", base + pointer("elements", key, "repeat"), rule)


def _is_key_list(value: Any) -> bool:
    return isinstance(value, list) and (not value or not [item for item in value if not isinstance(item, str)])


def _is_slots(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_key_list(keys) for keys in value.values())


def _is_repeat(repeat: Any) -> bool:
    if not isinstance(repeat, dict) or set(repeat) - {"statePath", "key"} or not isinstance(repeat.get("key", ""), str):
        return False
    path = repeat.get("statePath")
    if isinstance(path, dict) and set(path) == {"$item"}:
        path = path["$item"]
    return isinstance(path, str) and len(path) <= MAX_PATH_CHARS


def _check_fields(value: JsonObject, fields: frozenset[str], name: str, *, base: str) -> Iterator[Finding]:
    for field in value:
        if field not in fields:
            yield Finding("unknown_field", base + pointer(field), f"{name} has no field {shown(field)}")


def _is_key(key: str) -> bool:
    return _KEY.fullmatch(key) is not None and key not in INHERITED_NAMES


def _bad_key(path: str) -> Finding:
    rule = "an element's key is a letter, then up to 63 letters, digits, hyphens and underscores"
    return Finding("bad_key", path[:300], rule)


def _check_key(key: str, element: JsonObject, *, base: str) -> Iterator[Finding]:
    if not _is_key(key):
        yield _bad_key(base + pointer("elements", key))
    for child, steps in children_of(element):
        if child in INHERITED_NAMES:
            yield _bad_key(base + pointer("elements", key, *steps))


def _check_element_fields(key: str, element: JsonObject, *, base: str) -> Iterator[Finding]:
    return _check_fields(element, _ELEMENT_FIELDS, "an element", base=base + pointer("elements", key))


def _check_props(key: str, element: JsonObject, *, base: str) -> Iterator[Finding]:
    props = element.get("props", {})
    if "children" in props:
        where = base + pointer("elements", key, "props", "children")
        yield Finding("children_in_props", where, "children stands beside props, not inside")
    for name, value in props.items():
        if name.startswith("$"):
            yield Finding("bad_expression", base + pointer("elements", key, "props"), "props itself is no expression")
        elif complaint := complaint_about(value):
            yield Finding(complaint.code, base + pointer("elements", key, "props", name), complaint.message)


def _check_visible(key: str, element: JsonObject, *, base: str) -> Iterator[Finding]:
    if has_long_path(element.get("visible")):
        rule = f"a path has at most {MAX_PATH_CHARS} characters"
        yield Finding("bad_expression", base + pointer("elements", key, "visible"), rule)


def _check_actions(key: str, element: JsonObject, *, base: str) -> Iterator[Finding]:
    for name in _ACTIONS:
        if element.get(name):
            rule = f"a static page runs no actions, so `{name}` has no meaning here; use a link"
            yield Finding(f"{name}_unsupported", base + pointer("elements", key, name), rule)


def _check_catalog(
    key: str, element: JsonObject, page: JsonObject, catalog: Mapping[str, Component], *, base: str
) -> Iterator[Finding]:
    component = catalog.get(element["type"])
    if component is None:
        rule = f"{shown(element['type'])} is no component of the catalog"
        yield Finding("unknown_type", base + pointer("elements", key, "type"), rule)
        return
    if component.place == "root" and key != page["root"]:
        yield Finding("misplaced", base + pointer("elements", key), f"{component.name} can only be the root")
    if component.place in ("header", "footer") and key not in _below_root(page):
        yield Finding("misplaced", base + pointer("elements", key), f"{component.name} stands directly below the root")
    if element.get("children") and not component.has_children:
        yield Finding("no_children", base + pointer("elements", key, "children"), f"{component.name} takes no children")
    for slot in element.get("slots", ()):
        if slot not in component.slots:
            yield Finding(
                "unknown_slot", base + pointer("elements", key, "slots", slot), f"{component.name} has no such slot"
            )


def _below_root(page: JsonObject) -> set[str]:
    root = page["root"]
    return {root, *keys_below(page["elements"].get(root, {}))}


def _check_tree(root: str, elements: JsonObject, overview: Overview, *, base: str) -> Iterator[Finding]:
    if len(overview.placed) != len(set(overview.placed)):
        yield from _check_parents(elements, base=base)
    depths, looped = _walk(root, overview.below)
    if looped:
        yield Finding("cycle", base + pointer("elements", looped), "an element may not stand inside itself")
        return
    if max(depths.values()) > MAX_TREE_DEPTH:
        yield Finding("too_deep", f"{base}/elements", f"elements may nest {MAX_TREE_DEPTH} levels deep")
    for key in elements:
        if key not in depths:
            rule = "the element cannot be reached from root and is not rendered"
            yield Finding("orphaned_element", base + pointer("elements", key), rule, "warning")


def _check_parents(elements: JsonObject, *, base: str) -> Iterator[Finding]:
    parents: Counter[str] = Counter()
    for key, element in elements.items():
        for child, place in children_of(element):
            parents[child] += 1
            if parents[child] == 2:
                rule = f"{shown(child)} already has a parent; give the second place its own element"
                yield Finding("shared_child", base + pointer("elements", key, *place), rule)


def reachable(page: JsonObject) -> frozenset[str]:
    """Return the keys of the elements that are reachable from a page's root."""
    return frozenset(_walk(page["root"], look_over(page["elements"]).below)[0])


def _walk(root: str, below: Mapping[str, list[str]]) -> tuple[dict[str, int], str | None]:
    """Return the depth of every reachable element, and one that contains itself, if any."""
    depths: dict[str, int] = {}
    open_keys: set[str] = set()
    stack: list[tuple[str, int, bool]] = [(root, 0, False)]
    while stack:
        key, depth, leaving = stack.pop()
        if leaving:
            open_keys.discard(key)
        elif key in open_keys:
            return depths, key
        elif key not in depths and key in below:
            depths[key] = depth
            if children := below[key]:
                open_keys.add(key)
                stack.append((key, depth, True))
                stack += [(child, depth + 1, False) for child in children]
    return depths, None
