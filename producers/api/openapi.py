"""The OpenAPI document: request schemas, examples, and field descriptions from the docstrings in the code."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from pydantic import BaseModel

from producers.api.problems import PROBLEM_TYPE, FieldProblem, Problem, problem_body
from routing.errors import FieldError
from routing.jobs import JobRequest
from routing.yaml_data import load_yaml

REF = "#/components/schemas/{model}"

_DATA: Mapping[str, Any] = load_yaml(resources.files("producers.api").joinpath("openapi.yaml").read_text("utf-8"))
SUBMIT_BODY: dict[str, Any] = {"requestBody": _DATA["bodies"]["submit"]}
BATCH_BODY: dict[str, Any] = {"requestBody": _DATA["bodies"]["batch"]}

EVENT_STREAM = """id: 4711
event: state
data: {"id":4711,"at":"2026-11-20T09:30:00Z","kind":"state","data":{"origin":"scanning","target":"publishing"}, ...}

: ping

"""
"""A client that lost its connection resumes with `Last-Event-ID: 4711`."""

KEY_LENGTH: dict[str, Any] = {"minLength": 1, "maxLength": 200}
"""Of an idempotency key in a header; the body's field has the rule itself."""

NO_ROOM: dict[int | str, dict[str, Any]] = {
    429: {
        "description": "The queue is full (`queue_full`), the budget spent (`budget_exceeded`), or too many wrong keys "
        "were tried (`too_many_tries`)."
    }
}


def body_of(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """Return the documentation of an operation's body."""
    schema = model.model_json_schema()
    return {"requestBody": {"content": {"application/json": {"schema": schema, "example": example}}}}


def show_answers(document: dict[str, Any]) -> None:
    """Add recorded responses, typical problems and the callback at a job's end to an OpenAPI document."""
    text = resources.files("producers.api").joinpath("answers.json").read_text("utf-8")
    for key, answer in json.loads(text).items():
        method, path = key.split(" ")
        answers = document["paths"][path][method.lower()]["responses"]
        good = next(code for code in answers if code.startswith("2"))
        answers[good]["content"]["application/json"]["example"] = answer
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                _show_problems(status, answer)
    document["webhooks"] = _DATA["webhooks"]


def _example(*, status: int, type: str, detail: str, errors: Iterable[Mapping[str, str]] = ()) -> dict[str, Any]:
    fields = [FieldError(error["field"], error["rule"]) for error in errors]
    return problem_body(status, type, detail, errors=fields).model_dump()


def _show_problems(status: str, answer: dict[str, Any]) -> None:
    kinds = {
        kind: {"value": _example(**facts)}
        for kind, facts in _DATA["problems"].items()
        if str(facts["status"]) == status and (kind != "queue_full" or kind in answer["description"])
    }
    if kinds and "content" in answer:
        answer["content"]["application/problem+json"]["examples"] = kinds


_KEY_STATUSES = {
    401: "The API key is missing, wrong or revoked.",
    403: "The key lacks the operation's scope, or may not do this itself.",
    422: "A field or parameter breaks its rule, or there is none of this name.",
    429: "Too many wrong keys from this address, or with this one (`too_many_tries`).",
    503: "The ledger or the content store cannot be reached: nothing was accepted.",
}
_NAMED_STATUSES = {404: "There is none, or it belongs to another tenant."}
_BODY_STATUSES = {400: "The body is no JSON.", 413: "The body is too long."} | _NAMED_STATUSES
_CHANGE_STATUSES = {409: "The state of things, or a concurrent request, does not allow this."}
_TIMES = {"Retry-After": {"description": "When to retry, in seconds.", "schema": {"type": "integer"}}}


def describe_problems(document: dict[str, Any]) -> None:
    """Describe the error responses of every operation, in place of those that FastAPI assumes."""
    schemas = document["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["FieldProblem"] = FieldProblem.model_json_schema()
    schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas["Problem"].pop("$defs", None)
    for operations in document["paths"].values():
        for method, operation in operations.items():
            responses = operation["responses"]
            responses.pop("422", None)
            for status, words in _problems_of(method, operation).items():
                content = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
                described = responses.setdefault(str(status), {"description": words})
                described["content"] = content
                if status in (429, 503):
                    described["headers"] = _TIMES
            if "requestBody" in operation:
                responses["408"] = {"description": "The body did not arrive in time; the connection is closed."}
            operation["responses"] = dict(sorted(responses.items()))


def _problems_of(method: str, operation: Mapping[str, Any]) -> dict[int, str]:
    """Return the statuses of an operation's problems, in words."""
    found = {500: "Our fault: it was logged."}
    if "security" in operation or method == "post":
        found |= _KEY_STATUSES
    if any(item["in"] == "path" or item["name"] == "site" for item in operation.get("parameters", ())):
        found |= _NAMED_STATUSES
    if "requestBody" in operation:
        found |= _BODY_STATUSES
    if method == "post":
        found |= _CHANGE_STATUSES
    return found | {int(status): "" for status in operation["responses"] if int(status) >= 400}


def request_schemas() -> dict[str, Any]:
    """Return the component schemas of a job request."""
    schema = JobRequest.model_json_schema(ref_template=REF)
    parts: dict[str, Any] = schema.pop("$defs", {})
    return {**parts, "JobRequest": schema}


_OURS = ("producers.", "routing.", "ledger.", "sites.", "gateway.", "monitoring.", "sandbox.")
_RULE = re.compile(r" \((?:[A-Z]+-\d+|A\d+|ruling A\d+)[^)]*\)")
"""Rule ids that mean nothing outside this repository."""


def describe_fields(document: dict[str, Any]) -> None:
    """Describe every field of every model with the string literal below it in the code.

    Pydantic could do so when it creates each class, but then every program would pay for this.
    """
    models: dict[str, list[type[BaseModel]]] = {}
    for model in _models(BaseModel):
        if model.__module__.startswith(_OURS):
            models.setdefault(model.__name__, []).append(model)
    for name, schema in _schemas(document):
        matches = [model for model in models.get(name, ()) if set(model.model_fields) >= set(schema["properties"])]
        if not matches:
            continue
        descriptions = _descriptions_of(matches[0])
        for field, content in schema["properties"].items():
            if field in descriptions and "description" not in content:
                content["description"] = descriptions[field]


def _descriptions_of(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the descriptions of a model's fields, those of its bases included."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base.__module__.startswith(_OURS):
            found |= _described_fields(base.__module__).get(base.__name__, {})
    return found


def _models(root: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in root.__subclasses__():
        yield model
        yield from _models(model)


def _schemas(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the schema of every object in the document with its model's name."""
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
def _described_fields(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the string literal below each field of each class of a module."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: dict(_below_fields(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _below_fields(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in zip(node.body, node.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            yield field.target.id, _RULE.sub("", " ".join(below.value.value.split()))
