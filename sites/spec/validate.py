"""Validate a site by all rules, repair it losslessly, and collect findings.

Findings carry the spec path, so that a model's repair round, a scan and a reviewer point at the same place
(H-025).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError

from sites.errors import Finding, SpecError, errors_of, shown
from sites.spec.catalog import Component, Props, components
from sites.spec.expressions import SHARED_TYPE, Node, resolve_site, walk
from sites.spec.html import is_external
from sites.spec.languages.versions import keys_below_root, languages_of
from sites.spec.model import INDEX, JsonObject, Site, parse_site, pointer, site_of
from sites.spec.state import is_equal
from sites.spec.stream import read_document
from sites.spec.structure import MISPLACED_FIELDS, check_page

_MAX_FINDINGS = 100
_HOLDERS = (dict, list)
_LIFTED_FIELDS = (*MISPLACED_FIELDS, "children")
_CODES = {
    "extra_forbidden": "unknown_prop",
    "missing": "missing_prop",
    "bad_url": "bad_url",
    "bad_colour": "bad_colour",
}


def validate(site: Site) -> list[Finding]:
    """Return the findings on a site, errors and warnings, at most 100; never raises."""
    found = _examine(site)
    findings = found.findings if errors_of(found.findings) else found.findings + _check_links(site, found.trees)
    return findings[:_MAX_FINDINGS]


def require_valid(site: Site) -> Mapping[str, Node]:
    """Check a site, once.

    Returns:
        The trees of its pages, by path in order.

    Raises:
        SpecError: it has errors (the spec's fault). Warnings are no errors.
    """
    if site.trees is not None:
        return site.trees
    found = _examine(site)
    if errors := errors_of(found.findings):
        raise SpecError(errors[:_MAX_FINDINGS])
    object.__setattr__(site, "trees", found.trees)
    return found.trees


def auto_fix(site: Site) -> Site:
    """Move fields that are inside `props` by mistake to where json-render wants them, losing nothing.

    Upstream's fix of the same name lets the misplaced field replace one that is already in place; where the two differ,
    that loses one of them, so here both stay and the rule refuses them. Its other repair, to prune dangling children,
    loses content too (upstream calls it lossy) and is left to the model.
    """
    misplaced = [
        (path, key)
        for path, page in sorted(site.pages.items())
        if isinstance(page.get("elements"), dict)
        for key, element in page["elements"].items()
        if _has_misplaced(element)
    ]
    if not misplaced:
        return site
    document = site.to_dict()
    for path, key in misplaced:
        _lift(document["pages"][path]["elements"][key])
    return Site(document["pages"])


def _has_misplaced(element: Any) -> bool:
    props = element.get("props") if isinstance(element, dict) else None
    return isinstance(props, dict) and not props.keys().isdisjoint(_LIFTED_FIELDS)


def _lift(element: JsonObject) -> None:
    """Move the misplaced fields of one element, in place."""
    props = element["props"]
    for name in _LIFTED_FIELDS:
        if name in props and _is_free(element, name, props[name]):
            element[name] = props.pop(name)


def _is_free(element: Mapping[str, Any], name: str, value: object) -> bool:
    """Whether a field can take a value and lose none: every leaf has an empty list of children."""
    return name not in element or is_equal(element[name], value) or (name == "children" and element[name] == [])


def accept(source: str | bytes | Mapping[str, object], *, repair: bool = True) -> Site:
    """Read, repair losslessly and check a site from a model or an importer.

    Args:
        source: a JSON object, its text, or a SpecStream that builds one.
        repair: move misplaced fields first; without it their rule refuses them, as upstream's validator does.

    Raises:
        SpecError: it breaks a rule (the spec's fault).
    """
    if isinstance(source, bytes):
        source = source.decode(errors="surrogateescape")  # what is no UTF-8 is refused as text below
    site = site_of(read_document(source)) if isinstance(source, str) else parse_site(source)
    if repair:
        site = auto_fix(site)
    require_valid(site)
    return site


def props_of(node: Node, component: Component) -> Props:
    """Return a node's props as its component's model.

    Raises:
        SpecError: the props break the component's rules.
    """
    if node.checked is None:
        try:
            node.checked = component.check(node.props)
        except ValidationError as error:
            raise SpecError(tuple(_findings_of(error, node, component))) from None
    return node.checked


def _check_shared(site: Site) -> list[Finding]:
    findings = []
    languages = languages_of(site)
    for path, page, key in _shared_elements(site):
        target = page["elements"][key].get("props", {}).get("of")
        where = pointer("pages", path, "elements", key)
        if path == INDEX:
            findings.append(Finding("misplaced", where, f"Shared is for the pages beside {INDEX}"))
        elif key not in keys_below_root(page):
            findings.append(Finding("misplaced", where, "Shared stands directly below the root"))
        elif target not in keys_below_root(site.pages[home := languages.home_with(site, path, target)]):
            rule = f"{shown(target)} is no element directly below the root of {home}"
            findings.append(Finding("shared_missing", f"{where}/props/of", rule))
    return findings


def _shared_elements(site: Site) -> list[tuple[str, JsonObject, str]]:
    """Return the elements shared from the index page in order, each with its page and its key there."""
    return [
        (path, page, key)
        for path, page in sorted(site.pages.items())
        for key in sorted([key for key, element in page["elements"].items() if element["type"] == SHARED_TYPE])
    ]


class _Examined(NamedTuple):
    """All findings but those on links, and the trees of the pages if there is no error."""

    findings: list[Finding]
    trees: Mapping[str, Node] = MappingProxyType({})


def _examine(site: Site) -> _Examined:
    catalog = components()
    findings: list[Finding] = []
    for path, page in sorted(site.pages.items()):
        findings += check_page(page, catalog, base=pointer("pages", path))
    if not errors_of(findings):
        findings += _check_shared(site)
    if errors_of(findings):
        return _Examined(findings)
    try:
        trees = resolve_site(site, with_hidden=True)
        may_hide = any("visible" in element for page in site.pages.values() for element in page["elements"].values())
        shown_trees = resolve_site(site) if may_hide else trees
    except SpecError as error:
        return _Examined([*findings, *error.findings])
    return _Examined(findings + _check_resolved(site, trees, catalog), shown_trees)


def _check_resolved(site: Site, trees: Mapping[str, Node], catalog: Mapping[str, Component]) -> list[Finding]:
    findings: dict[Finding, None] = {}
    for node in chain.from_iterable(map(walk, trees.values())):
        try:
            props_of(node, catalog[node.type])
        except SpecError as error:
            findings.update(dict.fromkeys(error.findings))
    for path, page, key in _shared_elements(site):
        if set(page["elements"][key].get("props", {})) != {"of"}:
            where = pointer("pages", path, "elements", key, "props")
            findings[Finding("unknown_prop", where, "Shared has the prop `of` and no other")] = None
    return list(findings)


def _findings_of(error: ValidationError, node: Node, component: Component) -> Iterator[Finding]:
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        where = node.path + "/props" + pointer(*(part for part in problem["loc"]))
        code = _CODES.get(problem["type"], "bad_prop")
        message = problem["msg"]
        if code == "unknown_prop":
            names = ", ".join(component.props.model_fields)
            message = f"{component.name} has no such prop here; its props are {names}"
        yield Finding(code, where[:300], f"{message[0].lower()}{message[1:300]}")


def _check_links(site: Site, trees: Mapping[str, Node]) -> list[Finding]:
    """Warn about links to missing pages and sections, which may still exist outside the spec."""
    findings: dict[Finding, None] = {}
    nodes = {path: walk(tree) for path, tree in trees.items()}
    ids = {path: {anchor for node in below for anchor in node.anchors} for path, below in nodes.items()}
    languages = languages_of(site)
    links = [
        (path, node, place, href)
        for path, below in nodes.items()
        for node in below
        for place, href in _hrefs(node.props)
    ]
    for path, node, place, href in links:
        target, _, fragment = languages.towards(href, path).removeprefix("/").partition("#")
        target = target or (path if fragment in ids[path] else node.page)
        if not target.endswith(".html") or is_external(href):
            continue
        where = f"{node.path}/props{pointer(*place)}"
        if target not in site.pages:
            findings[Finding("broken_link", where, "the site has no such page", "warning")] = None
        elif fragment and fragment not in ids[target]:
            rule = "that page has no section of this name"
            findings[Finding("broken_link", where, rule, "warning")] = None
    return list(findings)


def _hrefs(value: JsonObject | list[Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield every address that a value links to, with its place."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if key == "href" and isinstance(item, str):
            yield (key,), item
        elif isinstance(item, _HOLDERS):
            yield from (((key, *place), href) for place, href in _hrefs(item))
