"""Answers to questions: look at files when tools offer them, then say plainly that this is a rehearsal."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sandbox.rehearsal.blocks import Block, Text, ToolUse
from sandbox.rehearsal.request import Request, ToolResult
from sandbox.rehearsal.words import key_words, plain, words

LIST_TOOL = "list_files"
READ_TOOL = "read_file"
_QUOTE = 600
"""How many characters of a file an answer quotes at most."""
_FILES_READ = 2
_FILE_NAME = re.compile(r"\w[\w./-]*\.[A-Za-z][A-Za-z0-9]{0,4}\b")
_READABLE = (".html", ".css", ".js", ".json", ".md", ".txt")


def answer(request: Request) -> Sequence[Block]:
    """Answer a question: list files, read those that the question seems to be about, quote what was found."""
    listing = _result_of(request, LIST_TOOL)
    if request.tool(LIST_TOOL) is not None and listing is None:
        return (Text("I will look at the files first."), ToolUse(LIST_TOOL, {}))
    read = [result for result in request.tool_results if result.tool == READ_TOOL]
    if request.tool(READ_TOOL) is not None and listing is not None and not listing.is_error and len(read) < _FILES_READ:
        seen = {str(result.input.get("path")) for result in read}
        if (path := _next_file(_paths(listing.text), request.prompt, seen)) is not None:
            return (ToolUse(READ_TOOL, {"path": path}),)
    return (Text(_text(request, listing, read)),)


def _result_of(request: Request, tool: str) -> ToolResult | None:
    return next((result for result in reversed(request.tool_results) if result.tool == tool), None)


def _paths(listing: str) -> list[str]:
    """Return what looks like file names, in whatever form a tool lists them."""
    return list(dict.fromkeys(_FILE_NAME.findall(listing)))


def _next_file(paths: list[str], question: str, seen: set[str]) -> str | None:
    """Choose the file that shares most words with the question; the first page when none does."""
    wanted = {word.casefold() for word in words(question) if len(word) > 2}
    readable = [
        path for path in paths if path not in seen and path.endswith((".html", ".css", ".js", ".json", ".md", ".txt"))
    ]
    if not readable or (seen and not any(word in path.casefold() for path in readable for word in wanted)):
        return None
    return max(
        readable, key=lambda path: (sum(word in path.casefold() for word in wanted), path.endswith("index.html"))
    )


def _text(request: Request, listing: ToolResult | None, read: list[ToolResult]) -> str:
    paragraphs = [
        f"You asked: “{plain(request.prompt)[:1200]}”",
        "This answer comes from the rehearsal model, which has no knowledge of its own: it plays a scenario at the "
        f"speed and price of {request.model}, so that everything around it can be tried without a key. With a real "
        "model behind the same address, the request would be answered from what the model knows and from what its "
        "tools return.",
    ]
    if listing is not None:
        names = _paths(listing.text)
        shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        paragraphs.append(
            f"I did look: {LIST_TOOL} returned {len(names)} files ({shown or plain(listing.text)[:200]})."
        )
    for result in read:
        path = result.input.get("path", "the file")
        state = "could not be read" if result.is_error else "reads"
        paragraphs.append(f"{path} {state}:\n\n> " + "\n> ".join(result.text[:_QUOTE].splitlines()))
    about = ", ".join(key_words(request.prompt, 5)) or "it"
    paragraphs.append(
        f"A useful answer about {about} would name the place, say what is there now, and say what follows from it. As "
        "a rehearsal I vouch for no more than the quotation above."
        if read
        else f"A useful answer about {about} would start from facts; none were at hand here, so I claim none."
    )
    return "\n\n".join(paragraphs)
