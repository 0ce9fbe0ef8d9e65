"""Every rule that a spec or an edit can break, by the code of its finding: upstream's, and those that we add to them.

json-render decides what a spec is: what its validator refuses is refused here, under its own code. What it accepts is
accepted, unless a rule of `EXTRA` refuses it. A finding with a code that stands in neither table is a defect; a test
holds the tables against the code, against docs/sites.md, and against the real package.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

UPSTREAM: Final[Mapping[str, str]] = MappingProxyType(
    {
        "missing_root": "the spec names no root element",
        "root_not_found": "the root is no key of elements",
        "empty_spec": "the spec has no elements",
        "missing_child": "a child or a slot names an element that does not exist",
        "repeat_without_children": "an element repeats nothing",
        "invalid_visible": "a condition has none of the forms that json-render evaluates",
        "visible_in_props": "`visible` stands inside props (auto-fixed)",
        "on_in_props": "`on` stands inside props (auto-fixed)",
        "repeat_in_props": "`repeat` stands inside props (auto-fixed)",
        "watch_in_props": "`watch` stands inside props (auto-fixed)",
        "repeat_item_outside_scope": "a relative repeat stands in no other repeat",
        "repeat_state_mismatch": "a repeat goes over something in state that is no list",
        "orphaned_element": "an element cannot be reached from the root (a warning)",
    }
)
"""Codes of `validateSpec` in `@json-render/core` 0.21.4, and what each means."""

_JSON: Final = {
    "not_json": "the text is not JSON, or a value is none",
    "not_a_spec": "a site, a page or its elements is no JSON object",
    "duplicate_key": "one object has the same key twice; readers disagree which one counts",
    "forbidden_key": "a key is `__proto__`, `prototype` or `constructor`",
    "bad_number": "a number is NaN, infinite, or whole and beyond 2 to the power of 53",
    "bad_text": "a text holds control, text-direction or lone surrogate characters",
    "too_deep": "JSON nests more than 40 levels deep, or elements more than 16",
    "too_large": "more than 512 KiB, 50,000 values, 20 pages or 400 elements a page; or expressions make more",
}
_TYPES: Final = {
    "bad_root": "`root` is no text",
    "bad_state": "`state` is no object",
    "not_an_element": "an element is no object",
    "missing_type": "an element has no type",
    "bad_props": "`props` is no object",
    "bad_children": "`children` is no list of keys",
    "bad_slots": "`slots` is no object of lists of keys",
    "bad_repeat": "`repeat` is not exactly a path and perhaps a key",
}
_SITE: Final = {
    "bad_page_path": "a page's path is no plain lower-case .html path",
    "no_index": "a site lacks index.html",
    "unknown_field": "a site, page or element has a field that json-render does not define",
    "not_a_page": "the root of a page is no Page",
    "misplaced": "a Page, Header, Footer or Shared stands where it cannot",
    "shared_missing": "a Shared names no element directly below the root of index.html",
    "hidden_root": "a page hides itself",
}
_TREE: Final = {
    "bad_key": "an element's key is no plain identifier (keys become anchors), or one that every JavaScript object has",
    "shared_child": "an element has two parents",
    "cycle": "an element stands inside itself",
    "too_many_nodes": "repeats unroll a page to more than 3,000 elements",
}
_CATALOG: Final = {
    "unknown_type": "the catalog has no such component",
    "unknown_slot": "the component has no such slot",
    "no_children": "the component takes no children",
    "unknown_prop": "the component has no such prop",
    "missing_prop": "a prop that the component needs is missing",
    "bad_prop": "a prop has a wrong type, length or pattern",
    "bad_url": "an address may not stand in that prop: script schemes, hidden characters, ways out of the site",
    "bad_colour": "a colour is none",
    "children_in_props": "`children` stands inside props (auto-fixed where no child is lost)",
}
_STATIC: Final = {
    "bad_expression": "an object with a $ key is not exactly one expression; or a path has more than 400 characters",
    "unknown_function": "`$computed`: a static page has no functions",
    "on_unsupported": "`on`: a static page runs no actions",
    "watch_unsupported": "`watch`: a static page runs no actions",
}
_EDIT: Final = {
    "bad_outline": "a new site's outline has not the form that its tool describes",
    "bad_operation": "an edit is neither a list of RFC 6902 operations nor a marked merge",
    "patch_failed": "an operation does not apply, or would put a value into itself",
}
EXTRA: Final[Mapping[str, str]] = MappingProxyType(_JSON | _TYPES | _SITE | _TREE | _CATALOG | _STATIC | _EDIT)
"""Codes of our own rules, and what each refuses that upstream accepts."""

BEFORE_UPSTREAM: Final = frozenset(_JSON | _TYPES) - {"too_deep"} | {"bad_page_path", "no_index"}
"""Codes after which no rule of upstream's is looked at: the spec has not even the types that upstream declares."""

WARNINGS: Final[Mapping[str, str]] = MappingProxyType(
    {"broken_link": "a link goes to a page or section that this site does not have"}
)
"""Codes of findings that refuse nothing, beside `orphaned_element`."""
