"""The tier-1 tools as the rehearsal model uses them: an edit of the site document, the outline of a new site."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.rehearsal.blocks import Block, Text, ToolUse
from sandbox.rehearsal.document import asked, find_document
from sandbox.rehearsal.editing import edit_operations
from sandbox.rehearsal.outlining import outline_of
from sandbox.rehearsal.request import Request
from sandbox.rehearsal.words import plain

EDIT_TOOL = "edit_site"
OUTLINE_TOOL = "write_outline"


def site_edit(request: Request) -> Sequence[Block]:
    """Use `edit_site` with operations for the document that was sent; without one, say so."""
    found = find_document(request)
    operations = edit_operations(found[0], asked(found[1])) if found else []
    if found is None or not operations:
        return (Text("This rehearsal finds no site document in the request that it could edit."),)
    summary = f"Rehearsed: {plain(asked(found[1]))}"[:200]
    return (ToolUse(EDIT_TOOL, {"operations": operations, "summary": summary}),)


def site_outline(request: Request) -> Sequence[Block]:
    """Use `write_outline` with the outline of a site for the description."""
    return (ToolUse(OUTLINE_TOOL, outline_of(asked(request.prompt))),)
