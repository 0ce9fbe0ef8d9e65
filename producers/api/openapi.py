"""The OpenAPI document: request schemas, examples, and field descriptions from the docstrings in the code."""

from __future__ import annotations

import ast
import http
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

from pydantic import BaseModel

from routing.jobs import JobRequest

REF = "#/components/schemas/{model}"

_SUBMIT_EXAMPLES = {
    "edit": {
        "summary": "An edit of a site",
        "value": {"prompt": "Change the headline to 'Fresh bread, every morning'", "site": "bakery"},
    },
    "question": {"summary": "A question", "value": {"prompt": "Which pages mention opening hours?", "site": "bakery"}},
    "new_site": {
        "summary": "A new site from a description",
        "value": {"prompt": "A one-page site for a bike repair shop in Graz", "new_site": "bike-repair"},
    },
    "override": {
        "summary": "A chosen tier, with a budget and a signed callback",
        "value": {
            "prompt": "Fix the logo, it is stretched in Firefox",
            "site": "bakery",
            "tier": "patch",
            "budget_usd": 0.05,
            "priority": "P1",
            "callback_url": "https://example.com/hooks/pointsman",
            "idempotency_key": "ticket-4711",
        },
    },
    "options": {
        "summary": "A short reply to options that the caller has offered",
        "value": {
            "prompt": "the second one",
            "site": "bakery",
            "options": [
                {"id": "logo", "label": "Make the logo larger", "source": "chat"},
                {"id": "menu", "label": "Add the menu to the navigation", "source": "chat"},
            ],
        },
    },
    "may_wait": {
        "summary": "Work of low priority",
        "value": {"prompt": "Fix the typo in the footer", "site": "bakery", "priority": "P3"},
    },
    "advanced": {
        "summary": "The code agent, within a budget",
        "value": {
            "prompt": "Convert the site to several pages with a shared navigation",
            "site": "bakery",
            "advanced_edit": True,
            "budget_usd": 0.5,
        },
    },
    "newest_wins": {
        "summary": "An edit that supersedes older ones with the same key",
        "value": {"prompt": "Change the price of rye bread to $4.20", "site": "bakery", "supersede_key": "price-rye"},
    },
}

SUBMIT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": REF.format(model="JobRequest")}, "examples": _SUBMIT_EXAMPLES}
        },
    }
}

BATCH_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["jobs"],
                    "additionalProperties": False,
                    "properties": {
                        "jobs": {
                            "type": "array",
                            "minItems": 1,
                            "maxItems": 1000,
                            "items": {"$ref": REF.format(model="JobRequest")},
                        },
                    },
                },
                "example": {
                    "jobs": [
                        {"prompt": "Fix the typo in the footer", "site": "bakery", "idempotency_key": "ticket-4712"},
                        {"prompt": "Which pages mention opening hours?", "site": "bakery"},
                    ]
                },
            }
        },
    }
}


def _problem(status: int, kind: str, detail: str, *errors: tuple[str, str]) -> dict[str, Any]:
    return {
        "type": f"urn:pointsman:problem:{kind}",
        "title": http.HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "errors": [{"field": field, "rule": rule} for field, rule in errors],
    }


_PROBLEMS = {
    "unauthenticated": _problem(401, "unauthenticated", "the API key is missing, wrong or revoked"),
    "missing_scope": _problem(403, "missing_scope", "the key lacks the scope approve"),
    "not_found": _problem(404, "not_found", "no job of this id belongs to the tenant"),
    "conflict": _problem(
        409, "conflict", "job 00000000-0000-4000-8000-000000000001 is published; this needs awaiting_approval"
    ),
    "broken_body": _problem(
        400, "invalid_request", "body: must be valid JSON; line 1, column 2", ("body", "must be valid JSON; ...")
    ),
    "too_long": _problem(413, "invalid_request", "body: must not be longer than 64 KiB", ("body", "must not be ...")),
    "invalid_request": _problem(422, "invalid_request", "prompt: must not be empty", ("prompt", "must not be empty")),
    "too_many_tries": _problem(429, "too_many_tries", "too many logins or wrong keys; try again in 6 s"),
    "internal_error": _problem(500, "internal_error", "this is our fault; it has been logged"),
    "ledger_unreachable": _problem(
        503, "ledger_unreachable", "the ledger cannot be reached; nothing was accepted, try again"
    ),
}
_FULL = _problem(429, "queue_full", "queue spec has 5000 jobs of the tenant waiting; try again in 20 s")

_WEBHOOK = {
    "type": "job.ended",
    "job_id": "00000000-0000-4000-8000-000000000001",
    "state": "published",
    "reason": "done",
}

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
    """Add recorded responses and typical problems to an OpenAPI document."""
    text = resources.files("producers.api").joinpath("answers.json").read_text("utf-8")
    for key, answer in json.loads(text).items():
        method, path = key.split(" ")
        answers = document["paths"][path][method.lower()]["responses"]
        good = next(code for code in answers if code.startswith("2"))
        answers[good]["content"]["application/json"]["example"] = answer
    for operations in document["paths"].values():
        for operation in operations.values():
            _show_problems(operation["responses"])


def _show_problems(responses: Mapping[str, Any]) -> None:
    for status, answer in responses.items():
        kinds = {kind: {"value": value} for kind, value in _PROBLEMS.items() if str(value["status"]) == status}
        if "queue_full" in answer["description"]:
            kinds = {"queue_full": {"value": _FULL}} | kinds
        if kinds and "content" in answer:
            answer["content"]["application/problem+json"]["examples"] = kinds


def describe_webhook(document: dict[str, Any]) -> None:
    """Describe the callback at a job's end in an OpenAPI document."""
    ids = {"type": "string", "format": "uuid"}
    optional = {name: ids for name in ("parent_id", "continued_as", "superseded_by")}
    schema = {
        "type": "object",
        "required": ["type", "job_id", "state", "reason"],
        "properties": {
            "type": {"const": "job.ended"},
            "job_id": ids,
            "state": {"$ref": REF.format(model="State")},
            "reason": {"type": "string"},
            **optional,
        },
    }
    headers = {
        "webhook-id": "The same for every attempt and replay: store those that you have handled.",
        "webhook-timestamp": "Seconds since 1970; libraries refuse old ones.",
        "webhook-signature": "`v1,...` by Standard Webhooks; several, separated by spaces, while secrets rotate.",
    }
    document["webhooks"] = {
        "job.ended": {
            "post": {
                "summary": "A job has ended",
                "description": "Sent to its `callback_url`, again after 5 s, 30 s, 2 min, 10 min and 1 h until the "
                "response is 2xx, and on every replay.",
                "parameters": [
                    {"name": name, "in": "header", "required": True, "description": words, "schema": {"type": "string"}}
                    for name, words in headers.items()
                ],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": schema, "example": _WEBHOOK}},
                },
                "responses": {"2XX": {"description": "The receiver has accepted it. Any other response is retried."}},
            }
        }
    }


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
        matches = [model for model in models.get(name, ()) if set(model.model_fields) == set(schema["properties"])]
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
