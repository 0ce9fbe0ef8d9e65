"""Read GitHub's deliveries about a pull request: reviews, comments and failed checks.

An order is a review that requests changes, a comment that mentions us, or a failed check. What else is said is kept
beside it: inline comments arrive apart from their review, and in no certain order. Only people whom GitHub
associates with the repository are heard. Bots are not, nor are quoted lines and what readers cannot see.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.runs.reviews import CHECK, NewComment
from ledger.runs.tables import ReviewComment
from producers.intake.ticket_webhooks import MAX_COMMENT, Ignored, is_heard, is_mentioned, is_our_own, one_line, part
from routing.jobs import visible

MAX_REQUEST = 24_000
"""Characters of the request that is made of all; further comments are only counted."""
_FAILED = frozenset({"failure", "timed_out"})
COMMIT = re.compile(r"[0-9a-f]{40}")
REVIEW_EVENTS = frozenset({"pull_request_review", "pull_request_review_comment", "issue_comment", "check_run"})


@dataclass(frozen=True)
class PullRequestNews:
    """What is said about a pull request, which is named by its number or by the commit that was checked."""

    comment: NewComment
    repository: str
    number: int | None = None
    commit: str | None = None
    user_id: int | None = None
    """Who says it, where the forge has to be asked whether they belong to the repository."""
    is_edit: bool = False
    """Whether it changes what was said before."""


def read_review_delivery(event: str, body: Mapping[str, Any], *, trigger: str) -> PullRequestNews | Ignored:
    """Return what a delivery says about a pull request.

    Args:
        event: `X-GitHub-Event`, one of `REVIEW_EVENTS`.
        body: the verified payload.
        trigger: the name by which a comment mentions us.
    """
    if event == "check_run":
        return _read_check(body)
    if body.get("action") not in ("created", "submitted", "edited"):
        return Ignored("it takes back what was said before")
    is_review = event == "pull_request_review"
    said = part(body, "review" if is_review else "comment")
    user, text = part(said, "user"), said.get("body")
    if not is_heard(said):
        return Ignored("its author is a bot, or nobody of the repository")
    about = part(body, "issue" if event == "issue_comment" else "pull_request")
    if about.get("state", "open") != "open":
        return Ignored("the pull request is closed")
    kept = visible(text)[:MAX_COMMENT] if isinstance(text, str) else ""
    wants_changes = is_review and said.get("state") == "changes_requested"
    if (not kept and not wants_changes) or is_our_own(text):
        return Ignored("it says nothing")
    path, line, number = said.get("path"), said.get("line"), about.get("number")
    if not isinstance(number, int) or not isinstance(said.get("id"), int):
        return Ignored("it names no pull request")
    comment = NewComment(
        source=f"{event}:{said['id']}",
        author=one_line(user.get("login")),
        body=kept,
        is_order=wants_changes or is_mentioned(kept, trigger),
        path=one_line(path) if isinstance(path, str) else None,
        line=line if isinstance(line, int) and 0 < line < 10_000_000 else None,
    )
    return PullRequestNews(comment, _repository(body), number=number, is_edit=body.get("action") == "edited")


def _read_check(body: Mapping[str, Any]) -> PullRequestNews | Ignored:
    check = part(body, "check_run")
    commit, output = check.get("head_sha"), part(check, "output")
    if body.get("action") != "completed" or check.get("conclusion") not in _FAILED:
        return Ignored("it is no check that failed")
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        return Ignored("it names no commit")
    name = one_line(check.get("name"))
    texts = [output.get("title"), output.get("summary"), output.get("text"), check.get("html_url")]
    told = "\n\n".join(visible(text) for text in texts if isinstance(text, str) and text)
    comment = NewComment(f"{CHECK}{name}@{commit}", f"the check {name}", told[:MAX_COMMENT], is_order=True)
    return PullRequestNews(comment, _repository(body), commit=commit)


def compose_request(comments: Sequence[ReviewComment]) -> str:
    """Return the request that answers all comments."""
    parts = ["Answer what is said about the pull request."]
    left = MAX_REQUEST
    for number, comment in enumerate(comments):
        place = ":".join(str(item) for item in (comment.path, comment.line) if item)
        head = f"{comment.author} on {place}" if place else comment.author
        quoted = "\n".join(f"> {line}".rstrip() for line in (comment.body or "Changes are requested.").splitlines())
        text = f"{head}:\n{quoted}"
        left -= len(text)
        if left < 0:
            parts.append(f"{len(comments) - number} more comments are on the pull request.")
            break
        parts.append(text)
    return "\n\n".join(parts)


def _repository(body: Mapping[str, Any]) -> str:
    return str(part(body, "repository").get("full_name"))
