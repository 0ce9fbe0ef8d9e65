"""A value that satisfies a JSON Schema, made of the words of a prompt: what a model says when no rule knows better."""

from __future__ import annotations

from typing import Any

from sandbox.rehearsal.errors import RequestError
from sandbox.rehearsal.words import plain, slug, title

_DEPTH = 12
"""Deeper schemas (usually recursive ones) get their smallest value."""
_VALUES = 2000
"""An example has at most about this many values, whatever the schema asks for."""


def example_of(schema: dict[str, Any], *, about: str) -> Any:
    """Return a value for a schema: required fields only, the first choice everywhere, texts from `about`.

    Raises:
        RequestError: the caller's fault: the schema is not one.
    """
    try:
        return _Example(schema, plain(about)).value(schema, "", 0)
    except (TypeError, ValueError, AttributeError, LookupError, RecursionError, OverflowError):
        raise RequestError("invalid_request_error", "a schema in this request is not a JSON Schema") from None


class _Example:
    def __init__(self, root: dict[str, Any], about: str) -> None:
        self._root = root
        self._about = about
        self._left = _VALUES

    def value(self, schema: Any, name: str, depth: int) -> Any:
        schema = self._resolve(schema)
        self._left -= 1
        for key in ("const", "default"):
            if key in schema:
                return schema[key]
        if schema.get("enum"):
            return schema["enum"][0]
        kind = schema.get("type")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema, depth)
        if kind == "array":
            count = min(schema.get("minItems", 0) or (depth < _DEPTH), 100) if self._left > 0 else 0
            return [self.value(schema.get("items"), name, depth + 1) for _ in range(count)]
        return self._scalar(schema, kind, name)

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        if depth >= 2 * _DEPTH or self._left <= 0:
            return {}
        names = schema.get("required", [] if depth else list(properties))
        return {name: self.value(properties.get(name), name, depth + 1) for name in names}

    def _scalar(self, schema: dict[str, Any], kind: Any, name: str) -> Any:
        if kind == "boolean":
            return True
        if kind == "null":
            return None
        if kind in ("integer", "number"):
            least = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
            return least if kind == "number" else int(least)
        return self._text(schema, name)

    def _text(self, schema: dict[str, Any], name: str) -> str:
        if schema.get("format") == "uri":
            return "https://example.com/"
        short = schema.get("maxLength", 200)
        text = slug(self._about) if name in ("id", "key", "slug", "name") else self._about
        text = text if len(text) <= short else title(text)[:short]
        return text.ljust(schema.get("minLength", 0), ".")

    def _resolve(self, schema: Any) -> dict[str, Any]:
        for _ in range(_DEPTH):
            if not isinstance(schema, dict):
                return {}
            if isinstance(reference := schema.get("$ref"), str):
                schema = self._follow(reference)
            elif options := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
                schema = options[0]
            else:
                return schema
        return {}

    def _follow(self, reference: str) -> Any:
        node: Any = self._root
        for part in reference.removeprefix("#/").split("/"):
            node = node.get(part) if isinstance(node, dict) else None
        return node
