"""Read deliveries that take a ticket back: what is kept about it must not start a run later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from producers.intake.gitlab_webhooks import ISSUE, label_change, repository_of
from producers.intake.ticket_webhooks import label_names, part


def taken_back(event: str, body: Mapping[str, Any], *, tracker: str, trigger: str) -> str | None:
    """Return the key of a ticket that a delivery closes, removes, or takes the trigger label from.

    Args:
        event: as its header names it; empty for Linear.
        body: the verified payload.
        tracker: `github`, `gitlab` or `linear`.
        trigger: the label that hands an issue to Pointsman.
    """
    action = body.get("action")
    if tracker == "linear":
        issue = part(body, "data")
        is_over = action == "remove" or any(issue.get(name) for name in ("completedAt", "canceledAt", "archivedAt"))
        is_taken = is_over or trigger not in label_names(issue.get("labels"))
        return issue.get("identifier") if body.get("type") == "Issue" and is_taken else None
    if tracker == "gitlab":
        issue, (before, after) = part(body, "object_attributes"), label_change(body)
        is_taken = issue.get("state", "opened") != "opened" or (trigger in before and trigger not in after)
        return f"{repository_of(body)}#{issue.get('iid')}" if event == ISSUE and is_taken else None
    issue = part(body, "issue")
    is_unlabelled = action == "unlabeled" and part(body, "label").get("name") == trigger
    is_taken = is_unlabelled or action in ("closed", "deleted", "transferred")
    repository = part(body, "repository").get("full_name")
    return f"{repository}#{issue.get('number')}" if event == "issues" and is_taken else None
