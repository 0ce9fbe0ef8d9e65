"""A page spec as the tree that is rendered: repeats unrolled, expressions replaced, shared elements fetched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from sandbox.spec import expressions
from sandbox.spec.conditions import RepeatCondition, is_visible, split_repeat_condition
from sandbox.spec.errors import refuse
from sandbox.spec.javascript import MISSING
from sandbox.spec.model import INDEX, JsonObject, Site, pointer
from sandbox.spec.paths import join_paths, look_up, repeat_path
from sandbox.spec.scope import Allowance, Scope

if TYPE_CHECKING:
    from sandbox.spec.component import Props

SHARED_TYPE: Final = "Shared"
MAX_NODES: Final = 3000
"""Nodes that one page may have once its repeats are unrolled."""
_UNITS_A_NODE: Final = 100
_ALWAYS: Final = RepeatCondition(True, True)


@dataclass(slots=True)
class Node:
    """One element as it is rendered. Nothing of it changes but `checked`."""

    type: str
    id: str
    """The element's key; inside a repeat, with the item's index."""
    page: str
    """Path of the page that the element stands on."""
    key: str
    props: JsonObject
    children: tuple[Node, ...] = ()
    slots: Mapping[str, tuple[Node, ...]] = field(default_factory=dict)
    checked: Props | None = field(default=None, init=False, compare=False, repr=False)
    """The props as their component's model, once they were found to be right."""

    @property
    def path(self) -> str:
        """JSON pointer of the element that it comes from."""
        return pointer("pages", self.page, "elements", self.key)


class _Resolver:
    """Unrolls pages; counts what it makes, because repeats multiply."""

    def __init__(self, site: Site, *, with_hidden: bool, allowance: Allowance) -> None:
        self._site = site
        self._with_hidden = with_hidden
        self._allowance = allowance
        self._made = 0

    def page(self, path: str) -> Node:
        """Return the tree of one page."""
        spec = self._site.pages[path]
        self._made = 0
        root = self._node(path, spec["root"], Scope(spec.get("state", {}), allowance=self._allowance), suffix="")
        if root is None:
            raise refuse("hidden_root", pointer("pages", path, "elements", spec["root"]), "a page cannot hide itself")
        return root

    def _node(self, page: str, key: str, scope: Scope, suffix: str) -> Node | None:
        """Return what one element becomes: nothing when hidden."""
        element = self._site.pages[page]["elements"][key]
        condition = _condition_of(element, scope) if "visible" in element else _ALWAYS
        if not is_visible(self._with_hidden or condition.container, scope):
            return None
        if element["type"] == SHARED_TYPE:
            return self._shared(element, scope)
        self._count()
        props = expressions.resolve(element.get("props", {}), scope)
        slots = {}
        if "slots" in element:
            slots = {name: self._all(page, keys, scope, suffix) for name, keys in sorted(element["slots"].items())}
        if "repeat" in element:
            children = self._repeated(page, element, condition.item, scope, suffix)
        else:
            children = self._all(page, element.get("children"), scope, suffix)
        return Node(element["type"], key + suffix, page, key, props, children, slots)

    def _shared(self, element: JsonObject, scope: Scope) -> Node | None:
        key = expressions.resolve(element.get("props", {}), scope).get("of")
        index_scope = Scope(self._site.pages[INDEX].get("state", {}), allowance=self._allowance)
        return self._node(INDEX, key, index_scope, suffix="")

    def _all(self, page: str, keys: list[str] | None, scope: Scope, suffix: str) -> tuple[Node, ...]:
        if not keys:
            return ()
        made = [self._node(page, key, scope, suffix) for key in keys]
        return tuple([node for node in made if node is not None])

    def _repeated(
        self, page: str, element: JsonObject, item_condition: Any, scope: Scope, suffix: str
    ) -> tuple[Node, ...]:
        path = repeat_path(element["repeat"]["statePath"], scope.item_path)
        items = MISSING if path is None else look_up(scope.state, path)
        made: list[Node] = []
        for index, item in enumerate(items if path is not None and isinstance(items, list) else []):
            inner = replace(scope, item=item, index=index, item_path=join_paths(path or "", str(index)))
            if is_visible(self._with_hidden or item_condition, inner):
                made += self._all(page, element["children"], inner, f"{suffix}.{index}")
        return tuple(made)

    def _count(self) -> None:
        self._made += 1
        self._allowance.spend(_UNITS_A_NODE)
        if self._made > MAX_NODES:
            raise refuse("too_many_nodes", "", f"repeats may unroll a page to at most {MAX_NODES} elements")


def _condition_of(element: JsonObject, scope: Scope) -> RepeatCondition:
    if "repeat" in element and scope.item_path is None:
        return split_repeat_condition(element["visible"])
    return RepeatCondition(element["visible"], True)


def resolve_page(site: Site, page: str, *, with_hidden: bool = False) -> Node:
    """Return the tree of a page whose structure has no errors.

    Args:
        site: the whole site, because a page may share elements of the index page.
        page: path of the page.
        with_hidden: keep what `visible` hides, so that it can be checked too.

    Raises:
        SpecError: the page unrolls to too much, or hides its own root (the spec's fault).
    """
    return _Resolver(site, with_hidden=with_hidden, allowance=Allowance()).page(page)


def resolve_site(site: Site, *, with_hidden: bool = False) -> dict[str, Node]:
    """Return the trees of all pages by path; one allowance holds for all of them.

    Raises:
        SpecError: as `resolve_page`.
    """
    resolver = _Resolver(site, with_hidden=with_hidden, allowance=Allowance())
    return {path: resolver.page(path) for path in sorted(site.pages)}


def walk(node: Node) -> list[Node]:
    """Return a node and everything below it, in document order."""
    found = [node]
    for child in node.children:
        found += walk(child)
    for filling in node.slots.values():
        for child in filling:
            found += walk(child)
    return found
