"""Read a webhook of Linear's issues: an issue is taken on when it gets the trigger label, or is made with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from producers.tickets.news import Ignored, News, names_of, news_of, part
from routing.ticket import MAX_LABELS, Priority, priority_of

_PRIORITIES: Mapping[int, Priority] = {1: "P0", 2: "P1", 3: "P2", 4: "P3"}
"""Urgent, high, medium, low; 0 says that nobody chose one."""


def read_delivery(body: Mapping[str, Any], *, trigger: str) -> News:
    """Return what a delivery asks for.

    Args:
        body: the verified payload.
        trigger: the label that hands an issue to Pointsman.
    """
    issue, action = part(body, "data"), body.get("action")
    if body.get("type") != "Issue" or action not in ("create", "update"):
        return Ignored("it neither makes nor changes an issue")
    labels = names_of(issue.get("labels"))
    if trigger not in labels:
        return Ignored(f"the issue has no label {trigger!r}")
    if action == "update" and "labelIds" not in part(body, "updatedFrom"):
        return Ignored("its labels are as they were")
    others = tuple(label for label in labels if label != trigger)[:MAX_LABELS]
    chosen = issue.get("priority")
    urgency = _PRIORITIES.get(chosen) if isinstance(chosen, int) else None
    return news_of(
        {
            "source": "linear", "key": issue.get("identifier"), "reference": issue.get("id"), "labels": others,
            "url": issue.get("url") or body.get("url"),
        },
        title=issue.get("title"),
        body=issue.get("description"),
        priority=urgency or priority_of(others),
    )  # fmt: skip
