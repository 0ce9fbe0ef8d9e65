"""The shape of one page spec, before any prop is read: upstream's codes first, then the rules that upstream lacks.

Upstream accepts what these rules of ours refuse, each by its own code: `bad_key`, `unknown_field`, `unknown_type`,
`not_a_page`, `misplaced`, `no_children`, `unknown_slot`, `shared_child`, `cycle`, `too_deep`, `too_large`,
`bad_expression`, `unknown_function`, `on_unsupported` and `watch_unsupported` (a static page runs no action, so a
button that has one would be dead).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sandbox.spec.component import Component
from sandbox.spec.errors import Finding, shown
from sandbox.spec.expressions import MISSING, complaint_about, complaint_about_condition, look_up
from sandbox.spec.model import MAX_ELEMENTS, JsonObject, pointer

MAX_TREE_DEPTH: Final = 16
PAGE_TYPE: Final = "Page"
MISPLACED_FIELDS: Final = ("visible", "on", "repeat", "watch", "children")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_PAGE_FIELDS: Final = frozenset({"root", "elements", "state"})
_ELEMENT_FIELDS: Final = frozenset({"type", "props", "children", "slots", "visible", "repeat", "on", "watch"})


def check_page(page: JsonObject, catalog: Mapping[str, Component], *, base: str) -> list[Finding]:
    """Return what is wrong with a page's shape; later checks need a page without errors.

    Args:
        page: the page spec, any JSON object.
        catalog: components by name.
        base: JSON pointer of the page.
    """
    findings = [
        Finding("unknown_field", base + pointer(key), f"a page holds root, elements and state, not {shown(key)}")
        for key in page
        if key not in _PAGE_FIELDS
    ]
    if not isinstance(page.get("state", {}), dict):
        findings.append(Finding("bad_state", f"{base}/state", "state is an object"))
    elements = page.get("elements")
    root = page.get("root")
    if not isinstance(root, str) or not root:
        return [*findings, Finding("missing_root", f"{base}/root", "root is the key of the page's first element")]
    if not isinstance(elements, dict):
        return [*findings, Finding("not_a_spec", f"{base}/elements", "elements is an object of elements by key")]
    if not elements:
        return [*findings, Finding("empty_spec", f"{base}/elements", "the spec has no elements")]
    if len(elements) > MAX_ELEMENTS:
        return [*findings, Finding("too_large", f"{base}/elements", f"a page holds at most {MAX_ELEMENTS} elements")]
    for key, element in elements.items():
        findings += _check_element(key, element, base=base + pointer("elements", key))
    if root not in elements:
        findings.append(Finding("root_not_found", f"{base}/root", f"root {shown(root)} is no key of elements"))
    if any(finding.severity == "error" for finding in findings):
        return findings
    return [*findings, *_check_tree(root, elements, base=base), *_check_catalog(root, elements, catalog, base=base),
            *_check_repeats(page, base=base)]  # fmt: skip


def children_of(element: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """Yield the keys of an element's children and of what fills its slots, each with its place in the element."""
    for index, key in enumerate(element.get("children") or ()):
        yield key, ("children", index)
    for slot, keys in sorted((element.get("slots") or {}).items()):
        for index, key in enumerate(keys):
            yield key, ("slots", slot, index)


def _check_element(key: str, element: Any, *, base: str) -> list[Finding]:
    if not _KEY.fullmatch(key):
        rule = "an element's key is a letter, then up to 63 letters, digits, hyphens and underscores"
        return [Finding("bad_key", base, rule)]
    if not isinstance(element, dict):
        return [Finding("not_an_element", base, "an element is an object")]
    findings = [
        Finding("unknown_field", base + pointer(name), f"an element has no field {shown(name)}")
        for name in element
        if name not in _ELEMENT_FIELDS
    ]
    if not isinstance(element.get("type"), str):
        findings.append(Finding("missing_type", f"{base}/type", "type is the name of a catalog component"))
    if not _is_key_list(element.get("children", [])):
        findings.append(Finding("bad_children", f"{base}/children", "children is a list of element keys"))
    slots = element.get("slots", {})
    if not (isinstance(slots, dict) and all(_is_key_list(keys) for keys in slots.values())):
        findings.append(Finding("bad_slots", f"{base}/slots", "slots is an object of lists of element keys"))
    return [*findings, *_check_props(element, base=base), *_check_dynamics(element, base=base)]


def _check_props(element: JsonObject, *, base: str) -> list[Finding]:
    props = element.get("props", {})
    if not isinstance(props, dict):
        return [Finding("bad_props", f"{base}/props", "props is an object")]
    findings = [
        Finding(f"{name}_in_props", f"{base}/props/{name}", f"{name} stands beside props, not inside")
        for name in MISPLACED_FIELDS
        if name in props
    ]
    for name, value in props.items():
        if complaint := complaint_about(value):
            findings.append(Finding(complaint.code, base + pointer("props", name), complaint.message))
    if complaint := complaint_about({} if not any(name.startswith("$") for name in props) else props):
        findings.append(Finding(complaint.code, f"{base}/props", "props itself is no expression"))
    return findings


def _check_dynamics(element: JsonObject, *, base: str) -> list[Finding]:
    findings = []
    if "visible" in element and (complaint := complaint_about_condition(element["visible"])):
        findings.append(Finding(complaint.code, f"{base}/visible", complaint.message))
    for name in ("on", "watch"):
        if element.get(name):
            rule = f"a static page runs no actions, so `{name}` has no meaning here; use a link"
            findings.append(Finding(f"{name}_unsupported", f"{base}/{name}", rule))
    if "repeat" in element:
        findings += _check_repeat(element, base=base)
    return findings


def _check_repeat(element: JsonObject, *, base: str) -> list[Finding]:
    repeat = element["repeat"]
    source = repeat.get("statePath") if isinstance(repeat, dict) else None
    is_path = isinstance(source, str) or (
        isinstance(source, dict) and set(source) == {"$item"} and isinstance(source["$item"], str)
    )
    if not is_path or set(repeat) - {"statePath", "key"}:
        rule = 'repeat is {"statePath": "/path"} or {"statePath": {"$item": "path"}}, with an optional key'
        return [Finding("bad_repeat", f"{base}/repeat", rule)]
    if not element.get("children"):
        rule = "repeat needs a child that renders one item"
        return [Finding("repeat_without_children", f"{base}/repeat", rule)]
    return []


def _check_tree(root: str, elements: JsonObject, *, base: str) -> list[Finding]:
    findings: list[Finding] = []
    parents: dict[str, int] = {}
    for key, element in elements.items():
        for child, place in children_of(element):
            path = base + pointer("elements", key, *place)
            if child not in elements:
                findings.append(Finding("missing_child", path, f"{shown(child)} is no key of elements"))
            parents[child] = parents.get(child, 0) + 1
            if parents[child] == 2:
                rule = f"{shown(child)} already has a parent; give the second place its own element"
                findings.append(Finding("shared_child", path, rule))
    if any(finding.code == "missing_child" for finding in findings):
        return findings
    reached, looped = _walk(root, elements)
    if looped:
        findings.append(Finding("cycle", base + pointer("elements", looped), "an element may not stand inside itself"))
    elif max(reached.values()) > MAX_TREE_DEPTH:
        findings.append(Finding("too_deep", f"{base}/elements", f"elements may nest {MAX_TREE_DEPTH} levels deep"))
    return [*findings, *_orphans(elements, reached, base=base)]


def _walk(root: str, elements: JsonObject) -> tuple[dict[str, int], str | None]:
    """Return the depth of every reachable element, and one that stands inside itself if there is one."""
    depths: dict[str, int] = {}
    open_keys: set[str] = set()
    stack: list[tuple[str, int, bool]] = [(root, 0, False)]
    while stack:
        key, depth, leaving = stack.pop()
        if leaving:
            open_keys.discard(key)
        elif key in open_keys:
            return depths, key
        elif key not in depths:
            depths[key] = depth
            open_keys.add(key)
            stack.append((key, depth, True))
            stack.extend((child, depth + 1, False) for child, _ in children_of(elements[key]))
    return depths, None


def _orphans(elements: JsonObject, reached: Mapping[str, int], *, base: str) -> list[Finding]:
    rule = "the element cannot be reached from root and is not rendered"
    return [
        Finding("orphaned_element", base + pointer("elements", key), rule, "warning")
        for key in elements
        if key not in reached
    ]


def _check_catalog(root: str, elements: JsonObject, catalog: Mapping[str, Component], *, base: str) -> list[Finding]:
    findings = []
    below_root = {root, *(child for child, _ in children_of(elements[root]))}
    if elements[root]["type"] != PAGE_TYPE:
        findings.append(Finding("not_a_page", base + pointer("elements", root, "type"), "the root element is a Page"))
    for key, element in elements.items():
        here = base + pointer("elements", key)
        component = catalog.get(element["type"])
        if component is None:
            rule = f"{shown(element['type'])} is no component of the catalog"
            findings.append(Finding("unknown_type", f"{here}/type", rule))
            continue
        if component.place == "root" and key != root:
            findings.append(Finding("misplaced", here, f"{component.name} can only be the root"))
        if component.place in ("header", "footer") and key not in below_root:
            findings.append(Finding("misplaced", here, f"{component.name} stands directly below the root"))
        if element.get("children") and not component.has_children:
            findings.append(Finding("no_children", f"{here}/children", f"{component.name} takes no children"))
        findings += [
            Finding("unknown_slot", here + pointer("slots", slot), f"{component.name} has no such slot")
            for slot in element.get("slots") or {}
            if slot not in component.slots
        ]
    return findings


def _check_repeats(page: JsonObject, *, base: str) -> list[Finding]:
    """Check absolute repeat paths against the state, and relative ones against their surroundings."""
    elements = page["elements"]
    findings = []
    stack: list[tuple[str, bool]] = [(page["root"], False)]
    seen: set[str] = set()
    while stack:
        key, in_repeat = stack.pop()
        if key in seen or key not in elements:
            continue
        seen.add(key)
        element = elements[key]
        repeat = element.get("repeat")
        path = base + pointer("elements", key, "repeat")
        if repeat and isinstance(repeat["statePath"], dict) and not in_repeat:
            findings.append(Finding("repeat_item_outside_scope", path, "$item needs a repeat around this element"))
        elif repeat and isinstance(repeat["statePath"], str) and "state" in page:
            found = look_up(page["state"], repeat["statePath"])
            if found is MISSING or not isinstance(found, list):
                findings.append(Finding("repeat_state_mismatch", path, "statePath must lead to a list in state"))
        stack += [
            (child, in_repeat or (bool(repeat) and place[0] == "children")) for child, place in children_of(element)
        ]
    return findings


def _is_key_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
