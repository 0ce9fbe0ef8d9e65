"""What the code says of a field, right below it, in the OpenAPI document: read when the document is first asked for.

Pydantic can do this where each class is made; then every program would pay for a page that hardly any of them serves.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

_OURS = ("producers.", "routing.", "monitoring.", "sandbox.")
_RULE = re.compile(r" \((?:[A-Z]+-\d+|A\d+|ruling A\d+)[^)]*\)")
"""Names of rules that only this repository's readers can look up."""


def describe_fields(document: dict[str, Any]) -> None:
    """Give every field of every model in an OpenAPI document the words that its code has for it."""
    known: dict[str, list[type[BaseModel]]] = {}
    for model in _models(BaseModel):
        if model.__module__.startswith(_OURS):
            known.setdefault(model.__name__, []).append(model)
    for name, schema in _schemas(document):
        named = [model for model in known.get(name, ()) if set(model.model_fields) == set(schema["properties"])]
        if not named:
            continue
        words = fields_of(named[0])
        for field, shown in schema["properties"].items():
            if field in words and "description" not in shown:
                shown["description"] = words[field]


def fields_of(model: type[BaseModel]) -> Mapping[str, str]:
    """Return what the code says of a model's fields, its bases' included."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base.__module__.startswith(_OURS):
            found |= _documented(base.__module__).get(base.__name__, {})
    return found


def _models(root: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in root.__subclasses__():
        yield model
        yield from _models(model)


def _schemas(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema of an object in the document, with its model's name."""
    stack: list[Any] = [document]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if isinstance(item.get("properties"), dict) and isinstance(item.get("title"), str):
                yield item["title"], item
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


@cache
def _documented(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the words below each field of each class of a module."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: dict(_below_fields(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _below_fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in zip(node.body, node.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            yield field.target.id, _RULE.sub("", " ".join(below.value.value.split()))
