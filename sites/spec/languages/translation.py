"""A site's texts in another language, written by a model as a list: numbered texts in, numbered translations out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from copy import deepcopy
from typing import Any, Final, NamedTuple

from routing.model_call import SUMMARY, WAYS_OUT
from sites.errors import refuse
from sites.spec.catalog import SectionProps, components
from sites.spec.expressions import SHARED_TYPE
from sites.spec.html import say
from sites.spec.languages.address import address_forms
from sites.spec.languages.typography import typeset_text, with_prices
from sites.spec.languages.versions import lang_of, languages_of, primary, props_to_set, root_props
from sites.spec.model import INDEX, MAX_PAGES, JsonObject, Site, parse_site
from sites.spec.quality import is_copy
from sites.spec.structure import keys_below
from sites.spec.validate import require_valid

MAX_CHUNK_CHARACTERS: Final = 3_000
"""Of texts in one call: their translation, with its numbers, fits the tokens that an edit may write."""
_NUMBER_CHARACTERS: Final = 24
"""What each text costs beside its letters, as `{"n": 12, "text": ""}`: many short ones fill a reply, too."""
_MOST_PLACES: Final = 4
"""How many places of a text are named."""
MAX_CHUNKS: Final = 4
"""Calls side by side; of a site with more texts, whole pages are translated as far as they go."""
_NAME_WORD: Final = re.compile(r"[^\W\d_]{4,}")
_SENTENCE_WORDS: Final = 4
"""A text of this many words is no name or price, so it is reported if it stays untranslated."""
_KEPT: Final = frozenset({"email", "phone"})
_INLINE_ANCHOR: Final = re.compile(r"\]\((#[^)\s]+)\)")
_LANGUAGE: Final = re.compile(r"[a-zA-Z]{2,3}(?:-[a-zA-Z0-9]{2,8})?")


class Entry(NamedTuple):
    """A text of the document and its place in it."""

    page: str
    element: str
    keys: tuple[str | int, ...]
    """From the element's props."""
    text: str


def entries_of(site: Site) -> tuple[Entry, ...]:
    """Return every text that visitors read, in the order of the page, shared ones once; of versions, the original's."""
    languages = languages_of(site)
    return tuple(
        Entry(path, key, keys, text)
        for path, page in sorted(site.pages.items())
        if languages.original(path) == path
        for key in _in_order(page)
        if (element := page["elements"][key])["type"] != SHARED_TYPE
        for keys, text in _texts(element.get("props", {}))
    )


def _in_order(page: JsonObject) -> list[str]:
    """Return the keys of a page's elements as they follow each other on it; what it does not show is left out."""
    found, stack = [], [page["root"]]
    while stack:
        found.append(stack.pop())
        stack += reversed(keys_below(page["elements"][found[-1]]))
    return found


class Choice(NamedTuple):
    """What of a site is given to be translated."""

    entries: tuple[Entry, ...]
    left: tuple[str, ...]
    """Pages whose texts are more than a job's calls take."""


def choose_texts(site: Site, request: str, *, without: Set[str] = frozenset()) -> Choice:
    """Return the texts of as many whole pages as a job's calls take.

    The pages that a request names come first, then those in the fewest languages, then the home page.

    Args:
        site: a valid site.
        request: what was asked.
        without: pages that are no longer their spec's render.
    """
    every = [entry for entry in entries_of(site) if entry.page not in without]
    words, languages = set(_NAME_WORD.findall(request.casefold())), languages_of(site)

    def rank(path: str) -> tuple[int, int, bool, str]:
        page = site.pages[path]
        title = str(root_props(page).get("title", ""))
        named = words.intersection(_NAME_WORD.findall(f"{path.removesuffix('.html')} {title}".casefold()))
        return -len(named), len(languages.of(path)), path != INDEX, path

    taken: list[str] = []
    for path in sorted({entry.page for entry in every}, key=rank):
        if len(chunks([entry for entry in every if entry.page in (*taken, path)])) <= MAX_CHUNKS:
            taken.append(path)
    left = tuple(sorted({entry.page for entry in every} - set(taken)))
    return Choice(tuple(entry for entry in every if entry.page in taken), left)


def _texts(value: object, keys: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        if any(letter.isalpha() for letter in value):
            yield keys, value
    elif isinstance(value, Mapping):
        for name, item in sorted(value.items()):
            if not name.startswith("$") and name not in _KEPT and is_copy(name, item):
                yield from _texts(item, (*keys, name))
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _texts(item, (*keys, place))


def chunks(entries: Sequence[Entry]) -> list[str]:
    """Return the numbered texts in as many parts as there are calls to make: about equal, none of them above the limit.

    One that stands in several places is given once, by the number of the first, so that it is the same in all of them
    (issue 20). A single text above the limit is left out, and told by `left_over`.
    """
    given: list[tuple[int, str]] = []
    for numbers in _places(entries).values():
        entry = entries[numbers[0]]
        shown = [_place(entries[number]) for number in numbers[:_MOST_PLACES]]
        if (size := len(entry.text) + _NUMBER_CHARACTERS) <= MAX_CHUNK_CHARACTERS:
            given.append((size, f"{numbers[0]} [{'; '.join(shown)}] {entry.text}"))
    parts = _filled(given, MAX_CHUNK_CHARACTERS)
    if len(parts) > 1:
        fair = sum(size for size, _ in given) // len(parts) + max(size for size, _ in given)
        parts = _filled(given, min(fair, MAX_CHUNK_CHARACTERS))
    return ["\n".join(part) for part in parts]


def _filled(given: Sequence[tuple[int, str]], limit: int) -> list[list[str]]:
    """Return lines in parts, each with as many as fit."""
    parts: list[list[str]] = []
    room = 0
    for size, line in given:
        room -= size
        if room < 0 or not parts:
            parts.append([])
            room = limit - size
        parts[-1].append(line)
    return parts


def _places(entries: Sequence[Entry]) -> dict[str, list[int]]:
    """Return the numbers of each text."""
    places: dict[str, list[int]] = {}
    for number, entry in enumerate(entries):
        places.setdefault(entry.text, []).append(number)
    return places


def _place(entry: Entry) -> str:
    return f"{entry.page} {'.'.join(str(key) for key in (entry.element, *entry.keys))}"


def translate_tool() -> JsonObject:
    """Return the tool that a model is forced to call for a translation."""
    text = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0}, "text": {"type": "string"}},
        "required": ["n", "text"],
    }
    return {
        "name": "translate_texts",
        "description": "Hand over the translated texts by their numbers.",
        "input_schema": {
            "type": "object",
            "properties": {
                "language": {"type": "string", "maxLength": 12, "description": "of the translation: de, pt-BR"},
                "beside": {"type": "boolean", "description": "true: a further language; the present texts stay"},
                "partial": {"type": "boolean", "description": "true: what a new page has no texts of is left out"},
                "source": {"type": "string", "maxLength": 12, "description": "language of the given texts"},
                "texts": {"type": "array", "items": text},
                "also": {"type": "string", "maxLength": 600, "description": "what else is wanted, for an editor"},
                "summary": SUMMARY,
                **WAYS_OUT,
            },
            "required": ["language", "texts"],
        },
    }


def apply_translation(site: Site, entries: Sequence[Entry], replies: Sequence[Mapping[str, Any]]) -> Site:
    """Return the site with translated texts in place of its own, valid; all or nothing.

    Args:
        site: the site; it is not changed.
        entries: its texts, as they were numbered.
        replies: the tool's input of every call.

    Raises:
        SpecError: `bad_operation` or what is invalid afterwards (the reply's fault).
    """
    document = site.to_dict()
    done = _translated(entries, replies)
    for entry, text in done:
        _put(document["pages"][entry.page]["elements"][entry.element]["props"], entry.keys, text)
    if language := _said(replies, "language"):
        _tell_language(document["pages"], language, entries, [entry for entry, _ in done])
    address_forms(site.pages, document["pages"], language)
    return _valid(document)


def _tell_language(pages: JsonObject, language: str, entries: Sequence[Entry], translated: Sequence[Entry]) -> None:
    """Set the language of the pages, and else of the sections, most of whose texts are in it now."""
    for path in {entry.page for entry in translated}:
        page, props = pages[path], props_to_set(pages[path])
        here, of_page = ([entry.element for entry in group if entry.page == path] for group in (translated, entries))
        is_whole = len(here) * 2 > len(of_page)
        props |= {"lang": language} if is_whole else {}
        for key in set(here):
            section = page["elements"][key]
            if issubclass(components()[section["type"]].props, SectionProps):
                is_same = is_whole or primary(language) == primary(props.get("lang", "en"))
                mark, earlier = {} if is_same else {"lang": language}, section["props"].pop("lang", None)
                if (mark or earlier) and here.count(key) * 2 > of_page.count(key):
                    section["props"] = with_prices(section["props"], language) | mark


class Versions(NamedTuple):
    """A site with pages in a further language."""

    site: Site
    written: tuple[str, ...]
    """Paths of the versions that were added or changed."""
    left: tuple[str, ...]
    """What stays as it was, one sentence each without its full stop."""


def add_versions(
    site: Site, entries: Sequence[Entry], replies: Sequence[Mapping[str, Any]], *, told_in: str = "en"
) -> Versions:
    """Return the site with the translated texts in versions beside their pages, valid; all or nothing.

    A page gets a version by its translated texts, of a `partial` reply without the other sections. One that is there
    already keeps all that is not translated anew.

    Args:
        site: the site; it is not changed.
        entries: its texts, as they were numbered.
        replies: the tool's input of every call.
        told_in: the owner's language, for what is left.

    Raises:
        SpecError: `bad_operation` or what is invalid afterwards (the reply's fault).
    """
    language, source = _said(replies, "language"), _said(replies, "source")
    if not language:
        raise refuse("bad_operation", "/language", "is the tag of a language, such as de or pt-BR")
    by_page: dict[str, _ByElement] = {}
    for entry, text in _translated(entries, replies):
        by_page.setdefault(entry.page, {}).setdefault(entry.element, []).append((entry.keys, text))
    elements = (element for page in site.pages.values() for element in page["elements"].values())
    shared = {element["props"]["of"] for element in elements if element["type"] == SHARED_TYPE}
    ordered = sorted(by_page, key=lambda path: (path != INDEX, path))
    pages = [path for path in ordered if path != INDEX or by_page[path].keys() - shared]
    document, left, written = site.to_dict(), [], []
    for path in pages:
        target = f"{primary(language)}/{path}"
        if target not in document["pages"] and len(document["pages"]) >= MAX_PAGES:
            left.append(
                say("{page} gets no version, as a site holds at most {n} pages", told_in, page=path, n=MAX_PAGES)
            )
            continue
        _tell_languages_apart(document["pages"][path], path, language, source)
        is_new = target not in document["pages"]
        left += _write_version(document["pages"], path, target, by_page, told_in=told_in)
        if is_new and _is_partial(replies):
            _leave_out(document["pages"][target], path, by_page[path].keys())
        props_to_set(document["pages"][target])["lang"] = language
        written.append(target)
    return Versions(_valid(document), tuple(written), tuple(left))


def left_over(
    site: Site, entries: Sequence[Entry], replies: Sequence[Mapping[str, Any]], *, told_in: str = "en"
) -> tuple[str, ...]:
    """Return what a translation leaves as it is, one sentence each without its full stop.

    It is about sections with a translated text, and pages with a version of their own or half of their texts, unless
    only some sections are wanted. Neither names and addresses nor texts that stay in their language are told.
    """
    done = {(entry.page, entry.element, entry.keys) for entry, _ in _translated(entries, replies)}
    elements = {(page, element) for page, element, _ in done}
    found, of_page = Counter(page for page, _, _ in done), Counter(entry.page for entry in entries)
    least = 0 if any(reply.get("beside") for reply in replies) else 0.5
    pages = {page for page in found if not _is_partial(replies) and found[page] >= least * of_page[page]}
    kept = [
        entry.text
        for entry in entries
        if (entry.page in pages or (entry.page, entry.element) in elements)
        and (entry.page, entry.element, entry.keys) not in done
        and "address" not in entry.keys
        and len(entry.text.split()) >= _SENTENCE_WORDS
    ]
    source = _said(replies, "source")
    is_same = bool(source) and primary(source) == primary(_said(replies, "language"))
    notes = [_kept_note(kept, told_in)] if kept and not is_same else []
    data = sorted(path for path in pages if site.pages[path].get("state"))
    return (*notes, *(say("the data that {page} repeats stay as they are", told_in, page=path) for path in data))


def _kept_note(kept: Sequence[str], lang: str) -> str:
    first = f"“{kept[0][:60]}”"
    if len(kept) == 1:
        return say("{text} stays as it is", lang, text=first)
    return say("{n} texts stay as they are, such as {text}", lang, n=len(kept), text=first)


_ByElement = dict[str, list[tuple[tuple[str | int, ...], str]]]


def _translated(entries: Sequence[Entry], replies: Sequence[Mapping[str, Any]]) -> list[tuple[Entry, str]]:
    """Return the translated texts by place.

    One that was given once for several places is for those whose element, or most of whose page unless only some
    sections are, is translated.
    """
    found = dict(_read(step, len(entries)) for reply in replies for step in _list(reply.get("texts")))
    places = _places(entries)
    alone = [entries[number] for number in found if len(places[entries[number].text]) == 1]
    elements = {(entry.page, entry.element) for entry in alone}
    of_page = Counter(entry.page for entry in entries if len(places[entry.text]) == 1)
    done = Counter(entry.page for entry in alone)
    for number, text in list(found.items()):
        numbers = places[entries[number].text]
        if number != numbers[0] or len(numbers) == 1:
            continue
        meant = [
            other
            for other in numbers
            if (entries[other].page, entries[other].element) in elements
            or (not _is_partial(replies) and done[entries[other].page] * 2 > of_page[entries[other].page])
        ]
        if meant and number not in meant:
            del found[number]
        for other in meant:
            found.setdefault(other, text)
    language = _said(replies, "language")
    return [
        (entry, text if text == entry.text else typeset_text(text, language))
        for entry, text in ((entries[number], text) for number, text in sorted(found.items()))
    ]


def _said(replies: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return what the first reply with texts says, if it is a language."""
    said = next((str(reply.get(name)) for reply in replies if reply.get("texts")), "")
    return said if _LANGUAGE.fullmatch(said) else ""


def _valid(document: JsonObject) -> Site:
    site = parse_site(document)
    require_valid(site)
    return site


def _tell_languages_apart(page: JsonObject, path: str, language: str, source: str) -> None:
    """Set the language of a page where its version states the same; many pages state none, which means English."""
    if primary(lang_of(page)) != primary(language):
        return
    if not source or primary(source) == primary(language):
        raise refuse("bad_operation", "/language", f"{path} is in {language} already")
    props_to_set(page)["lang"] = source


def _write_version(
    pages: JsonObject, path: str, target: str, by_page: Mapping[str, _ByElement], *, told_in: str
) -> Iterator[str]:
    """Add or change a version; yield what could not be written."""
    original, is_new = pages[path], target not in pages
    version = pages.setdefault(target, with_prices(original, target.partition("/")[0]))
    if is_new:
        props_to_set(version).pop("language_name", None)
    if is_new and path == INDEX:
        for name in ("theme", "url", "languages_everywhere"):  # as all pages it follows index.html
            props_to_set(version).pop(name, None)
    for key, found in by_page[path].items():
        element = original["elements"][key]
        if not is_new and not _has_place(version, original, key, found):
            names = {"section": key, "page": target, "original": path}
            yield say("{section} of {page} stays as it is, as it differs from {original}", told_in, **names)
            continue
        added = {name: deepcopy(value) for name, value in element.items() if name not in ("children", "slots")}
        props = version["elements"].setdefault(key, added).setdefault("props", {})
        props.pop("lang", None)  # of a section whose original is in a language of its own
        for keys, text in found:
            _put(props, keys, text)
    if is_new and path != INDEX and f"{target.partition('/')[0]}/{INDEX}" not in pages:
        _own_shared(version, pages[INDEX], by_page.get(INDEX, {}))


def _is_partial(replies: Sequence[Mapping[str, Any]]) -> bool:
    return any(reply.get("partial") is True for reply in replies)


def _leave_out(version: JsonObject, path: str, translated: Set[str]) -> None:
    """Leave out the sections of a new version that hold nothing translated, and what leads to them."""
    elements, root = version["elements"], version["elements"][version["root"]]

    def is_kept(key: str) -> bool:
        element = elements[key]
        frames = element["type"] == SHARED_TYPE or components()[element["type"]].place != "main"
        return frames or key in translated or any(is_kept(below) for below in keys_below(element))

    root["children"] = [key for key in root["children"] if is_kept(key)]
    held = set(_in_order(version))
    lost = {f"#{key}" for key in elements if key not in held}
    version["elements"] = {key: _led_back(elements[key], path, lost) for key in elements if key in held}


def _is_in(sections: Set[str], href: object) -> bool:
    """Whether a link leads to one of some sections, or to an entry of one (`#team.ida`)."""
    return isinstance(href, str) and href.partition(".")[0] in sections


def _led_back(value: Any, path: str, lost: Set[str]) -> Any:
    """Return a value of a version without the links in its lists to what it lost; others lead to the original."""
    if isinstance(value, dict):
        return {name: _led_back(item, path, lost) for name, item in value.items()}
    if isinstance(value, list):
        links = [item for item in value if isinstance(item, dict) and item.keys() >= {"label", "href"}]
        return [_led_back(item, path, lost) for item in value if item not in links or not _is_in(lost, item["href"])]
    if isinstance(value, str):
        return (
            path + value
            if _is_in(lost, value)
            else _INLINE_ANCHOR.sub(lambda found: f"]({path}{found[1]})" if _is_in(lost, found[1]) else found[0], value)
        )
    return value


def _has_place(
    version: JsonObject, original: JsonObject, key: str, found: Sequence[tuple[tuple[str | int, ...], str]]
) -> bool:
    """Make a place for a translated element in a version that is there already; False if there can be none."""
    if key == original["root"]:
        return bool(key == version["root"])
    props = original["elements"][key].get("props", {})
    if (held := version["elements"].get(key)) is not None:
        if _shape(held.get("props", {})) == _shape(props):
            return True
        is_whole = {keys for keys, _ in found} == {keys for keys, _ in _texts(props)}
        if is_whole and held["type"] == original["elements"][key]["type"]:
            held["props"] = deepcopy(props)
        return is_whole
    parent = next((name for name, each in original["elements"].items() if key in (each.get("children") or ())), None)
    if parent is None or parent not in version["elements"]:
        return False
    children = version["elements"][parent].setdefault("children", [])
    siblings = original["elements"][parent]["children"]
    before = [sibling for sibling in siblings[: siblings.index(key)] if sibling in children]
    children.insert(children.index(before[-1]) + 1 if before else 0, key)
    return True


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _shape(item) for name, item in value.items()}
    return [_shape(item) for item in value] if isinstance(value, list) else None


def _own_shared(version: JsonObject, index: JsonObject, translated: _ByElement) -> None:
    """Replace shared elements in a page's version by translated copies, where its language has no home page."""
    for key, element in version["elements"].items():
        of = element["props"]["of"] if element["type"] == SHARED_TYPE else None
        shared = index["elements"].get(of, {})
        if of in translated and not shared.keys() & {"slots", "visible", "repeat"} and not shared.get("children"):
            own = deepcopy(shared)
            for keys, text in translated[of]:
                _put(own["props"], keys, text)
            version["elements"][key] = own


def _list(texts: object) -> Sequence[object]:
    if texts is None or isinstance(texts, list):
        return texts or ()
    raise refuse("bad_operation", "/texts", "has to be a list")


def _read(step: object, count: int) -> tuple[int, str]:
    if isinstance(step, Mapping):
        number, text = step.get("n"), step.get("text")
        if isinstance(number, int) and 0 <= number < count and isinstance(text, str) and text.strip():
            return number, text
    raise refuse("bad_operation", "/texts", "each entry has the number of a given text, and a text that is not empty")


def _put(value: Any, keys: tuple[str | int, ...], text: str) -> None:
    for key in keys[:-1]:
        value = value[key]
    value[keys[-1]] = text
