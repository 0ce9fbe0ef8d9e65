"""Validate a site by all rules, repair it losslessly, and collect findings.

Findings carry the spec path, so that a model's repair round, a scan and a reviewer point at the same place
(H-025).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from pydantic import ValidationError

from sites.errors import Finding, SpecError, errors_of, shown
from sites.spec.catalog import Component, Props, components
from sites.spec.expressions import SHARED_TYPE, Node, resolve_site, walk
from sites.spec.html import is_external
from sites.spec.languages.versions import keys_below_root, languages_of
from sites.spec.model import INDEX, JsonObject, Site, pointer, strings_in
from sites.spec.state import is_equal
from sites.spec.structure import MISPLACED_FIELDS, check_page

_MAX_FINDINGS = 100
_LIFTED_FIELDS = frozenset({*MISPLACED_FIELDS, "children"})
_CODES = {
    "extra_forbidden": "unknown_prop",
    "missing": "missing_prop",
    "bad_url": "bad_url",
    "bad_colour": "bad_colour",
}


def validate(site: Site) -> list[Finding]:
    """Return the errors of a site, or else its warnings: elements that nothing shows and links that lead nowhere.

    There are at most 100; it never raises.
    """
    try:
        trees, warnings = _checked(site)
    except SpecError as error:
        return list(error.findings)
    return [*warnings, *_check_links(site, trees)][:_MAX_FINDINGS]


def require_valid(site: Site) -> Mapping[str, Node]:
    """Check a site, once.

    Returns:
        The trees of its pages, by path in order.

    Raises:
        SpecError: it has errors (the spec's fault). Warnings are no errors.
    """
    if site.trees is not None:
        return site.trees
    trees, _ = _checked(site)
    object.__setattr__(site, "trees", trees)
    return trees


def auto_fix(pages: Mapping[str, JsonObject]) -> None:
    """Move fields that are inside `props` by mistake to where json-render wants them, in place, losing nothing.

    Upstream's fix of the same name lets the misplaced field replace one that is already in place; where the two differ,
    that loses one of them, so here both stay and the rule refuses them. Its other repair, to prune dangling children,
    loses content too (upstream calls it lossy) and is left to the model.
    """
    tables = [page["elements"] for page in pages.values() if isinstance(page.get("elements"), dict)]
    for element in chain.from_iterable(elements.values() for elements in tables):
        props = element.get("props") if isinstance(element, dict) else None
        if not isinstance(props, dict):
            continue
        for name in sorted(props.keys() & _LIFTED_FIELDS):
            is_leaf = name == "children" and element.get(name) == []  # every leaf has an empty list of children
            if is_leaf or name not in element or is_equal(element[name], props[name]):
                element[name] = props.pop(name)


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


def _checked(site: Site) -> tuple[Mapping[str, Node], list[Finding]]:
    """Return the trees of a valid site's pages, and warnings."""
    catalog = components()
    pages = sorted(site.pages.items())
    found = [finding for path, page in pages for finding in check_page(page, catalog, base=pointer("pages", path))]
    _refuse(errors_of(found))
    _refuse(_check_shared(site))
    trees = resolve_site(site, with_hidden=True)
    may_hide = any("visible" in element for page in site.pages.values() for element in page["elements"].values())
    shown_trees = resolve_site(site) if may_hide else trees
    _refuse(_check_resolved(site, trees, catalog))
    return shown_trees, found


def _refuse(findings: Sequence[Finding]) -> None:
    if findings:
        raise SpecError(tuple(findings[:_MAX_FINDINGS]))


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
        for place, href in strings_in(node.props)
        if place[-1] == "href"
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
