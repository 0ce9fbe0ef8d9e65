"""A new site from an outline: the model writes the words, the catalog does everything else, the same way every time.

An outline fits 1,500 tokens where the finished site takes six times as many; that is what lets two attempts fit the
tier's caps of time and money.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from sandbox.spec.catalog import components
from sandbox.spec.composition import compose
from sandbox.spec.errors import Finding, SpecError, refuse, shown
from sandbox.spec.model import JsonObject, Site, deepcopy_checked, parse_site, pointer
from sandbox.spec.outline_model import Outline
from sandbox.spec.validate import require_valid


def outline_schema() -> JsonObject:
    """Return the JSON schema of an outline, without references and titles, as a tool's input schema."""
    schema = Outline.model_json_schema()
    inlined: JsonObject = _inline(schema, schema.get("$defs", {}))
    inlined["properties"]["sections"]["items"]["properties"]["kind"] = {"type": "string", "enum": outline_kinds()}
    return inlined


def outline_kinds() -> list[str]:
    """Return the names of the components that outlines offer."""
    return [component.name for component in components().values() if component.outline]


def outline_tool() -> JsonObject:
    """Return the tool that a model is forced to call for a new site."""
    return {
        "name": "write_outline",
        "description": "Hand over the outline of the new site.",
        "input_schema": outline_schema(),
    }


def expand_outline(outline: object) -> Site:
    """Return the full site that an outline stands for.

    Args:
        outline: what the model handed over, any JSON value.

    Raises:
        SpecError: the outline breaks a rule (the model's fault): `bad_outline` with a path below `/outline`, or what is
            invalid in the expanded site.
    """
    site = parse_site({"pages": compose(_parse(outline))})
    require_valid(site)
    return site


def _parse(outline: object) -> Outline:
    try:
        parsed = Outline.model_validate(_without_blanks(deepcopy_checked(outline)))
    except ValidationError as error:
        raise SpecError(
            tuple(
                Finding("bad_outline", ("/outline" + pointer(*problem["loc"]))[:300], problem["msg"][:300])
                for problem in error.errors(include_url=False, include_context=False, include_input=False)[:20]
            )
        ) from None
    kinds = outline_kinds()
    for index, section in enumerate(parsed.sections):
        if section.kind not in kinds:
            rule = f"{shown(section.kind)} is no kind of section; use one of {', '.join(kinds)}"
            raise refuse("bad_outline", f"/outline/sections/{index}/kind", rule)
    return parsed


def _without_blanks(value: Any) -> Any:
    """Drop empty texts: models write "" where they mean nothing."""
    if isinstance(value, dict):
        return {key: _without_blanks(item) for key, item in value.items() if item != ""}
    return [_without_blanks(item) for item in value] if isinstance(value, list) else value


def _inline(value: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        if "$ref" in value:
            return _inline(definitions[value["$ref"].rsplit("/", 1)[1]], definitions)
        kept = {key: item for key, item in value.items() if key not in ("$defs", "description", "default")}
        named = kept.get("properties")
        if not isinstance(named, dict):
            kept.pop("title", None) if isinstance(kept.get("title"), str) else None
        else:
            kept = {key: item for key, item in kept.items() if key != "title"}
        return {key: _inline(item, definitions) for key, item in kept.items()}
    return [_inline(item, definitions) for item in value] if isinstance(value, list) else value
