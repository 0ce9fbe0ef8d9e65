"""What the OpenAPI document shows of bodies: they are read by hand, so that the rules are those of every other door."""

from __future__ import annotations

import http
import json
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
        "summary": "The tier chosen by hand, with a cap and a signed callback",
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
        "summary": "A short reply, with the options that the caller had offered",
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
        "summary": "Work that may wait for what is more urgent",
        "value": {"prompt": "Fix the typo in the footer", "site": "bakery", "priority": "P3"},
    },
    "advanced": {
        "summary": "The code agent asked for, within a cap",
        "value": {
            "prompt": "Convert the site to several pages with a shared navigation",
            "site": "bakery",
            "advanced_edit": True,
            "budget_usd": 0.5,
        },
    },
    "newest_wins": {
        "summary": "An edit that takes the place of older ones with its key, so that only the newest is worked on",
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
    "invalid_request": _problem(422, "invalid_request", "prompt: must not be empty", ("prompt", "must not be empty")),
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
"""A reader that is cut off sends `Last-Event-ID: 4711`, and goes on behind it."""

NO_ROOM: dict[int | str, dict[str, Any]] = {
    429: {
        "description": "There is no room now: a full queue (`queue_full`) or a spent budget (`budget_exceeded`).",
        "content": {"application/problem+json": {"schema": {"$ref": REF.format(model="Problem")}, "example": _FULL}},
        "headers": {"Retry-After": {"description": "When to come back, in seconds.", "schema": {"type": "integer"}}},
    }
}


def body_of(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """Return the part of an operation that documents its body."""
    schema = model.model_json_schema()
    return {"requestBody": {"content": {"application/json": {"schema": schema, "example": example}}}}


def show_answers(document: dict[str, Any]) -> None:
    """Put answers that were really given, and the problems that callers meet, into an OpenAPI document."""
    text = resources.files("producers.api").joinpath("answers.json").read_text("utf-8")
    for key, answer in json.loads(text).items():
        method, path = key.split(" ")
        answers = document["paths"][path][method.lower()]["responses"]
        good = next(code for code in answers if code.startswith("2"))
        answers[good]["content"]["application/json"]["example"] = answer
    for operations in document["paths"].values():
        for operation in operations.values():
            problems = operation["responses"]["4XX"]["content"]["application/problem+json"]
            problems["examples"] = {kind: {"value": value} for kind, value in _PROBLEMS.items()}


def describe_webhook(document: dict[str, Any]) -> None:
    """Describe in an OpenAPI document what a job's `callback_url` gets at its end (producers/dispatch/webhooks.py)."""
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
        "webhook-id": "The same for every try and replay: keep those that you have handled.",
        "webhook-timestamp": "Seconds since 1970; libraries refuse one that is old.",
        "webhook-signature": "`v1,...` by Standard Webhooks; several, separated by spaces, while secrets change.",
    }
    document["webhooks"] = {
        "job.ended": {
            "post": {
                "summary": "A job has ended",
                "description": "Sent to its `callback_url`, again after 5 s, 30 s, 2 min, 10 min and 1 h until the "
                "answer is 2xx, and whenever a replay is asked for.",
                "parameters": [
                    {"name": name, "in": "header", "required": True, "description": words, "schema": {"type": "string"}}
                    for name, words in headers.items()
                ],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": schema, "example": _WEBHOOK}},
                },
                "responses": {"2XX": {"description": "The receiver has it. Anything else is tried again."}},
            }
        }
    }


def request_schemas() -> dict[str, Any]:
    """Return the component schemas of a job request."""
    schema = JobRequest.model_json_schema(ref_template=REF)
    parts: dict[str, Any] = schema.pop("$defs", {})
    return {**parts, "JobRequest": schema}
