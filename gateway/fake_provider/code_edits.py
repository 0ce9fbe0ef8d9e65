"""Improvised changes of a site's files: tier 2's patch of one file, and a coding agent's turns in a box.

Both do something small and visible to one file: what the request quotes is replaced where it stands, anything else is
added before the end of the page. The agent also turns one page into several where that is asked for.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

from gateway.fake_provider.request import Request, ToolResult, plain, quoted, sentence, slug, title
from gateway.fake_provider.wire import CHARACTERS_PER_TOKEN, Text, ToolUse

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
"""How often a page is written that could not be."""
_SHARE_FOR_TEXT = 0.8
"""Of a reply's length; the rest is for what stands around the text."""


def site_patch(request: Request) -> Sequence[Text | ToolUse]:
    """Use `patch_files` with one SEARCH/REPLACE block; without a place for it, say so."""
    files = {path: text for _, path, text in _FILE.findall("\n".join(request.user_texts))}
    if files:
        edits = _line_edits(files, request.ask)
        found = next((edit for edit in edits if files[edit[0]].split("\n").count(edit[1]) == 1), None)
    else:
        found = ("index.html", "", _page(request.ask))
    if found is None:
        return (Text("There is no place in the files that the fake provider could change."),)
    path, search, replace = found
    patch = f"{path}\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"
    return (ToolUse("patch_files", {"patch": patch, "summary": f"Rehearsed: {plain(request.ask)}"[:200]}),)


def _line_edits(files: Mapping[str, str], ask: str) -> Iterator[tuple[str, str, str]]:
    """Yield changes of one line (path, line, what it becomes), the one that fits the request best first."""
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
        return (Text(f"I changed {path}. You asked: “{said}” This is a rehearsal: the change only shows your words."),)
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
    """Insert what was asked before the end of a page, or after the last lines of any other file."""
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
    """Write those pages that are not there yet, as many as fit into one reply; nothing where none are asked for.

    The one that was read comes last, when those that it leads to are there.
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
    """Return the pages that one page becomes, by file name; the page itself is among them as `index.html`.

    Each section becomes a page of its own with the same head and navigation.
    """
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
