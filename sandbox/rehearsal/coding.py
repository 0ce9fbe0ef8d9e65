"""A coding agent's turns: read the file that was asked about, change or write it, say what was done.

It works with the tools of Claude Code (Read, Write, Edit), one step for each turn. It does something small and visible
to one file, or turns one page into several where that is asked for, so that sandboxes, limits and reviews around a real
agent can be tried.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
from collections.abc import Iterator, Sequence

from sandbox.rehearsal.blocks import Block, Text, ToolUse
from sandbox.rehearsal.paging import asks_for_pages, split_pages
from sandbox.rehearsal.request import Request, ToolResult
from sandbox.rehearsal.tokens import CHARACTERS_PER_TOKEN
from sandbox.rehearsal.words import plain, quoted, sentence, slug, title

_DIRECTORY = re.compile(r"[Ww]orking directory:\s*(\S+)")
_FILE_NAME = re.compile(r"(?<![\w/.-])(?:[\w-][\w.-]*/)*[\w-]+\.[A-Za-z][A-Za-z0-9]{0,7}\b")
_NUMBERED = re.compile(r"^\s*\d+(?:→|\t)(.*)$")
_ENDS = ("</main>", "</body>")
_MARKUP = (".html", ".htm")
_TRIES = 2
"""How often a page is written that could not be."""
_SHARE_FOR_TEXT = 0.8
"""Of a reply's length; the rest is for what stands around the text."""


def code_agent(request: Request) -> Sequence[Block]:
    """Take the next step: read, then edit or write, then report."""
    path = _target(request)
    changed = [result for result in request.tool_results if result.tool in ("Write", "Edit")]
    read = [result for result in request.tool_results if result.tool == "Read"]
    known = _content(read[-1]) if read else None
    if known is not None and (pages := _pages(request, path, known, changed=changed)):
        return pages
    if changed and not changed[-1].is_error:
        return (Text(_report(request, path, changed[-1])),)
    if len(changed) + len(read) > 3:
        return (Text(f"I could not change {path}: {plain(changed[-1].text if changed else read[-1].text)[:300]}"),)
    if not read and request.tool("Read"):
        return (Text(f"I will read {path} first."), ToolUse("Read", {"file_path": path}))
    if known is not None and request.tool("Edit"):
        return (_edit(request, path, known),)
    if request.tool("Write"):
        return (ToolUse("Write", {"file_path": path, "content": _new_file(request, path)}),)
    return (ToolUse("Edit", {"file_path": path, "old_string": "", "new_string": _new_file(request, path)}),)


def _target(request: Request) -> str:
    """Return the file that the prompt names, or the first page, in the working directory that the CLI states."""
    named = _FILE_NAME.search(plain(request.prompt))
    path = named[0] if named else "index.html"
    stated = _DIRECTORY.search(request.system)
    return posixpath.join(stated[1], path) if stated else path


def _content(result: ToolResult) -> list[str] | None:
    """Return the lines that a Read returned, or None when it returned none."""
    if result.is_error:
        return None
    lines = [numbered[1] for line in result.text.splitlines() if (numbered := _NUMBERED.match(line))]
    return lines or None


def _pages(request: Request, path: str, lines: list[str], *, changed: Sequence[ToolResult]) -> Sequence[Block]:
    """Write those pages that are not there yet, as many as fit into one reply; nothing where no pages are asked for.

    The one that was read comes last, when those that it leads to are there.
    """
    if not (path.endswith(_MARKUP) and request.tool("Write") and asks_for_pages(request.prompt)):
        return ()
    pages = split_pages("\n".join(lines) + "\n")
    home = pages.pop("index.html")
    folder = posixpath.dirname(path)
    wanted = [*((posixpath.join(folder, name), text) for name, text in pages.items()), (path, home)]
    written = {result.input.get("file_path") for result in changed if not result.is_error}
    left = [(name, text) for name, text in wanted if name not in written]
    if not left or len(changed) > _TRIES * len(wanted):
        return ()
    said = "Now the next ones." if written else f"I will make {len(wanted)} pages with one navigation."
    room = request.body.max_tokens * CHARACTERS_PER_TOKEN * _SHARE_FOR_TEXT
    return [
        Text(said),
        *(ToolUse("Write", {"file_path": name, "content": text}) for name, text in _fitting(left, room)),
    ]


def _fitting(pages: Sequence[tuple[str, str]], room: float) -> Iterator[tuple[str, str]]:
    """Yield the first page, and those after it for which there is room."""
    for number, (name, text) in enumerate(pages):
        room -= len(json.dumps(text))
        if number and room < 0:
            return
        yield name, text


def _edit(request: Request, path: str, lines: list[str]) -> ToolUse:
    """Insert what was asked before the end of the page, or after the last line of any other file."""
    text = _addition(request, path)
    whole = "\n".join(lines)
    for end in _ENDS:
        if whole.count(end) == 1:
            return ToolUse("Edit", {"file_path": path, "old_string": end, "new_string": f"{text}\n{end}"})
    anchor = _unique_ending(lines)
    return ToolUse("Edit", {"file_path": path, "old_string": anchor, "new_string": f"{anchor}\n{text}"})


def _unique_ending(lines: list[str]) -> str:
    """Return the last line, and as many before it as make it unique in the file."""
    whole = "\n".join(lines)
    for count in range(1, len(lines) + 1):
        if (ending := "\n".join(lines[-count:])).strip() and whole.count(ending) == 1:
            return ending
    return whole


def _addition(request: Request, path: str) -> str:
    said = "\n".join(quoted(request.prompt)) or sentence(request.prompt)
    if not path.endswith(_MARKUP):
        return said
    heading = title(request.prompt)
    return (
        f'<section id="{slug(heading)}">\n  <h2>{html.escape(heading)}</h2>\n  <p>{html.escape(sentence(said))}</p>\n'
        "</section>"
    )


def _new_file(request: Request, path: str) -> str:
    text = _addition(request, path)
    if not path.endswith(_MARKUP):
        return text + "\n"
    heading = html.escape(title(request.prompt))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{heading}</title>\n'
        f"</head>\n<body>\n<main>\n{text}\n</main>\n</body>\n</html>\n"
    )


def _report(request: Request, path: str, change: ToolResult) -> str:
    how = "wrote" if change.tool == "Write" else "changed"
    return (
        f"I {how} {path}. You asked: “{plain(request.prompt)[:600]}” This is a rehearsal: the change shows what was "
        "asked in words, it does not pretend to have understood it."
    )
