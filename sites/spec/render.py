"""Render a valid site to HTML and CSS files, byte for byte the same every time (H-012, H-024).

No page has an inline style or an event handler, so a strict Content-Security-Policy fits them all. A
file belongs to the spec while its bytes equal its render. Once edited beyond what the spec can say (`read_back`) it is
detached: other files are still rendered, and a change of the spec that needs the detached file is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sites.errors import DetachedPagesError
from sites.spec import live
from sites.spec.catalog import Props, RenderContext, SiteFacts, component_rules, components, first_heading
from sites.spec.components.page import PageProps
from sites.spec.expressions import Node, walk
from sites.spec.fonts.families import font_files, is_shipped, path_of
from sites.spec.html import Html, is_external, language_links, relative_to, say, tag
from sites.spec.languages.versions import Version, direction, languages_of
from sites.spec.model import INDEX, Site, strings_in
from sites.spec.stylesheet import is_as_it_was_made, stylesheet
from sites.spec.theme import Theme, contrast_note, font_notes, fonts_of, style_classes, theme_class
from sites.spec.validate import props_of, require_valid

STYLESHEET = "styles.css"
_ADDRESSES: Final = frozenset({"src", "href", "captions"})
"""Props that name a file."""


def render(site: Site) -> dict[str, bytes]:
    """Return the site's pages, `styles.css` and the fonts that come with it by path; assets are not part of the spec.

    Raises:
        SpecError: the site is invalid (the spec's fault).
    """
    trees = require_valid(site)
    pages = {path: _page_props(tree) for path, tree in trees.items()}
    main = pages[INDEX].theme or Theme()
    others = {path: props.theme for path, props in pages.items() if props.theme and props.theme != main}
    facts = SiteFacts(languages_of(site), trees, pages[INDEX].url or "")
    files = {
        path: _document(path, trees[path], pages[path], theme=others.get(path), base=main, facts=facts)
        for path in trees
    }
    classes = {theme_class(theme): theme for theme in others.values()}
    fonts = font_files(font for theme in (main, *classes.values()) for font in fonts_of(theme))
    return files | {STYLESHEET: stylesheet(main, classes, component_rules())} | fonts


def render_tree(site: Site, path: str, root: Node) -> bytes:
    """Return a page of a valid site, rendered from another tree than its own whose props are checked."""
    trees = require_valid(site)
    theme, home = _page_props(trees[path]).theme, _page_props(trees[INDEX])
    main = home.theme or Theme()
    facts, own = SiteFacts(languages_of(site), trees, home.url or ""), theme if theme != main else None
    return _document(path, root, _page_props(root), theme=own, base=main, facts=facts)


def referenced_assets(site: Site) -> frozenset[str]:
    """Return the paths of the site's own files, other than pages, that its pages show or link to.

    Raises:
        SpecError: the site is invalid.
    """
    found = {
        address.lstrip("/").split("#")[0].split("?")[0]
        for tree in require_valid(site).values()
        for node in walk(tree)
        for place, address in strings_in(node.props)
        if place[-1] in _ADDRESSES and not is_external(address) and address[:1] not in "#?"
    }
    return frozenset(found - set(site.pages))


def page_theme(site: Site, path: str) -> Theme | None:
    """Return the theme that a page of a valid site says, with its expressions evaluated."""
    return _page_props(require_valid(site)[path]).theme


def theme_notes(site: Site, lang: str, *, before: Site | None = None) -> tuple[str, ...]:
    """Return notes, in a language, on what is not as a theme says that was another `before`: fonts, faint colours."""
    notes: list[str | None] = []
    for path, root in require_valid(site).items():
        if (theme := _page_props(root).theme) and not (
            before and path in before.pages and page_theme(before, path) == theme
        ):
            notes += [*font_notes(root.props["theme"], lang), contrast_note(theme, lang)]
    return tuple(dict.fromkeys(note for note in notes if note))


class _Renderer:
    """Renders the elements of a page; a closure would hold itself, and so the page, until garbage is collected."""

    __slots__ = ("_catalog", "_facts", "_first", "_lang", "_path", "_theme_class")

    def __init__(self, path: str, lang: str, first: Node | None, theme_class: str | None, facts: SiteFacts) -> None:
        self._path, self._lang, self._first, self._theme_class, self._facts = path, lang, first, theme_class, facts
        self._catalog = components()

    def __call__(self, nodes: tuple[Node, ...], level: int) -> list[Html]:
        """Return elements as markup; `level` is that of their own headings, the page's first one apart."""
        markup, level = [], max(level, 2)
        for node in nodes:
            component = self._catalog[node.type]
            own_level = 1 if node is self._first else level
            context = RenderContext(
                node, node.id, own_level, self._path, self._lang, self, self._theme_class, self._facts
            )
            markup.append(component.render(props_of(node, component), context))
        return markup


def _document(path: str, root: Node, props: PageProps, *, theme: Theme | None, base: Theme, facts: SiteFacts) -> bytes:
    catalog = components()
    first = first_heading(root)
    class_ = theme_class(theme) if theme else None
    render_each = _Renderer(path, props.lang, first, class_, facts)
    regions: dict[str, list[Html | None]] = {"header": [], "main": [], "footer": []}
    for node, markup in zip(root.children, render_each(root.children, 2), strict=True):
        regions[catalog[node.type].place].append(markup)
    title = None if first else tag("h1", props.title, class_="visually-hidden")
    body = tag(
        "body",
        tag("a", say("Skip to content", props.lang), class_="skip", href="#page.main"),
        *(regions["header"] or [language_links(path, props.lang, facts.languages)]),
        tag("main", title, *regions["main"], id="page.main", tabindex="-1"),
        *regions["footer"],
        live.script() if any(live.MARK in (each or "") for region in regions.values() for each in region) else None,
    )
    head = _head(path, props, theme or base, facts)
    classes = " ".join([*([class_] if class_ else []), *style_classes(theme or base)]) or None
    html = tag("html", head, body, lang=props.lang, dir=direction(props.lang), class_=classes)
    return f"<!doctype html>\n{html}\n".encode()


def _head(path: str, props: PageProps, theme: Theme, facts: SiteFacts) -> Html:
    versions: Sequence[Version] = facts.languages.of(path)
    scheme = {"auto": "light dark", "light": "light", "dark": "dark"}[theme.mode]
    font = path_of(fonts_of(theme)[0])
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", props.title),
        tag("meta", name="description", content=props.description) if props.description else None,
        tag("meta", name="color-scheme", content=scheme),
        _preload(relative_to(path, font)) if font else None,
        tag("link", rel="stylesheet", href=relative_to(path, STYLESHEET)),
        *(_alternate(path, version.lang, version.path, facts.url) for version in versions),
        _alternate(path, "x-default", versions[0].path, facts.url) if versions else None,
    )


def _preload(font: str) -> Html:
    """Return what has a browser fetch a font before it meets words that are set in it; its request has no cookies."""
    return tag("link", rel="preload", href=font, as_="font", type="font/woff2", crossorigin=True)


def _alternate(path: str, lang: str, version: str, url: str) -> Html:
    """Return the link to a version; search engines want it whole, which only a known address of the site allows."""
    href = url + version.removesuffix(INDEX) if url else relative_to(path, version)
    return tag("link", rel="alternate", hreflang=lang, href=href)


def _page_props(root: Node) -> PageProps:
    props: Props = props_of(root, components()[root.type])
    assert isinstance(props, PageProps)
    return props


def detached_files(site: Site, files: Mapping[str, bytes]) -> frozenset[str]:
    """Return the pages and style sheet whose files differ from their render or are missing.

    A stylesheet of another version is none: an edit brings it up to date.
    """
    built = render(site)
    return frozenset(
        path
        for path, data in built.items()
        if files.get(path) != data and not is_shipped(path)
        if path != STYLESHEET or not is_as_it_was_made(files.get(path, b""))
    )


def render_onto(before: Site, after: Site, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return a site's files after a change of its spec; detached files stay as they are.

    Raises:
        DetachedPagesError: the change needs a detached page, or a file outside the spec.
    """
    old, new = render(before), render(after)
    if is_as_it_was_made(files.get(STYLESHEET, b"")):
        files = {**files, STYLESHEET: old[STYLESHEET]}
    changed = {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}
    kept = {path: old.get(path) if is_shipped(path) and path not in files else files.get(path) for path in changed}
    if lost := sorted(path for path, data in kept.items() if data != old.get(path)):
        raise DetachedPagesError(tuple(lost))
    untouched = {path: data for path, data in files.items() if path not in changed}
    return untouched | {path: new[path] for path in sorted(changed & new.keys())}
