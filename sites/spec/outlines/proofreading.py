"""A new site is proofread against its owner's words before anybody sees it, and its outline corrected."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from sites.errors import refuse
from sites.excerpts import read_page
from sites.spec.edit import apply_operation
from sites.spec.model import JsonObject, Site, deepcopy_checked
from sites.spec.render import render

_MAX_CORRECTIONS: Final = 24
_MAX_WORDS: Final = 60
_WORD: Final = re.compile(r"[^\W\d_]{4,}|\d+")
_ENDING: Final = 3
"""Letters of a word that may differ where a site says it otherwise."""
_PLACE: Final = r"^/(?:sections|contact|name|tagline|description|summary)(?:/|$)"


class _Correction(BaseModel, frozen=True, extra="forbid"):
    op: Literal["add", "replace", "remove"]
    path: Annotated[str, Field(max_length=200, pattern=_PLACE)]
    value: Annotated[Any, Field(description="any JSON value; required for add and replace")] = None


_CORRECTIONS: Final = TypeAdapter(Annotated[tuple[_Correction, ...], Field(max_length=_MAX_CORRECTIONS)])


def proof_of(request: str, outline: Mapping[str, Any], site: Site) -> str:
    """Return what a proofreader gets of a site beside the request: its outline, its pages and what they do not say."""
    pages = {path: read_page(data.decode()) for path, data in render(site).items() if path.endswith(".html")}
    read = "\n\n".join(f"Page {path}:\n{text}" for path, text in pages.items())
    missing = ", ".join(list(unsaid(request, read))[:_MAX_WORDS])
    made = "\n".join(_lines(outline))
    said = f"{read}\n\nWords of the request that stand nowhere on the site: {missing}"
    return f"The outline, its sections with their paths:\n{made}\n\n{said}"


def _lines(outline: Mapping[str, Any]) -> Iterator[str]:
    """Yield an outline in lines: what is no section, then each section after its path, so that nobody counts them."""
    yield json.dumps({name: value for name, value in outline.items() if name != "sections"}, ensure_ascii=False)
    for at, section in enumerate(outline.get("sections", ())):
        yield f"/sections/{at}: {json.dumps(section, ensure_ascii=False)}"


def unsaid(request: str, read: str) -> Iterator[str]:
    """Yield the words and numbers of a request that a site does not have, each once."""
    said, seen = read.casefold(), set[str]()
    for word in _WORD.findall(request):
        stem = word.casefold()
        stem = stem if stem.isdigit() else stem[: max(4, len(stem) - _ENDING)]
        if stem not in said and stem not in seen:
            seen.add(stem)
            yield word


def corrected(outline: Mapping[str, Any], reply: Mapping[str, Any]) -> JsonObject:
    """Return an outline with a proofreader's corrections, all or none.

    Raises:
        SpecError: `bad_operation` or `patch_failed` (the proofreader's fault); what it makes is not checked.
    """
    try:
        corrections = _CORRECTIONS.validate_python(reply.get("corrections"))
    except ValidationError as error:
        raise refuse("bad_operation", "/corrections", str(error.errors()[0]["msg"])) from None
    changed: JsonObject = deepcopy_checked(outline)
    for at, each in enumerate(corrections):
        apply_operation(changed, each.model_dump(), f"/corrections/{at}")
    return changed


def proofreading_tool() -> JsonObject:
    """Return the tool that a proofreader is forced to call."""
    corrections = {"type": "array", "maxItems": _MAX_CORRECTIONS, "items": _Correction.model_json_schema()}
    return {
        "name": "correct_outline",
        "description": "Hand over what has to be corrected in the outline; an empty list if nothing has to.",
        "input_schema": {
            "type": "object",
            "properties": {"corrections": corrections},
            "required": ["corrections"],
        },
    }
