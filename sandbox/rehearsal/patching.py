"""The tier-2 tool as the rehearsal model uses it: SEARCH/REPLACE blocks for the files that were sent.

Like the code agent it does something small and visible to one file: what the request quotes is replaced where it
stands, anything else is added before the end of the page.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sandbox.rehearsal.blocks import Block, Text, ToolUse
from sandbox.rehearsal.document import asked
from sandbox.rehearsal.request import Request
from sandbox.rehearsal.words import plain, quoted, sentence, slug, title

PATCH_TOOL = "patch_files"
_FILE = re.compile(r'<(file(?:-\d+)?) path="([^"]+)"[^>]*>\n(.*?)\n</\1>', re.S)
_ASKED = re.compile(r"The owner asks:\n(.*?)(?:\n\nYour last patch|\Z)", re.S)
_ENDS = ("</main>", "</body>")
_COLOUR = re.compile(r"#[0-9a-f]{3,8}\b", re.I)


class _Edit(NamedTuple):
    path: str
    search: str
    replace: str

    def block(self) -> str:
        return f"{self.path}\n<<<<<<< SEARCH\n{self.search}\n=======\n{self.replace}\n>>>>>>> REPLACE\n"


def site_patch(request: Request) -> Sequence[Block]:
    """Use `patch_files` with one block for the file that fits; without files, say so."""
    text = "\n".join(request.user_texts)
    files = {path: shown for _, path, shown in _FILE.findall(text)}
    found = _ASKED.search(text)
    ask = found[1].strip() if found else asked(text)
    edit = _edit(files, ask) if files else _new_page(ask)
    if edit is None:
        return (Text("This rehearsal finds no place in the files that it could change."),)
    summary = f"Rehearsed: {plain(ask)}"[:200]
    return (ToolUse(PATCH_TOOL, {"patch": edit.block(), "summary": summary}),)


def _edit(files: Mapping[str, str], ask: str) -> _Edit | None:
    for reading in (_replace_quoted, _replace_colour, _add):
        if (edit := reading(files, ask)) is not None:
            return edit
    return None


def _order(files: Mapping[str, str], ask: str) -> list[str]:
    """Return the paths, those that the request names first."""
    return sorted(files, key=lambda path: path not in ask and path.rsplit("/", 1)[-1] not in ask)


def _replace_quoted(files: Mapping[str, str], ask: str) -> _Edit | None:
    """Replace the first quoted text by the second, on the one line that holds it."""
    parts = quoted(ask)
    if len(parts) != 2:
        return None
    old, new = parts
    for path in _order(files, ask):
        lines = [line for line in files[path].split("\n") if old in line]
        if len(lines) == 1 and files[path].count(lines[0]) == 1:
            return _Edit(path, lines[0], lines[0].replace(old, html.escape(new) if path.endswith(".html") else new))
    return None


def _replace_colour(files: Mapping[str, str], ask: str) -> _Edit | None:
    """Replace the first colour of a stylesheet by the one that is named."""
    wanted = _COLOUR.search(ask)
    if wanted is None:
        return None
    for path in _order(files, ask):
        if not path.endswith(".css"):
            continue
        for line in files[path].split("\n"):
            if _COLOUR.search(line) and files[path].count(line) == 1:
                return _Edit(path, line, _COLOUR.sub(wanted[0], line, count=1))
    return None


def _add(files: Mapping[str, str], ask: str) -> _Edit | None:
    """Add what was asked before the end of a page."""
    for path in _order(files, ask):
        if not path.endswith((".html", ".htm")):
            continue
        for line in files[path].split("\n"):
            if any(end in line for end in _ENDS) and files[path].count(line) == 1:
                end = next(end for end in _ENDS if end in line)
                return _Edit(path, line, line.replace(end, f"{_section(ask)}\n{end}", 1))
    return None


def _section(ask: str) -> str:
    heading = title(ask)
    said = html.escape(sentence(" ".join(quoted(ask)) or ask))
    return f'<section id="{slug(heading)}">\n  <h2>{html.escape(heading)}</h2>\n  <p>{said}</p>\n</section>'


def _new_page(ask: str) -> _Edit:
    heading = html.escape(title(ask))
    page = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{heading}</title>\n</head>\n'
        f"<body>\n<main>\n{_section(ask)}\n</main>\n</body>\n</html>"
    )
    return _Edit("index.html", "", page)
