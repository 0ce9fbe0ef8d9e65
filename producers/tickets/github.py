"""Read a webhook of GitHub's issues: an issue is taken on when it gets the trigger label, or is opened with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from producers.tickets.news import Ignored, News, names_of, news_of, part
from routing.ticket import MAX_LABELS, priority_of

_WITH_LABELS = frozenset({"opened", "reopened"})


def read_delivery(event: str, body: Mapping[str, Any], *, trigger: str) -> News:
    """Return what a delivery asks for.

    Args:
        event: `X-GitHub-Event`.
        body: the verified payload.
        trigger: the label that hands an issue to Pointsman.
    """
    if event != "issues":
        return Ignored(f"the event {event[:50]!r} is none of issues")
    issue, action = part(body, "issue"), body.get("action")
    labels = names_of(issue.get("labels"))
    if action == "labeled":
        is_wanted = part(body, "label").get("name") == trigger
    else:
        is_wanted = action in _WITH_LABELS and trigger in labels
    if not is_wanted:
        return Ignored(f"it does not give an issue the label {trigger!r}")
    if issue.get("state", "open") != "open" or "pull_request" in issue:
        return Ignored("it is about a pull request, or an issue that is closed")
    repository = part(body, "repository").get("full_name")
    others = tuple(label for label in labels if label != trigger)[:MAX_LABELS]
    key = f"{repository}#{issue.get('number')}"
    return news_of(
        {"source": "github", "key": key, "reference": key, "labels": others, "url": issue.get("html_url")},
        title=issue.get("title"),
        body=issue.get("body"),
        priority=priority_of(others),
    )
