"""What a webhook brings: a ticket to take on, or a reason why nothing is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from routing.jobs import MAX_PROMPT_BYTES
from routing.ticket import MAX_TITLE, Priority, Ticket, prompt_of, visible


@dataclass(frozen=True)
class Wanted:
    """A ticket that somebody wants worked on."""

    ticket: Ticket
    prompt: str
    """Its text, as people saw it."""
    priority: Priority


@dataclass(frozen=True)
class Ignored:
    """A delivery that asks for nothing."""

    why: str


News = Wanted | Ignored


def news_of(fields: Mapping[str, Any], *, title: object, body: object, priority: Priority) -> News:
    """Return a ticket from fields that a tracker sent; one that breaks a rule is named, never half taken.

    Args:
        fields: what the ticket says beside its text.
        title: as it was sent.
        body: likewise.
        priority: how urgent it is.
    """
    head = visible(title)[:MAX_TITLE] if isinstance(title, str) else ""
    text = visible(body) if isinstance(body, str) else ""
    try:
        ticket = Ticket.model_validate({**fields, "title": head})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return Ignored(f"the ticket cannot be taken: {'.'.join(map(str, first['loc']))}: {first['msg']}")
    return Wanted(ticket, prompt_of(head, text, max_bytes=MAX_PROMPT_BYTES), priority)


def part(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object within an object; empty where there is none."""
    found = body.get(name)
    return found if isinstance(found, Mapping) else {}


def names_of(items: object) -> tuple[str, ...]:
    """Return the names of labels, however they are given."""
    if not isinstance(items, list):
        return ()
    names = (item.get("name") if isinstance(item, Mapping) else item for item in items[:200])
    return tuple(name for name in names if isinstance(name, str))
