"""What the OpenAPI document shows of bodies: they are read by hand, so that the rules are those of every other door."""

from __future__ import annotations

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


NO_ROOM: dict[int | str, dict[str, Any]] = {
    429: {
        "description": "There is no room now: a full queue (`queue_full`) or a budget that is spent (`budget_full`).",
        "headers": {"Retry-After": {"description": "When to come back, in seconds.", "schema": {"type": "integer"}}},
    }
}


def body_of(model: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """Return the part of an operation that documents its body."""
    schema = model.model_json_schema()
    return {"requestBody": {"content": {"application/json": {"schema": schema, "example": example}}}}


def request_schemas() -> dict[str, Any]:
    """Return the component schemas of a job request."""
    schema = JobRequest.model_json_schema(ref_template=REF)
    parts: dict[str, Any] = schema.pop("$defs", {})
    return {**parts, "JobRequest": schema}
