"""Improvises edits: patches of a site's files (tier 2), a coding agent's turns (tier 3), and site documents (tier 1).

Every edit is small, visible and about the request. In files, quoted words are replaced where they occur, and anything
else is added before the end of the page; the agent also splits one page into several on request. In a site document,
the first rule that fits the request becomes JSON Patch operations that are valid against the catalog.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gateway.fake_provider.request import Request, ToolResult, key_words, plain, quoted, sentence, slug, title, words
from gateway.fake_provider.wire import CHARACTERS_PER_TOKEN, Text, ToolUse
from sites.spec.catalog import Business, Component, OutlineSection, components
from sites.spec.theme import COLOUR_NAMES

_FILE = re.compile(r'<(file(?:-\d+)?) path="([^"]+)"[^>]*>\n(.*?)\n</\1>', re.S)
_FILE_NAME = re.compile(r"(?<![\w/.-])(?:[\w-][\w.-]*/)*[\w-]+\.[A-Za-z][A-Za-z0-9]{0,7}\b")
_COLOUR = re.compile(r"#[0-9a-f]{3,8}\b", re.I)
_END = re.compile(r"</(?:main|body)>")
_MARKUP = (".html", ".htm")
_MORE_PAGES = re.compile(r"multi-?\s?page|(?:several|separate|more) pages|shared nav", re.I)
_SECTION = re.compile(r"[ \t]*<section\b([^>]*)>(.*?)</section>[ \t]*\n?", re.S | re.I)
_ID = re.compile(r"\bid=\"([\w-]{1,60})\"")
_HEADING = re.compile(r"<h[1-6]\b[^>]*>(.*?)</h[1-6]>", re.S | re.I)
_NAV = re.compile(r"[ \t]*<nav\b.*?</nav>[ \t]*\n?", re.S | re.I)
_BODY = re.compile(r"<body\b[^>]*>", re.I)
_MAIN = re.compile(r"(<main\b[^>]*>).*?(?=</main>)", re.S | re.I)
_MOST_PAGES = 8
_TRIES = 2
"""Attempts to write each page."""
_LANGUAGE = "de"
"""The one language of the fake provider's translations."""
_NUMBERED = re.compile(r"^(\d+) \[[^]\n]+\] (.+(?:\n(?!\d+ \[|The owner asks:).+)*)", re.M)
_SHARE_FOR_TEXT = 0.8
"""The share of a reply that pages may take; the rest is overhead."""


def site_patch(request: Request) -> Sequence[Text | ToolUse]:
    """Use `patch_files` with one SEARCH/REPLACE block, or say that nothing can be changed."""
    files = {path: text for _, path, text in _FILE.findall("\n".join(request.user_texts))}
    if files:
        edits = _line_edits(files, request.ask)
        found = next((edit for edit in edits if files[edit[0]].split("\n").count(edit[1]) == 1), None)
    else:
        found = ("index.html", "", _page(request.ask))
    if found is None:
        return (Text("The fake provider found nothing to change in these files."),)
    path, search, replace = found
    patch = f"{path}\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"
    return (ToolUse("patch_files", {"patch": patch, "summary": f"Fake provider: {plain(request.ask)}"[:200]}),)


def _line_edits(files: Mapping[str, str], ask: str) -> Iterator[tuple[str, str, str]]:
    """Yield edits of one line (path, old line, new line), the best fit first."""
    paths = sorted(files, key=lambda path: path not in ask and path.rsplit("/", 1)[-1] not in ask)
    lines = [(path, line) for path in paths for line in files[path].split("\n")]
    if len(pair := quoted(ask)) == 2:
        for path, line in lines:
            if pair[0] in line:
                yield path, line, line.replace(pair[0], html.escape(pair[1]) if path.endswith(_MARKUP) else pair[1])
    if colour := _COLOUR.search(ask):
        for path, line in lines:
            if path.endswith(".css") and _COLOUR.search(line):
                yield path, line, _COLOUR.sub(colour[0], line, count=1)
    for path, line in lines:
        if path.endswith(_MARKUP) and (end := _END.search(line)):
            yield path, line, line.replace(end[0], f"{_section(ask)}\n{end[0]}", 1)


def _section(ask: str) -> str:
    heading, said = title(ask), sentence(" ".join(quoted(ask)) or ask)
    return (
        f'<section id="{slug(heading)}">\n  <h2>{html.escape(heading)}</h2>\n  <p>{html.escape(said)}</p>\n</section>'
    )


def _page(ask: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{html.escape(title(ask))}</title>\n'
        f"</head>\n<body>\n<main>\n{_section(ask)}\n</main>\n</body>\n</html>\n"
    )


def code_agent(request: Request) -> Sequence[Text | ToolUse]:
    """Take the next step with the tools of Claude Code: read, then edit or write, then report."""
    named = _FILE_NAME.search(plain(request.prompt))
    path = posixpath.join(request.directory, named[0] if named else "index.html")
    changes = [result for result in request.tool_results if result.tool in ("Write", "Edit")]
    reads = [result for result in request.tool_results if result.tool == "Read"]
    content = reads[-1].content if reads else None
    if content is not None and (pages := _write_pages(request, path, content, changes=changes)):
        return pages
    if changes and not changes[-1].is_error:
        said = plain(request.prompt)[:600]
        return (
            Text(f"I changed {path}. You asked: “{said}” This is the fake provider: the change only shows your words."),
        )
    if len(changes) + len(reads) > 3:
        return (Text(f"I could not change {path}: {plain((changes or reads)[-1].text)[:300]}"),)
    if not reads and request.tool("Read"):
        return (Text(f"I will read {path} first."), ToolUse("Read", {"file_path": path}))
    if content is not None and request.tool("Edit"):
        return (ToolUse("Edit", {"file_path": path, **_edit(request.prompt, path, content)}),)
    text = _page(request.prompt) if path.endswith(_MARKUP) else f"{_note(request.prompt)}\n"
    if request.tool("Write"):
        return (ToolUse("Write", {"file_path": path, "content": text}),)
    return (ToolUse("Edit", {"file_path": path, "old_string": "", "new_string": text}),)


def _edit(ask: str, path: str, content: str) -> dict[str, str]:
    """Insert the request's words before the end of a page, or after the last line of any other file."""
    added = _section(ask) if path.endswith(_MARKUP) else _note(ask)
    for end in _END.findall(content):
        if content.count(end) == 1:
            return {"old_string": end, "new_string": f"{added}\n{end}"}
    lines = content.rstrip("\n").split("\n")
    endings = ("\n".join(lines[-count:]) for count in range(1, len(lines) + 1))
    anchor = next((ending for ending in endings if ending.strip() and content.count(ending) == 1), content)
    return {"old_string": anchor, "new_string": f"{anchor}\n{added}"}


def _note(ask: str) -> str:
    return "\n".join(quoted(ask)) or sentence(ask)


def _write_pages(
    request: Request, path: str, content: str, *, changes: Sequence[ToolResult]
) -> Sequence[Text | ToolUse]:
    """Write the missing pages, as many as fit into one reply; nothing unless several pages are requested.

    The page that was read comes last, after those it links to.
    """
    if not (path.endswith(_MARKUP) and request.tool("Write") and _MORE_PAGES.search(request.prompt)):
        return ()
    pages = split_pages(content)
    home = pages.pop("index.html")
    wanted = {posixpath.join(posixpath.dirname(path), name): text for name, text in pages.items()} | {path: home}
    written = {result.input.get("file_path") for result in changes if not result.is_error}
    missing = {name: text for name, text in wanted.items() if name not in written}
    if len(changes) > _TRIES * len(wanted):
        return ()
    uses: list[ToolUse] = []
    room = request.body.max_tokens * CHARACTERS_PER_TOKEN * _SHARE_FOR_TEXT
    for name, text in missing.items():
        room -= len(json.dumps(text))
        if not uses or room >= 0:
            uses.append(ToolUse("Write", {"file_path": name, "content": text}))
    return [Text(f"{len(missing)} of {len(wanted)} pages are to be written."), *uses] if uses else ()


def split_pages(page: str) -> dict[str, str]:
    """Split a page into one page per section, with the same head and navigation; return them by file name."""
    home = _NAV.sub("", page)
    parts: dict[str, tuple[str, str, str]] = {}
    for section in _SECTION.finditer(home):
        anchor = found[1] if (found := _ID.search(section[1])) else ""
        heading = re.sub("<[^>]*>", "", found[1]).strip()[:60] if (found := _HEADING.search(section[2])) else anchor
        name = f"{slug(anchor or html.unescape(heading))}.html"
        if heading and name != "index.html" and len(parts) < _MOST_PAGES - 1:
            parts.setdefault(name, (heading, anchor, section[0]))
    for name in () if parts else ("About", "Contact"):
        parts[f"{name.lower()}.html"] = (name, "", f"<section>\n<h2>{name}</h2>\n</section>\n")
    links = [("index.html", "Home"), *((name, heading) for name, (heading, _, _) in parts.items())]
    lines = "\n".join(f'  <a href="{name}">{heading}</a>' for name, heading in links)
    nav = f'\n<nav aria-label="Pages">\n{lines}\n</nav>'
    for _, _, markup in parts.values():
        home = home.replace(markup, "", 1)
    at = body.end() if (body := _BODY.search(home)) else 0
    home = home[:at] + nav + home[at:]
    pages = {"index.html": home}
    for name, (heading, _, markup) in parts.items():
        main = _MAIN.search(home)
        own = f"{home[: main.end(1)]}\n{markup}{home[main.end() :]}" if main else home + markup
        pages[name] = own.replace("<title>", f"<title>{heading} – ", 1)
    for name, (_, anchor, _) in parts.items():
        if anchor:
            pages = {path: text.replace(f'href="#{anchor}"', f'href="{name}"') for path, text in pages.items()}
    return pages


_DOCUMENT = re.compile(r'\{\s*"pages"\s*:')
_ADD = re.compile(
    r"\b(?:add|insert|include|append|introduce|create|build)\b|\b(?:make|write|need|want|put)\s+(?:me\s+)?(?:a|an|another|new)\b",
    re.I,
)
_INSIDE = re.compile(r"\b(?:to|in|into|inside|within)\s+(?:the|our|my)\s+.{1,60}", re.I | re.S)
_REMOVE = re.compile(r"\b(?:remove|delete|drop|get rid of|take out|take away)\b", re.I)
_ANY_SECTION = re.compile(r"\b(?:section|block|part|paragraph)\b", re.I)
_ANCHOR = re.compile(r"\b(below|under|after|beneath|above|before)\b\s+(.{1,80})", re.I | re.S)
_REPLACE = re.compile(r"[\"“„](.+?)[\"”“]\s+(?:to|with|by|into)\s+[\"“„](.+?)[\"”“]", re.S)
_LOOK = re.compile(r"\b(?:colou?rs?|theme|background|accent|look|palette|scheme)\b", re.I)
_SAY = re.compile(r"^(?:please\s+)?(?:mention|say|state|note|announce|explain)\s+(?:that\s+)?", re.I)
_TOPIC = re.compile(r"\b(?:about|on|regarding|showing|listing|covering|for)\b\s+(.+)", re.I | re.S)
_LIST = re.compile(r"(?:\b(?:such as|including|like|with|of|for)\b|:)\s+([^.:]+,[^.:]+|[^.:,]+\sand\s[^.:,]+)", re.I)
_SEPARATOR = re.compile(r"(?:,\s*(?:and\s+)?|\s+and\s+|;\s*)(?:(?:an?|the|our|my)\s+)?", re.I)
_LIMITS = {"heading": 140, "text": 700, "body": 6000, "note": 140, "tagline": 60}
_MAX_ITEMS = 6

Operation = dict[str, Any]


@dataclass(frozen=True)
class Element:
    """One element of a page in the request's site document."""

    page: str
    key: str
    type: str
    props: Mapping[str, Any]
    parent: Element | None
    children: Sequence[str]

    @property
    def pointer(self) -> str:
        """JSON pointer of the element."""
        return f"/pages/{_escape(self.page)}/elements/{_escape(self.key)}"

    @property
    def index(self) -> int:
        """Index among the parent's children."""
        return self.parent.children.index(self.key) if self.parent else 0


def site_edit(request: Request) -> Sequence[Text | ToolUse]:
    """Use `edit_site` on the last site document of the request, or say that there is none."""
    pages = next((pages for text in reversed(request.user_texts) if (pages := _find_pages(text))), {})
    elements = [element for path, page in pages.items() for element in _below(path, page, page.get("root"), None)]
    ask = plain(request.ask)
    for rule in (_replace_words, _remove, _change_look, _add_section, _add_words, _describe):
        if operations := rule(elements, ask):
            return (ToolUse("edit_site", {"operations": operations, "summary": f"Fake provider: {ask}"[:200]}),)
    return (Text("The fake provider found no site document in the request."),)


def site_translation(request: Request) -> Sequence[Text | ToolUse]:
    """Use `translate_texts` on every text of the request; each only says that it would be in another language."""
    texts = [
        {"n": int(number), "text": f"[{_LANGUAGE}] {text}"}
        for number, text in _NUMBERED.findall("\n".join(request.user_texts))
    ]
    return (ToolUse("translate_texts", {"language": _LANGUAGE, "texts": texts}),)


def _find_pages(text: str) -> dict[str, Any]:
    for start in _DOCUMENT.finditer(text):
        try:
            value, _ = json.JSONDecoder().raw_decode(text, start.start())
        except (ValueError, RecursionError):
            continue
        pages = value.get("pages")
        if isinstance(pages, dict) and all(
            isinstance(page, dict) and isinstance(page.get("elements"), dict) for page in pages.values()
        ):
            return pages
    return {}


def _below(path: str, page: Mapping[str, Any], key: Any, parent: Element | None) -> Iterator[Element]:
    found = page["elements"].get(key) if isinstance(key, str) else None
    if not isinstance(found, dict):
        return
    props, children = found.get("props"), [str(child) for child in found.get("children") or ()]
    element = Element(path, key, str(found.get("type")), props if isinstance(props, dict) else {}, parent, children)
    yield element
    for child in children:
        yield from _below(path, page, child, element)


def _replace_words(elements: Sequence[Element], ask: str) -> list[Operation]:
    if found := _REPLACE.search(ask):
        for element in elements:
            for pointer, text in _texts(element.props, f"{element.pointer}/props"):
                if found[1] in text:
                    return [{"op": "replace", "path": pointer, "value": text.replace(found[1], found[2])}]
    return []


def _remove(elements: Sequence[Element], ask: str) -> list[Operation]:
    target = _named(elements, ask) if _REMOVE.search(ask) else None
    if target is None or target.parent is None:
        return []
    return [
        {"op": "remove", "path": f"{target.parent.pointer}/children/{target.index}"},
        {"op": "remove", "path": target.pointer},
    ]


def _change_look(elements: Sequence[Element], ask: str) -> list[Operation]:
    colour = next((word.lower() for word in words(ask) if word.lower() in COLOUR_NAMES), None)
    if not elements or colour is None or not _LOOK.search(ask):
        return []
    field = next((name for name in ("background", "accent") if name in ask.lower()), "primary")
    theme = elements[0].props.get("theme")
    look = {**(theme if isinstance(theme, dict) else {}), field: colour}
    return [{"op": "add", "path": f"{elements[0].pointer}/props/theme", "value": look}]


def _add_section(elements: Sequence[Element], ask: str) -> list[Operation]:
    added = _INSIDE.sub("", _ANCHOR.sub("", ask))
    component = _component(added)
    if not elements or not _ADD.search(added) or not (component or _ANY_SECTION.search(added)):
        return []
    if component is None or component.outline is None:
        component = components()["RichText"]
    root, index = _place(elements, ask)
    taken = {element.key for element in elements} | set(root.children)
    stem = f"{component.name[:1].lower()}{component.name[1:]}"
    key = next(key for key in (stem, *(f"{stem}-{number}" for number in range(2, 1000))) if key not in taken)
    brand = next((brand for element in elements if isinstance(brand := element.props.get("brand"), str) and brand), "")
    props = dict(_section_props(component, ask, Business(name=brand or "This site")))
    return [
        {
            "op": "add",
            "path": f"/pages/{_escape(root.page)}/elements/{key}",
            "value": {"type": component.name, "props": props, "children": []},
        },
        {"op": "add", "path": f"{root.pointer}/children/{index}", "value": key},
    ]


def _place(elements: Sequence[Element], ask: str) -> tuple[Element, int]:
    """Return the parent and index of a new section: beside the element the request names, or before a footer."""
    if anchor := _ANCHOR.search(ask):
        beside = _named(elements, anchor[2])
        if beside and beside.parent and beside.parent.parent is None:
            return beside.parent, beside.index + (anchor[1].lower() not in ("above", "before"))
    root = next((element for element in elements if element.page == "index.html"), elements[0])
    is_closed = bool(root.children) and "footer" in root.children[-1].lower()
    return root, len(root.children) - is_closed


def _section_props(component: Component, ask: str, business: Business) -> Mapping[str, Any]:
    """Return valid props of a new section, from the request's words or else from the catalog's example."""
    clean = _ANCHOR.sub("", ask).strip() or ask
    topic = found[1].strip() if (found := _TOPIC.search(clean)) else clean
    parts = _SEPARATOR.split(found[1]) if (found := _LIST.search(ask)) else quoted(ask)[1:] or key_words(topic, 3)
    names = [name for part in parts if (name := part.strip(" .!?\"'“”"))] or ["Example"]
    items = tuple(
        {"title": f"{name[:1].upper()}{name[1:]}"[:60], "text": sentence(name)[:200], "detail": "On request"}
        for name in names[:_MAX_ITEMS]
    )
    heading = title(topic)[:140]
    section = OutlineSection(component.name, heading, sentence(topic)[:600], items, "plain")
    outlined = component.outline(section, business) if component.outline else None
    for props in (outlined, {**component.example, "heading": heading}):
        try:
            component.props.model_validate(dict(props or {}))
        except ValidationError:
            continue
        if props is not None:
            return props
    return component.example


def _add_words(elements: Sequence[Element], ask: str) -> list[Operation]:
    """Put the request's words into the text that it is most likely about."""
    named, ask_words = _component(ask), {word.lower() for word in words(ask)}
    wanted = "heading" if re.search(r"\b(?:heading|headline|title)\b", ask, re.I) else "text"

    def score(place: tuple[Element, str]) -> int:
        element, prop = place
        text_words = {word.lower() for _, text in _texts(element.props, "") for word in words(text)}
        return 200 * bool(named and element.type == named.name) + 100 * (prop == wanted) + len(ask_words & text_words)

    places = [(element, prop) for element in elements for prop in _LIMITS if isinstance(element.props.get(prop), str)]
    if not places:
        return []
    element, prop = max(places, key=score)
    old, limit, given = str(element.props[prop]), _LIMITS[prop], quoted(ask)
    added = sentence(given[-1] if given else _SAY.sub("", ask))[: limit // 2]
    new = given[-1][:limit] if given and not _ADD.search(ask) else f"{old[: limit - len(added) - 1]} {added}"
    return [{"op": "replace", "path": f"{element.pointer}/props/{prop}", "value": new}] if new != old else []


def _describe(elements: Sequence[Element], ask: str) -> list[Operation]:
    """Put the request into the page's description: the fallback when the page has no text."""
    value = sentence(ask)[:300] or "Edited by the fake provider."
    return [{"op": "add", "path": f"{element.pointer}/props/description", "value": value} for element in elements[:1]]


def _named(elements: Sequence[Element], text: str) -> Element | None:
    component = _component(text)
    return next((element for element in elements if component and element.type == component.name), None)


def _component(text: str) -> Component | None:
    """Return the component that a text mentions first, by its longest name."""
    found = [
        (match.start(), -len(word), name)
        for name, component in components().items()
        for word in component.words
        if word != "section" and (match := re.search(rf"\b{re.escape(word)}s?\b", text, re.I))
    ]
    return components()[min(found)[2]] if found else None


def _texts(value: Any, pointer: str) -> list[tuple[str, str]]:
    """Return every text in a prop value with its pointer."""
    if isinstance(value, str):
        return [(pointer, value)]
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in items for found in _texts(item, f"{pointer}/{_escape(str(key))}")]


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
