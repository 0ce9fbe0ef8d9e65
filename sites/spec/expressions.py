"""Resolve json-render's expressions and conditions, and with them a page to its tree.

A static page has one state: the one written in the spec. So `$state`, `$item`, `$index`, `$cond` and `$template` have
one value each, and a two-way binding (`$bindState`, `$bindItem`) only shows that value. Resolving also
unrolls repeats and fetches shared elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sites.errors import refuse
from sites.spec.languages.versions import languages_of
from sites.spec.model import JsonObject, Site, pointer
from sites.spec.state import (
    MAX_PATH_CHARS,
    MISSING,
    UNITS_A_VALUE,
    Allowance,
    Complaint,
    Scope,
    is_number,
    is_same,
    is_truthy,
    join_paths,
    look_up,
    repeat_path,
    text_of,
    value_of,
)

if TYPE_CHECKING:
    from sites.spec.catalog import Props


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
    """Evaluate a `visible` condition that passed `complaint_about_condition`.

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
    """The condition of a repeating element, in two parts."""

    container: Any
    """Whether the element itself is shown."""
    item: Any
    """Which items it shows."""


def split_repeat_condition(condition: Any) -> RepeatCondition:
    """Split the parts about an item off the condition of an outermost repeat: they filter its items."""
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


def resolve(value: Any, scope: Scope) -> Any:
    """Return a prop value with all expressions replaced by their values.

    The expressions must have passed `complaint_about`.

    Raises:
        SpecError: the scope's allowance is used up.
    """
    units = _units_of_static(value)
    if units is None:
        return _resolve_parts(value, scope)
    scope.allowance.spend(units)
    return value


def _units_of_static(value: Any) -> int | None:
    """Return the cost of passing on a literal value; None for a value with an expression in it."""
    units, items = 0, [value]
    for item in items:
        if isinstance(item, str):
            units += len(item)
        elif isinstance(item, dict):
            if not _KINDS.isdisjoint(item):
                return None
            items += item.values()
        elif isinstance(item, list):
            items += item
    return units + UNITS_A_VALUE * len(items)


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
        is_expression = any(isinstance(key, str) and key.startswith("$") for key in value)
        if is_expression and (found := _complaint_about_expression(value)):
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
    """Yield a template's text with each `${path}` replaced; an unclosed one is plain text."""
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


SHARED_TYPE: Final = "Shared"
MAX_NODES: Final = 3000
"""The most nodes of a page with its repeats unrolled."""
_UNITS_A_NODE: Final = 100
_ALWAYS: Final = RepeatCondition(True, True)


_NO_SLOTS: Final[Mapping[str, tuple[Node, ...]]] = MappingProxyType({})


@dataclass(slots=True)
class Node:
    """One element to render; only `checked` ever changes."""

    type: str
    id: str
    """The element's key; inside a repeat, with the item's index."""
    page: str
    """The path of the element's page."""
    key: str
    props: JsonObject
    children: tuple[Node, ...]
    slots: Mapping[str, tuple[Node, ...]]
    checked: Props | None = field(default=None, init=False, compare=False, repr=False)
    """The props as their component's model, once validated."""

    @property
    def anchors(self) -> tuple[str, ...]:
        """Where links can lead: to the element, and to entries of its lists that have an anchor of their own."""
        entries = (entry for value in self.props.values() if isinstance(value, list) for entry in value)
        own = (entry.get("anchor") for entry in entries if isinstance(entry, dict))
        return (self.id, *(f"{self.id}.{anchor}" for anchor in own if anchor))

    @property
    def path(self) -> str:
        """The JSON pointer of the source element."""
        return pointer("pages", self.page, "elements", self.key)


class _Resolver:
    """Unrolls pages and counts nodes, because repeats multiply."""

    def __init__(self, site: Site, *, with_hidden: bool) -> None:
        self._site = site
        self._with_hidden = with_hidden
        self._allowance = Allowance()
        self._made = 0
        self._languages = languages_of(site)

    def page(self, path: str) -> Node:
        """Return the tree of one page."""
        spec = self._site.pages[path]
        self._made = 0
        root = self._node(path, spec["root"], Scope(spec.get("state", {}), allowance=self._allowance), suffix="")
        if root is None:
            raise refuse("hidden_root", pointer("pages", path, "elements", spec["root"]), "a page cannot hide itself")
        return root

    def _node(self, page: str, key: str, scope: Scope, suffix: str) -> Node | None:
        """Return the nodes of one element; none if it is hidden."""
        element = self._site.pages[page]["elements"][key]
        condition = _ALWAYS
        if "visible" in element:
            condition = _condition_of(element, scope)
            if not is_visible(self._with_hidden or condition.container, scope):
                return None
        if element["type"] == SHARED_TYPE:
            return self._shared(page, element, scope)
        self._made += 1
        self._allowance.spend(_UNITS_A_NODE)
        if self._made > MAX_NODES:
            raise refuse("too_many_nodes", "", f"repeats may unroll a page to at most {MAX_NODES} elements")
        props = resolve(element.get("props", {}), scope)
        slots = _NO_SLOTS
        if "slots" in element:
            slots = {name: self._all(page, keys, scope, suffix) for name, keys in sorted(element["slots"].items())}
        if "repeat" in element:
            children = self._repeated(page, element, condition.item, scope, suffix)
        else:
            children = self._all(page, element.get("children"), scope, suffix)
        return Node(element["type"], key + suffix, page, key, props, children, slots)

    def _shared(self, page: str, element: JsonObject, scope: Scope) -> Node | None:
        key = resolve(element.get("props", {}), scope).get("of")
        home = self._languages.home_with(self._site, page, key)
        home_scope = Scope(self._site.pages[home].get("state", {}), allowance=self._allowance)
        return self._node(home, key, home_scope, suffix="")

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


def _condition_of(element: JsonObject, scope: Scope) -> RepeatCondition:
    if "repeat" in element and scope.item_path is None:
        return split_repeat_condition(element["visible"])
    return RepeatCondition(element["visible"], True)


def resolve_site(site: Site, *, with_hidden: bool = False) -> dict[str, Node]:
    """Return the trees of all pages by path, whose structure has no errors; `with_hidden` with what `visible` hides.

    Raises:
        SpecError: a page unrolls to too much, or hides its own root (the spec's fault).
    """
    resolver = _Resolver(site, with_hidden=with_hidden)
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
