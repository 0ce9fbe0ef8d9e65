"""Improvises edits: patches of a site's files (tier 2), a coding agent's turns (tier 3), and site documents (tier 1).

It is what the library has no recorded reply for. Every edit is small, visible and about the request. In files, quoted
words are replaced where they occur, and anything else is added before the end of the page; the agent also splits one
page into several on request. In a site document a section or words are added, validly.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from gateway.fake_provider.request import Request, ToolResult, key_words, plain, quoted, sentence, slug, title
from gateway.fake_provider.wire import CHARACTERS_PER_TOKEN, Text, ToolUse
from sites.spec.catalog import Business, Component, OutlineSection, components

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
_FURTHER = re.compile(r"\b(?:versions?|also|auch)\b", re.I)
_NUMBERED = re.compile(r"^(\d+) \[[^]\n]+\] (.+(?:\n(?!\d+ \[|Today is |The owner asks:).+)*)", re.M)
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
_ADD = re.compile(r"\b(?:add|insert|include|create|build|need|want)\b", re.I)
_INSIDE = re.compile(r"\b(?:to|in|into|inside|within|below|after|above|before)\s+(?:the|our|my)\s+.{1,60}", re.I | re.S)
_LIMITS = {"text": 700, "body": 6000, "heading": 140}

Operation = dict[str, Any]


class Element(NamedTuple):
    """One element of a page in the request's site document."""

    pointer: str
    """JSON pointer."""
    type: str
    props: Mapping[str, Any]
    children: Sequence[str]


def site_edit(request: Request) -> Sequence[Text | ToolUse]:
    """Use `edit_site` on the last site document of the request, or say that there is none."""
    pages = next((pages for text in reversed(request.user_texts) if (pages := _find_pages(text))), {})
    elements = [element for path, page in pages.items() for element in _below(path, page, page.get("root"))]
    ask = plain(request.ask)
    for edit in (_add_section, _add_words, _describe):
        if operations := edit(elements, ask):
            return (ToolUse("edit_site", {"operations": operations, "summary": f"Fake provider: {ask}"[:200]}),)
    return (Text("The fake provider found no site document in the request."),)


def site_translation(request: Request) -> Sequence[Text | ToolUse]:
    """Use `translate_texts` on every text of the request; each only says that it would be in another language."""
    texts = [
        {"n": int(number), "text": f"[{_LANGUAGE}] {text}"}
        for number, text in _NUMBERED.findall("\n".join(request.user_texts))
    ]
    beside = {"beside": True, "source": "en"} if _FURTHER.search(request.ask) else {}
    return (ToolUse("translate_texts", {"language": _LANGUAGE, "texts": texts, **beside}),)


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


def _below(path: str, page: Mapping[str, Any], key: Any) -> Iterator[Element]:
    found = page["elements"].get(key) if isinstance(key, str) else None
    if not isinstance(found, dict):
        return
    props, children = found.get("props"), [str(child) for child in found.get("children") or ()]
    pointer = f"/pages/{_escape(path)}/elements/{_escape(key)}"
    yield Element(pointer, str(found.get("type")), props if isinstance(props, dict) else {}, children)
    for child in children:
        yield from _below(path, page, child)


def _add_section(elements: Sequence[Element], ask: str) -> list[Operation]:
    """Add the section that the request names, before a footer: the catalog's example under the request's heading."""
    component = _component(_INSIDE.sub("", ask))
    if not elements or component is None or component.outline is None or not _ADD.search(ask):
        return []
    root = elements[0]
    items = tuple({"title": word[:60], "text": sentence(word)[:200], "detail": "On request"} for word in key_words(ask))
    section = OutlineSection(component.name, title(ask)[:140], sentence(ask)[:600], items)
    props = component.outline(section, Business(name="This site")) or component.example
    if not _is_valid(component, props):  # as a gallery, which words do not fill
        return []
    taken = {element.pointer.rpartition("/")[2] for element in elements}
    stem = component.name.lower()
    key = next(key for key in (stem, *(f"{stem}-{number}" for number in range(2, 1000))) if key not in taken)
    is_closed = bool(root.children) and "footer" in root.children[-1].lower()
    added = {"type": component.name, "props": dict(props), "children": []}
    return [
        {"op": "add", "path": f"{root.pointer.rpartition('/')[0]}/{key}", "value": added},
        {"op": "add", "path": f"{root.pointer}/children/{len(root.children) - is_closed}", "value": key},
    ]


def _is_valid(component: Component, props: Mapping[str, Any]) -> bool:
    try:
        component.check(dict(props))
    except ValidationError:
        return False
    return True


def _add_words(elements: Sequence[Element], ask: str) -> list[Operation]:
    """Add the request's words to a text of the element that it names, else to the first text."""
    component = _component(ask)
    for element in sorted(elements, key=lambda element: component is None or element.type != component.name):
        for prop, limit in _LIMITS.items():
            if isinstance(old := element.props.get(prop), str):
                added = sentence((quoted(ask) or [ask])[-1])[: limit // 2]
                new = f"{old[: limit - len(added) - 1]} {added}"
                return [{"op": "replace", "path": f"{element.pointer}/props/{prop}", "value": new}]
    return []


def _describe(elements: Sequence[Element], ask: str) -> list[Operation]:
    """Put the request into the page's description: the fallback when the page has no text."""
    value = sentence(ask)[:300] or "Edited by the fake provider."
    return [{"op": "add", "path": f"{element.pointer}/props/description", "value": value} for element in elements[:1]]


def _component(text: str) -> Component | None:
    """Return the component that a text mentions first, by its longest name."""
    found = [
        (match.start(), -len(word), name)
        for name, component in components().items()
        for word in component.words
        if word != "section" and (match := re.search(rf"\b{re.escape(word)}s?\b", text, re.I))
    ]
    return components()[min(found)[2]] if found else None


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
