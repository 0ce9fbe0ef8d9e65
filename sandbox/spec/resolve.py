"""A page spec as the tree that is rendered: repeats unrolled, expressions replaced, shared elements fetched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sandbox.spec import expressions
from sandbox.spec.errors import refuse
from sandbox.spec.expressions import MISSING, Scope
from sandbox.spec.model import INDEX, JsonObject, Site, pointer

SHARED_TYPE: Final = "Shared"
MAX_NODES: Final = 3000
"""Nodes that one page may have once its repeats are unrolled."""


@dataclass(frozen=True)
class Node:
    """One element as it is rendered."""

    type: str
    id: str
    """The element's key; inside a repeat, with the item's index."""
    path: str
    """JSON pointer of the element that it comes from."""
    props: JsonObject
    children: tuple[Node, ...] = ()
    slots: Mapping[str, tuple[Node, ...]] = field(default_factory=dict)


class _Resolver:
    """Unrolls one page; counts what it makes, because repeats multiply."""

    def __init__(self, site: Site, *, with_hidden: bool) -> None:
        self._site = site
        self._with_hidden = with_hidden
        self._made = 0

    def nodes(self, page: str, key: str, scope: Scope, *, suffix: str = "") -> tuple[Node, ...]:
        """Return what one element becomes: nothing when hidden, else one node."""
        element = self._site.pages[page]["elements"][key]
        condition = element.get("visible", True)
        repeat = element.get("repeat")
        filters_items = bool(repeat) and expressions.uses_item(condition)
        if not (self._with_hidden or filters_items or expressions.is_visible(condition, scope)):
            return ()
        if element["type"] == SHARED_TYPE:
            return self._shared(element, scope)
        self._count()
        node = Node(
            type=element["type"],
            id=key + suffix,
            path=pointer("pages", page, "elements", key),
            props=expressions.resolve(element.get("props", {}), scope),
            slots={
                name: self._all(page, keys, scope, suffix)
                for name, keys in sorted((element.get("slots") or {}).items())
            },
        )
        keys = element.get("children") or []
        if not repeat:
            return (replace(node, children=self._all(page, keys, scope, suffix)),)
        return (replace(node, children=self._repeated(page, element, scope, suffix)),)

    def _shared(self, element: JsonObject, scope: Scope) -> tuple[Node, ...]:
        key = expressions.resolve(element.get("props", {}), scope).get("of")
        index_scope = Scope(self._site.pages[INDEX].get("state", {}))
        return self.nodes(INDEX, key, index_scope)

    def _all(self, page: str, keys: list[str], scope: Scope, suffix: str) -> tuple[Node, ...]:
        return tuple(node for key in keys for node in self.nodes(page, key, scope, suffix=suffix))

    def _repeated(self, page: str, element: JsonObject, scope: Scope, suffix: str) -> tuple[Node, ...]:
        source = element["repeat"]["statePath"]
        items = expressions.look_up(scope.state, source) if isinstance(source, str) else _item(scope, source)
        condition = element.get("visible", True)
        made: list[Node] = []
        for index, item in enumerate(items if isinstance(items, list) else []):
            inner = Scope(scope.state, item, index)
            if self._with_hidden or not expressions.uses_item(condition) or expressions.is_visible(condition, inner):
                made += self._all(page, element["children"], inner, f"{suffix}.{index}")
        return tuple(made)

    def _count(self) -> None:
        self._made += 1
        if self._made > MAX_NODES:
            raise refuse("too_many_nodes", "", f"repeats may unroll a page to at most {MAX_NODES} elements")


def resolve_page(site: Site, page: str, *, with_hidden: bool = False) -> Node:
    """Return the tree of a page whose structure has no errors.

    Args:
        site: the whole site, because a page may share elements of the index page.
        page: path of the page.
        with_hidden: keep what `visible` hides, so that it can be checked too.

    Raises:
        SpecError: the page unrolls to too many elements, or hides its own root (the spec's fault).
    """
    spec = site.pages[page]
    roots = _Resolver(site, with_hidden=with_hidden).nodes(page, spec["root"], Scope(spec.get("state", {})))
    if not roots:
        raise refuse("hidden_root", pointer("pages", page, "elements", spec["root"]), "a page cannot hide itself")
    return roots[0]


def _item(scope: Scope, source: Mapping[str, Any]) -> Any:
    return MISSING if scope.item is MISSING else expressions.look_up(scope.item, source["$item"])
