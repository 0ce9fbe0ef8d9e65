"""Read a change of rendered pages back into the spec, so that an edited page stays with its spec (issue 20).

A page is rendered once more with a private mark in place of each text and address of the spec: where a mark comes out,
that text is shown. The edited page, compared with the render element by element, gives the texts that changed, the
entries of lists and the sections that were taken out, added or moved. Whatever is read is only a proposal. The proof is
that the changed spec renders the edited bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel

from sites.errors import SpecError
from sites.spec.catalog import components
from sites.spec.expressions import Node
from sites.spec.html import is_external
from sites.spec.model import INDEX, Site, parse_site
from sites.spec.page_tree import Element, MismatchError, Place, parse_rendered, prose_of, said
from sites.spec.render import render, render_tree
from sites.spec.theme import Theme
from sites.spec.validate import props_of, require_valid

Changes = dict[Place, Any]
_GONE: Final = object()
_FIRST_MARK: Final = 0xF0000
_MARK: Final = re.compile(r"[\U000F0000-\U000FFFFD]")
_MAX_TRIES: Final = 24
"""Other values of choices, and further texts, to try for one page; each costs some milliseconds."""
_MAX_GROWTH: Final = 20_000
"""Bytes that an edit may add to a page."""
_MAX_ENTRIES: Final = 200
_LISTS: Final = frozenset({"ul", "ol", "dl", "table", "thead", "tbody"})
"""What holds entries and never is one."""


def read_back(site: Site, files: Mapping[str, bytes]) -> Site | None:
    """Return the spec that says what edited pages say; None if it can hold nothing of it.

    Returns:
        A valid site with more pages whose files are their render; no file has to change for it.
    """
    found = None
    rendered = render(site)
    for path in sorted(site.pages, key=lambda path: (path != INDEX, path)):
        edited = files.get(path)
        if edited is None or edited == rendered[path] or len(edited) > len(rendered[path]) + _MAX_GROWTH:
            continue
        after = _read_page(site, path, edited.decode(errors="replace"))
        after_files = render(after) if after is not None else {}
        changed = {name for name, data in after_files.items() if data != rendered[name]}
        if after is not None and changed and all(after_files[name] == files.get(name) for name in changed):
            found, site, rendered = after, after, after_files
    return found


def _read_page(site: Site, path: str, edited: str) -> Site | None:
    """Return the spec that says what an edited page says, as far as it can be read."""
    wanted = parse_rendered(edited)
    if wanted is None:
        return None
    tries = _MAX_TRIES
    site = _proposed(site, path, wanted) or site
    for id, part in _parts(site, path).items():
        target = _by_id(wanted, id)
        if target is None or target == part:
            continue
        for variant in _variants(site, path, id):
            if tries == 0:
                return None
            tries -= 1
            found = _proposed(variant, path, wanted) or variant
            if _parts(found, path).get(id) == target:
                site = found
                break
    return site if render(site)[path].decode() == edited else None


def _proposed(site: Site, path: str, wanted: Element) -> Site | None:
    """Return the site with all changes that can be read from an edited page; None if there is no such valid site."""
    shown = parse_rendered(render(site)[path].decode())
    marked, marks = _marked_page(site, path)
    assert shown is not None
    _locate(shown, marked, marks, site)
    parents = {
        (page, child): (page, key)
        for page, spec in site.pages.items()
        for key, element in spec["elements"].items()
        for child in element.get("children") or ()
    }
    try:
        changes = _Reader(site, parents, frozenset(marks)).read(shown, wanted)
        return _apply(site, changes)
    except (MismatchError, SpecError, LookupError, TypeError):
        return None


def _parts(site: Site, path: str) -> dict[str, Element]:
    """Return the markup of a page's elements directly below its root, by id."""
    page = parse_rendered(render(site)[path].decode())
    assert page is not None
    found = {node.id: _by_id(page, node.id) for node in require_valid(site)[path].children}
    return {id: part for id, part in found.items() if part is not None}


def _by_id(page: Element, id: str) -> Element | None:
    return next((each for each in page.elements() if each.attributes.get("id") == id), None)


def _variants(site: Site, path: str, id: str) -> Iterator[Site]:
    """Yield the valid sites in which an element has one other choice, or it or an entry of it one more text."""
    node = next(node for node in require_valid(site)[path].children if node.id == id)
    raw = site.pages[node.page]["elements"][node.key].get("props", {})
    for place, value in _other_props(components()[node.type].props, raw):
        try:
            yield _apply(site, {(node.page, "elements", node.key, "props", *place): value})
        except SpecError:
            continue


def _other_props(props: type[BaseModel], raw: Mapping[str, Any]) -> Iterator[tuple[Place, Any]]:
    """Yield another value of each choice, and one for each text that the props, or no entry of their lists, have."""
    for name, info in props.model_fields.items():
        values = _choices(info.annotation)
        if not values and name not in raw and str in _kinds(info.annotation):
            values = ("Text",)
        yield from (((name,), value) for value in values if raw.get(name, info.default) != value)
        for kind in _kinds(info.annotation):
            entry, entries = (get_args(kind) or (None,))[0], raw.get(name)
            if isinstance(entry, type) and issubclass(entry, BaseModel) and isinstance(entries, list) and entries:
                known = dict.fromkeys(part for each in entries for part in each)
                yield from (
                    ((name, 0, *place), value) for place, value in _other_props(entry, known) if value == "Text"
                )


def _kinds(annotation: Any) -> frozenset[Any]:
    """Return the plain types and the choices that a field may hold directly."""
    parts = get_args(annotation)
    if get_origin(annotation) is Literal or not parts or get_origin(annotation) is tuple:
        return frozenset({annotation})
    return frozenset(kind for part in parts for kind in _kinds(part))


def _choices(annotation: Any) -> tuple[Any, ...]:
    kinds = _kinds(annotation)
    found = [value for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]
    return (*found, *((False, True) if bool in kinds and str not in kinds else ()))


def _marked_page(site: Site, path: str) -> tuple[Element, list[Place]]:
    """Return a page with a mark in place of each text that its spec spells out, and the place of each mark."""
    marks: list[Place] = []
    root = _marked_node(site, require_valid(site)[path], marks)
    page = parse_rendered(render_tree(site, path, root).decode())
    assert page is not None
    return page, marks


def _marked_node(site: Site, node: Node, marks: list[Place]) -> Node:
    children = tuple(_marked_node(site, child, marks) for child in node.children)
    slots = {name: tuple(_marked_node(site, child, marks) for child in held) for name, held in node.slots.items()}
    copy = Node(node.type, node.id, node.page, node.key, node.props, children, slots)
    props = props_of(node, components()[node.type])
    if node.id == node.key:  # otherwise it shows an item of `state`
        raw = site.pages[node.page]["elements"][node.key].get("props", {})
        props = _marked(props, raw, (node.page, "elements", node.key, "props"), marks)
    copy.checked = props
    return copy


def _marked(value: Any, raw: Any, place: Place, marks: list[Place]) -> Any:
    """Return props with their texts marked, but not choices, themes, and what an expression gives."""
    if isinstance(value, BaseModel) and isinstance(raw, dict) and not isinstance(value, Theme):
        names = [
            name
            for name, info in type(value).model_fields.items()
            if name in raw
            and name not in ("lang", "date")
            and not any(get_origin(kind) is Literal for kind in _kinds(info.annotation))
        ]
        marked = {name: _marked(getattr(value, name), raw[name], (*place, name), marks) for name in names}
        return value.model_copy(update=marked)
    if isinstance(value, tuple) and isinstance(raw, list):
        return tuple(_marked(item, raw[at], (*place, at), marks) for at, item in enumerate(value))
    if isinstance(value, str) and isinstance(raw, str):
        marks.append(place)
        mark = chr(_FIRST_MARK + len(marks) - 1)
        return f"https:{mark}" if is_external(value) else mark
    return value


def _locate(shown: Element, marked: Element, marks: Sequence[Place], site: Site) -> None:
    """Note on an element of the render where it shows which text; what is derived from a text has no place."""
    for name, value in marked.attributes.items():
        _note(shown, name, value, shown.attributes.get(name), marks, site)
    if [child.name for child in marked.children if isinstance(child, Element)] == ["p"] and len(marked.children) == 1:
        (only,) = marked.children
        assert isinstance(only, Element)
        if not only.attributes and len(only.children) == 1 and _MARK.fullmatch(str(only.children[0])):
            shown.prose = marks[ord(str(only.children[0])) - _FIRST_MARK]
    at = 0
    for child in marked.children:
        while at < len(shown.children) and not _is_alike(child, shown.children[at]):
            at += 1  # such as a mark before a link that its address calls for
        if at == len(shown.children):
            return
        other = shown.children[at]
        if isinstance(child, str):
            _note(shown, at, child, str(other), marks, site)
        elif isinstance(other, Element):
            _locate(other, child, marks, site)
        at += 1


def _is_alike(one: Element | str, other: Element | str) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str)
    return one.name == other.name


def _note(shown: Element, where: str | int, marked: str, text: str | None, marks: Sequence[Place], site: Site) -> None:
    found = _MARK.findall(marked)
    if len(found) == 1 and text is not None:
        before, after = marked.split(found[0])
        before = before.removesuffix("https:")
        place = marks[ord(found[0]) - _FIRST_MARK]
        if before + str(_look_up(site.pages, place)).lstrip("/" if where in ("href", "src") else "") + after == text:
            shown.slots[where] = (place, before, after)


@dataclass(frozen=True)
class _Reader:
    """Compares the render of a page with its edited form."""

    site: Site
    parents: Mapping[tuple[str, str], tuple[str, str]]
    """Page and key of each element's parent, by its own."""
    places: frozenset[Place]
    """Of all texts of the page."""
    inside: tuple[Place, ...] = ()
    """The lists whose entries are being compared."""

    def read(self, shown: Element, wanted: Element) -> Changes:
        """Return what an edit changed in the spec.

        Raises:
            MismatchError: the edited element holds something that cannot be read.
        """
        if shown == wanted:
            return {}
        if shown.name != wanted.name:
            raise MismatchError
        changes: Changes = {}
        for name, slot in shown.slots.items():
            if (
                isinstance(name, str)
                and name in wanted.attributes
                and wanted.attributes[name] != shown.attributes[name]
            ):
                changes[slot[0]] = _value(slot, wanted.attributes[name], is_address=name in ("href", "src"))
        if shown.prose is not None and wanted.children:
            try:
                return changes | {shown.prose: prose_of(wanted)}
            except MismatchError:
                return changes | self._contents(shown, wanted)
        return changes | self._contents(shown, wanted)

    def _contents(self, shown: Element, wanted: Element) -> Changes:
        entries = [self._entry(child) for child in shown.children]
        changes: Changes = {}
        at, end = 0, 0
        while at < len(shown.children):
            child, entry = shown.children[at], entries[at]
            if entry is not None:
                stop = at + 1
                while stop < len(entries) and (other := entries[stop]) is not None and other[:-1] == entry[:-1]:
                    stop += 1
                follower = shown.children[stop] if stop < len(entries) else None
                start = end
                while end < len(wanted.children) and not _fits(follower, wanted.children[end]):
                    end += 1
                changes |= self._run(shown.children[at:stop], entries[at:stop], wanted.children[start:end])
                at = stop
                continue
            other_child = wanted.children[end] if end < len(wanted.children) else None
            rest = (len(shown.children) - at) - (len(wanted.children) - end)
            if other_child is not None and (_fits(child, other_child) or (rest == 0 and _is_alike(child, other_child))):
                if isinstance(child, str) or isinstance(other_child, str):
                    changes |= _text_change(shown, at, child, other_child)
                else:
                    changes |= self.read(child, other_child)
                end += 1
            else:
                changes |= self._removal(child)
            at += 1
        if end != len(wanted.children):
            raise MismatchError
        return changes

    def _entry(self, child: Element | str) -> Place | None:
        """Return the place of the section or list entry that an element of the render stands for, whole."""
        if isinstance(child, str):
            return None
        places = child.places
        if not places:
            return None
        first = min(places)
        key = child.attributes.get("id")
        if key is not None and (first[0], key) in self.parents:
            return (first[0], "elements", key)
        for length in range(5, len(first)):
            prefix = first[: length + 1]
            if isinstance(prefix[-1], int) and prefix[:-1] not in self.inside and child.name not in _LISTS:
                whole = {place for place in self.places if place[: length + 1] == prefix}
                if places == whole:
                    return prefix
        return None

    def _removal(self, child: Element | str) -> Changes:
        """Return the change that takes out all that an element shows."""
        places = child.places if isinstance(child, Element) else set()
        if not places:
            raise MismatchError
        gone: Changes = {}
        for place in places:
            steps = [at for at, step in enumerate(place) if isinstance(step, int)]
            entry = next((at for at in reversed(steps) if place[:at] in self.inside), None)
            end = min(*steps, 5, len(place)) if entry is None else entry + 2
            gone[place[:end]] = _GONE
        return gone

    def _run(
        self, shown: Sequence[Element | str], entries: Sequence[Place | None], wanted: Sequence[Element | str]
    ) -> Changes:
        """Read sections or list entries side by side, of which some may be new, gone or moved."""
        sources = [(child, place) for child, place in zip(shown, entries, strict=True) if place is not None]
        changes: Changes = {}
        is_list = isinstance(sources[0][1][-1], int)
        if len(wanted) > _MAX_ENTRIES:
            raise MismatchError
        reader = replace(self, inside=(*self.inside, sources[0][1][:-1]))
        unused, kept = list(sources), []
        exact = {id(child) for child in wanted if any(child == source for source, _ in sources)}
        for child in wanted:
            if isinstance(child, str):
                raise MismatchError
            pool = unused if id(child) in exact else [each for each in unused if each[0] not in wanted]
            read = reader._source(child, pool)
            is_new = read is None
            source, found = read or reader._source(child, sources) or (None, {})
            if source is None:
                raise MismatchError
            if not is_new:
                unused.remove(source)
            if is_list:
                inner = {place: value for place, value in found.items() if place[: len(source[1])] == source[1]}
                changes |= {place: value for place, value in found.items() if place not in inner}
                kept.append(_changed(_look_up(self.site.pages, source[1]), len(source[1]), inner))
            elif is_new:
                kept.append(self._copy(child, source[1], found, changes))
            else:
                changes |= found
                kept.append(source[1][-1])
        return changes | self._rewritten(sources, kept, is_list=is_list)

    def _source(
        self, child: Element, pool: Sequence[tuple[Element | str, Place]]
    ) -> tuple[tuple[Element | str, Place], Changes] | None:
        """Return the element of the render that an edited one comes from, or looks most like, and the changes."""
        own = said(child)

        def likeness(source: tuple[Element | str, Place]) -> tuple[bool, bool, int]:
            element = source[0]
            assert isinstance(element, Element)
            same_id = "id" in child.attributes and child.attributes["id"] == element.attributes.get("id")
            return element == child, same_id, len(said(element) & own)

        for source in sorted(pool, key=likeness, reverse=True):
            element = source[0]
            assert isinstance(element, Element)
            try:
                return source, self.read(element, child)
            except MismatchError:
                if likeness(source)[1]:
                    return source, {}  # the rest of the page can still be read
        return None

    def _copy(self, child: Element, source: Place, found: Changes, changes: Changes) -> str:
        """Note a new section that is written like another one; return its key."""
        page, _, key = source
        element = self.site.pages[str(page)]["elements"][key]
        new = child.attributes.get("id", "")
        if not new or element.get("children") or element.get("slots") or (str(page), new) in self.parents:
            raise MismatchError
        changes[(page, "elements", new)] = _changed(element, len(source), found)
        return new

    def _rewritten(
        self, sources: Sequence[tuple[Element | str, Place]], kept: Sequence[Any], *, is_list: bool
    ) -> Changes:
        """Return the change of a list of entries, or of children, to those that are left."""
        first = sources[0][1]
        if is_list:
            place = first[:-1]
            before = _look_up(self.site.pages, place)
        else:
            page, parent = self.parents[str(first[0]), str(first[-1])]
            place = (page, "elements", parent, "children")
            before = _look_up(self.site.pages, place)
        names = [source[1][-1] for source in sources]
        held = [before[at] if is_list else at for at in names]
        if list(kept) == held:
            return {}
        if is_list:
            return {place: list(kept) if kept else _GONE}
        start = before.index(held[0])
        if before[start : start + len(held)] != held:
            raise MismatchError
        gone: Changes = {(first[0], "elements", key): _GONE for key in held if key not in kept}
        return {place: [*before[:start], *kept, *before[start + len(held) :]], **gone}


def _fits(shown: Element | str | None, wanted: Element | str) -> bool:
    if shown is None or isinstance(shown, str) or isinstance(wanted, str):
        return isinstance(shown, str) and isinstance(wanted, str)
    return shown.name == wanted.name and shown.attributes.get("class") == wanted.attributes.get("class")


def _text_change(shown: Element, at: int, old: Element | str, new: Element | str) -> Changes:
    if old == new:
        return {}
    if at not in shown.slots or not isinstance(new, str):
        return {}  # derived, or beyond the catalog: the proof finds it
    return {shown.slots[at][0]: _value(shown.slots[at], new)}


def _value(slot: tuple[Place, str, str], text: str, *, is_address: bool = False) -> str:
    _, before, after = slot
    if is_address and is_external(text):
        return text
    return text.removeprefix(before).removesuffix(after)


def _look_up(value: Any, place: Place) -> Any:
    for step in place:
        value = value[step]
    return value


def _changed(value: Any, depth: int, changes: Changes) -> Any:
    """Return a copy of a value with changes inside it, whose places start `depth` steps further up."""
    holder = [deepcopy(value)]
    for place, new in sorted(changes.items(), key=lambda change: -len(change[0])):
        steps: Place = (0, *place[depth:])
        owner = _look_up(holder, steps[:-1])
        if new is _GONE:
            owner.pop(steps[-1], None) if isinstance(owner, dict) else owner.pop(steps[-1])
        else:
            owner[steps[-1]] = new
    return holder[0]


def _apply(site: Site, changes: Changes) -> Site:
    """Return the site after changes, valid.

    Raises:
        SpecError: it breaks a rule.
    """
    changed = parse_site({"pages": _changed(dict(site.pages), 0, changes)})
    require_valid(changed)
    return changed
