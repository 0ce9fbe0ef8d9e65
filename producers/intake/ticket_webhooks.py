"""Read the deliveries of trackers about tickets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from ledger.runs.reviews import NewComment
from routing.jobs import MAX_LABELS, MAX_TITLE, Priority, Ticket, build_ticket_prompt, parse_priority, visible


@dataclass(frozen=True)
class TicketRequest:
    """A ticket to work on."""

    ticket: Ticket
    prompt: str
    """Its visible text."""
    priority: Priority
    comment: NewComment | None = None
    """The comment on the issue that asked for the work; None when a label did."""
    user_id: int | None = None
    """Who asked, where the forge has to be asked whether they may; None where the delivery says that they may."""
    changed_at: datetime | None = None
    """When the ticket was changed last, by the tracker's clock; None where it does not say."""


@dataclass(frozen=True)
class Ignored:
    """A delivery that requests nothing."""

    why: str


Delivery = TicketRequest | Ignored


def read_fields(
    fields: Mapping[str, Any], *, title: object, body: object, priority: Priority, changed: object = None
) -> Delivery:
    """Return a ticket from a tracker's fields; one that breaks a rule is ignored as a whole.

    Args:
        fields: all but its text.
        title: untrusted.
        body: untrusted.
        priority: its urgency.
        changed: when it was changed last, as the tracker writes times.
    """
    head = visible(title)[:MAX_TITLE] if isinstance(title, str) else ""
    text = visible(body) if isinstance(body, str) else ""
    try:
        ticket = Ticket.model_validate({**fields, "title": head})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return Ignored(f"the ticket cannot be taken: {'.'.join(map(str, first['loc']))}: {first['msg']}")
    prompt = build_ticket_prompt(head, text)
    return TicketRequest(ticket, prompt, priority, changed_at=_moment(changed))


def _moment(text: object) -> datetime | None:
    """Return a time as trackers write it, in ISO 8601 or with a final `UTC`."""
    if not isinstance(text, str):
        return None
    with suppress(ValueError):
        moment = datetime.fromisoformat(text.removesuffix(" UTC"))
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return None


def part(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a nested object; empty if there is none."""
    nested = body.get(name)
    return nested if isinstance(nested, Mapping) else {}


def label_names(items: object, key: str = "name") -> tuple[str, ...]:
    """Return the names of labels given as strings, or as objects that have them under a key."""
    if not isinstance(items, list):
        return ()
    names = (item.get(key) if isinstance(item, Mapping) else item for item in items[:200])
    return tuple(name for name in names if isinstance(name, str))


_WITH_LABELS = frozenset({"opened", "reopened"})
_HEARD = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
_CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
MAX_COMMENT = 4_000
"""Characters of one comment that are kept."""


def is_heard(said: Mapping[str, Any]) -> bool:
    """Whether a comment's author belongs to the repository, as GitHub associates them with it, and is no bot."""
    return part(said, "user").get("type") != "Bot" and said.get("author_association") in _HEARD


def is_mentioned(text: str, name: str) -> bool:
    """Whether a text mentions a name outside its quoted lines and its code."""
    own = "\n".join(line for line in _CODE.sub(" ", text).splitlines() if not line.lstrip().startswith(">"))
    return re.search(rf"(?<![\w/@.-])@{re.escape(name)}(?![\w-])", own, re.IGNORECASE) is not None


def is_our_own(text: object) -> bool:
    """Whether a comment is a note of ours, by its sign (`gateway.forges.forge.SIGN`)."""
    return isinstance(text, str) and "<!-- pointsman " in text


def one_line(text: object) -> str:
    """Return an untrusted name as one visible line."""
    return " ".join(visible(text).split())[:200] if isinstance(text, str) else "somebody"


def ask_about(comment: NewComment, told: str) -> str:
    """Return the text of an issue that a comment on it asks to work on; the comment's words stand first."""
    quoted = "\n".join(f"> {line}".rstrip() for line in told.splitlines())
    return f"{comment.author} asks:\n{comment.body}\n\nThe issue:\n{quoted}"


def _is_reopened_by_stranger(body: Mapping[str, Any]) -> bool:
    """Whether an outsider reopens their own issue, which they may do, although they may not label it."""
    issue = part(body, "issue")
    is_author = part(body, "sender").get("id") == part(issue, "user").get("id")
    return body.get("action") == "reopened" and is_author and issue.get("author_association") not in _HEARD


def read_github_delivery(event: str, body: Mapping[str, Any], *, trigger: str) -> Delivery:
    """Return the ticket of a GitHub delivery: an issue that gets the trigger label, is opened with it, or mentions it.

    Args:
        event: `X-GitHub-Event`.
        body: the verified payload.
        trigger: the label that hands an issue to Pointsman, and the name by which a comment on one does.
    """
    issue, action, comment = part(body, "issue"), body.get("action"), None
    told = visible(issue["body"]) if isinstance(issue.get("body"), str) else ""
    labels = label_names(issue.get("labels"))
    if event == "issue_comment":
        said = part(body, "comment")
        asked = visible(said["body"])[:MAX_COMMENT] if isinstance(said.get("body"), str) else ""
        is_wanted = action == "created" and is_heard(said) and is_mentioned(asked, trigger)
        comment = NewComment(
            f"{event}:{said.get('id')}", one_line(part(said, "user").get("login")), asked, is_order=True
        )
        told = ask_about(comment, told)
    elif event != "issues":
        return Ignored(f"the event {event[:50]!r} is none of issues")
    elif action == "labeled":
        is_wanted = part(body, "label").get("name") == trigger
    else:
        is_wanted = action in _WITH_LABELS and trigger in labels and not _is_reopened_by_stranger(body)
    if not is_wanted:
        return Ignored(f"it gives no issue the label {trigger!r}, and is no mention by somebody of the repository")
    if issue.get("state", "open") != "open" or "pull_request" in issue:
        return Ignored("it is about a pull request, or an issue that is closed")
    repository = part(body, "repository").get("full_name")
    others = tuple(label for label in labels if label != trigger)[:MAX_LABELS]
    key = f"{repository}#{issue.get('number')}"
    news = read_fields(
        {"source": "github", "key": key, "reference": key, "labels": others, "url": issue.get("html_url")},
        title=issue.get("title"),
        body=told,
        priority=parse_priority(others),
        changed=issue.get("updated_at"),
    )
    return replace(news, comment=comment) if isinstance(news, TicketRequest) else news


def _is_new_at_linear(body: Mapping[str, Any], trigger: str) -> bool:
    """Whether an issue has got the label just now, by the ids of those that it had before."""
    before, labels = part(body, "updatedFrom").get("labelIds"), part(body, "data").get("labels")
    if not isinstance(before, list) or not isinstance(labels, list):
        return False
    own = [one.get("id") for one in labels if isinstance(one, Mapping) and one.get("name") == trigger]
    return not any(label in before for label in own)


_PRIORITIES: Mapping[int, Priority] = {1: "P0", 2: "P1", 3: "P2", 4: "P3"}
"""Urgent, high, medium, low; 0 means none was chosen."""


def read_linear_delivery(body: Mapping[str, Any], *, trigger: str) -> Delivery:
    """Return the ticket of a Linear delivery: an issue that gets the trigger label or is created with it.

    Args:
        body: the verified payload.
        trigger: the label that hands an issue to Pointsman.
    """
    issue, action = part(body, "data"), body.get("action")
    if body.get("type") != "Issue" or action not in ("create", "update"):
        return Ignored("it neither makes nor changes an issue")
    labels = label_names(issue.get("labels"))
    if trigger not in labels:
        return Ignored(f"the issue has no label {trigger!r}")
    if action == "update" and not _is_new_at_linear(body, trigger):
        return Ignored("it had the label before")
    others = tuple(label for label in labels if label != trigger)[:MAX_LABELS]
    chosen = issue.get("priority")
    urgency = _PRIORITIES.get(chosen) if isinstance(chosen, int) else None
    return read_fields(
        {
            "source": "linear",
            "key": issue.get("identifier"),
            "reference": issue.get("id"),
            "labels": others,
            "url": issue.get("url") or body.get("url"),
        },
        title=issue.get("title"),
        body=issue.get("description"),
        priority=urgency or parse_priority(others),
        changed=issue.get("updatedAt"),
    )
