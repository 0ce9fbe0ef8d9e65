"""The shape of one page spec, before any prop is read.

First the types that upstream leaves to TypeScript, then upstream's own rules, then what upstream lacks. `rulebook`
names every rule of the three.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sandbox.spec.component import Component
from sandbox.spec.conditions import has_long_path
from sandbox.spec.errors import Finding, shown
from sandbox.spec.expressions import complaint_about
from sandbox.spec.model import MAX_ELEMENTS, JsonObject, pointer
from sandbox.spec.scope import MAX_PATH_CHARS
from sandbox.spec.upstream import INHERITED_NAMES, check_upstream, children_of

MAX_TREE_DEPTH: Final = 16
PAGE_TYPE: Final = "Page"
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
    if findings := [*_check_types(page, base=base)]:
        return findings
    elements, root = page["elements"], page["root"]
    findings = [*check_upstream(page, base=base), *_check_fields(page, _PAGE_FIELDS, "a page", base=base)]
    findings += _check_key(root, base=f"{base}/root")
    for key, element in elements.items():
        findings += _check_element(key, element, base=base + pointer("elements", key))
        findings += _check_catalog(key, page, catalog, base=base)
    if root in elements:
        if elements[root]["type"] != PAGE_TYPE:
            rule = "the root element is a Page"
            findings.append(Finding("not_a_page", base + pointer("elements", root, "type"), rule))
        findings += _check_tree(root, elements, base=base)
    return findings


def _check_types(page: JsonObject, *, base: str) -> Iterator[Finding]:
    """Check what upstream's types promise and its validator believes; after a finding here nothing else looks."""
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
            yield from _check_element_types(element, base=base + pointer("elements", key))


def _check_element_types(element: Any, *, base: str) -> Iterator[Finding]:
    if not isinstance(element, dict):
        yield Finding("not_an_element", base, "an element is an object")
        return
    if not isinstance(element.get("type"), str):
        yield Finding("missing_type", f"{base}/type", "type is the name of a catalog component")
    if not isinstance(element.get("props", {}), dict):
        yield Finding("bad_props", f"{base}/props", "props is an object")
    if not _is_key_list(element.get("children", [])):
        yield Finding("bad_children", f"{base}/children", "children is a list of element keys")
    slots = element.get("slots", {})
    if not (isinstance(slots, dict) and all(_is_key_list(keys) for keys in slots.values())):
        yield Finding("bad_slots", f"{base}/slots", "slots is an object of lists of element keys")
    if "repeat" in element and not _is_repeat(element["repeat"]):
        rule = 'repeat is {"statePath": "/path"} or {"statePath": {"$item": "path"}}, with an optional key'
        yield Finding("bad_repeat", f"{base}/repeat", rule)


def _is_key_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_repeat(repeat: Any) -> bool:
    if not isinstance(repeat, dict) or set(repeat) - {"statePath", "key"} or not isinstance(repeat.get("key", ""), str):
        return False
    path = repeat.get("statePath")
    if isinstance(path, dict) and set(path) == {"$item"}:
        path = path["$item"]
    return isinstance(path, str) and len(path) <= MAX_PATH_CHARS


def _check_fields(value: JsonObject, known: frozenset[str], name: str, *, base: str) -> Iterator[Finding]:
    for field in value:
        if field not in known:
            yield Finding("unknown_field", base + pointer(field), f"{name} has no field {shown(field)}")


def _check_key(key: str, *, base: str) -> Iterator[Finding]:
    if not _KEY.fullmatch(key) or key in INHERITED_NAMES:
        rule = "an element's key is a letter, then up to 63 letters, digits, hyphens and underscores"
        yield Finding("bad_key", base[:300], rule)


def _check_element(key: str, element: JsonObject, *, base: str) -> Iterator[Finding]:
    yield from _check_key(key, base=base)
    for child, place in children_of(element):
        if child in INHERITED_NAMES:
            yield from _check_key(child, base=base + pointer(*place))
    yield from _check_fields(element, _ELEMENT_FIELDS, "an element", base=base)
    yield from _check_props(element.get("props", {}), base=base)
    if has_long_path(element.get("visible")):
        rule = f"a path has at most {MAX_PATH_CHARS} characters"
        yield Finding("bad_expression", f"{base}/visible", rule)
    for name in ("on", "watch"):
        if element.get(name):
            rule = f"a static page runs no actions, so `{name}` has no meaning here; use a link"
            yield Finding(f"{name}_unsupported", f"{base}/{name}", rule)


def _check_props(props: JsonObject, *, base: str) -> Iterator[Finding]:
    if "children" in props:
        yield Finding("children_in_props", f"{base}/props/children", "children stands beside props, not inside")
    for name, value in props.items():
        if name.startswith("$"):
            yield Finding("bad_expression", f"{base}/props", "props itself is no expression")
        elif complaint := complaint_about(value):
            yield Finding(complaint.code, base + pointer("props", name), complaint.message)


def _check_catalog(key: str, page: JsonObject, catalog: Mapping[str, Component], *, base: str) -> Iterator[Finding]:
    element, root = page["elements"][key], page["root"]
    here = base + pointer("elements", key)
    component = catalog.get(element["type"])
    if component is None:
        yield Finding("unknown_type", f"{here}/type", f"{shown(element['type'])} is no component of the catalog")
        return
    if component.place == "root" and key != root:
        yield Finding("misplaced", here, f"{component.name} can only be the root")
    if component.place in ("header", "footer") and key not in _below_root(page):
        yield Finding("misplaced", here, f"{component.name} stands directly below the root")
    if element.get("children") and not component.has_children:
        yield Finding("no_children", f"{here}/children", f"{component.name} takes no children")
    for slot in element.get("slots", {}):
        if slot not in component.slots:
            yield Finding("unknown_slot", here + pointer("slots", slot), f"{component.name} has no such slot")


def _below_root(page: JsonObject) -> set[str]:
    root = page["root"]
    return {root, *(child for child, _ in children_of(page["elements"].get(root, {})))}


def _check_tree(root: str, elements: JsonObject, *, base: str) -> list[Finding]:
    findings: list[Finding] = []
    parents: dict[str, int] = {}
    for key, element in elements.items():
        for child, place in children_of(element):
            parents[child] = parents.get(child, 0) + 1
            if parents[child] == 2:
                path = base + pointer("elements", key, *place)
                rule = f"{shown(child)} already has a parent; give the second place its own element"
                findings.append(Finding("shared_child", path, rule))
    depths, looped = _walk(root, elements)
    if looped:
        findings.append(Finding("cycle", base + pointer("elements", looped), "an element may not stand inside itself"))
    elif max(depths.values()) > MAX_TREE_DEPTH:
        findings.append(Finding("too_deep", f"{base}/elements", f"elements may nest {MAX_TREE_DEPTH} levels deep"))
    rule = "the element cannot be reached from root and is not rendered"
    lost = [key for key in elements if key not in depths]
    orphans = [Finding("orphaned_element", base + pointer("elements", key), rule, "warning") for key in lost]
    return [*findings, *(orphans if not looped else ())]


def reachable(page: JsonObject) -> frozenset[str]:
    """Return the keys of the elements that a page shows or hides: those that its root leads to."""
    return frozenset(_walk(page["root"], page["elements"])[0])


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
        elif key not in depths and key in elements:
            depths[key] = depth
            open_keys.add(key)
            stack.append((key, depth, True))
            stack.extend((child, depth + 1, False) for child, _ in children_of(elements[key]))
    return depths, None
