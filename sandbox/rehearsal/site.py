"""The tier-1 tools as the rehearsal model uses them: an edit of the site document, the outline of a new site."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandbox.rehearsal.blocks import Block, Text, ToolUse
from sandbox.rehearsal.document import asked, find_document
from sandbox.rehearsal.editing import edit_operations
from sandbox.rehearsal.example import example_of
from sandbox.rehearsal.request import Request

EDIT_TOOL = "edit_site"


def site_edit(request: Request) -> Sequence[Block]:
    """Use `edit_site` with operations for the document that was sent; without one, say so."""
    found = find_document(request)
    tool = request.tool(EDIT_TOOL)
    operations = edit_operations(found[0], asked(found[1])) if found else []
    if tool is None or not operations:
        return (Text("This rehearsal finds no site document in the request that it could edit."),)
    return (ToolUse(EDIT_TOOL, _filled(tool.input_schema, request, {"operations": operations})),)


def _filled(schema: dict[str, Any], request: Request, known: dict[str, Any]) -> dict[str, Any]:
    """Return a tool's input: what is known, and an example of whatever else its schema requires."""
    rest = {**schema, "required": [name for name in schema.get("required", []) if name not in known]}
    made = example_of(rest, about=request.prompt)
    return (made if isinstance(made, dict) else {}) | known
