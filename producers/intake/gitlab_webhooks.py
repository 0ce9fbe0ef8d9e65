"""Read GitLab's deliveries: issues and mentions on them, notes on merge requests, and failed pipelines.

A delivery names its user but not what they may do, so whoever asks for something is looked up at the forge afterwards
(`user_id`); guests may label issues that they open. An order on a merge request is a note that mentions us or a failed
pipeline: a review that requests changes sends nothing of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ledger.runs.reviews import CHECK, NewComment
from producers.intake.review_webhooks import COMMIT, PullRequestNews
from producers.intake.ticket_webhooks import (
    MAX_COMMENT,
    Delivery,
    Ignored,
    TicketRequest,
    ask_about,
    is_mentioned,
    is_our_own,
    label_names,
    one_line,
    part,
    read_fields,
)
from routing.jobs import MAX_LABELS, parse_priority, visible

NOTE, ISSUE, PIPELINE = "Note Hook", "Issue Hook", "Pipeline Hook"
_BOT = re.compile(r"(?:project|group)_\d+_bot(?:_\w+)?")
_MAX_JOBS = 40


def is_about_pull_request(event: str, body: Mapping[str, Any]) -> bool:
    """Whether a delivery is about a merge request or its checks, and not about an issue."""
    return event == PIPELINE or (event == NOTE and part(body, "object_attributes").get("noteable_type") != "Issue")


def read_gitlab_delivery(event: str, body: Mapping[str, Any], *, trigger: str) -> Delivery:
    """Return the ticket of a delivery: an issue that gets the trigger label, is opened with it, or mentions it.

    Args:
        event: `X-Gitlab-Event`.
        body: the verified payload.
        trigger: the label that hands an issue to Pointsman, and the name by which a note on one does.
    """
    said, comment = part(body, "object_attributes"), None
    if event == ISSUE:
        issue, labels = said, label_names(body.get("labels"), "title")
        is_wanted = trigger in labels and _is_new_label(body, trigger)
    elif event == NOTE:
        issue = part(body, "issue")
        labels = label_names(issue.get("labels"), "title")
        comment = _note(body, trigger)
        is_wanted = comment is not None and comment.is_order and said.get("action", "create") == "create"
    else:
        return Ignored(f"the event {event[:50]!r} is none of issues")
    user_id = part(body, "user").get("id")
    if not is_wanted or not isinstance(user_id, int):
        return Ignored(f"it gives no issue the label {trigger!r}, and is no mention")
    if issue.get("state", "opened") != "opened":
        return Ignored("it is about an issue that is closed")
    told = visible(issue["description"]) if isinstance(issue.get("description"), str) else ""
    others = tuple(label for label in labels if label != trigger)[:MAX_LABELS]
    key = f"{repository_of(body)}#{issue.get('iid')}"
    news = read_fields(
        {"source": "gitlab", "key": key, "reference": key, "labels": others, "url": issue.get("url")},
        title=issue.get("title"),
        body=told if comment is None else ask_about(comment, told),
        priority=parse_priority(others),
        changed=issue.get("updated_at"),
    )
    return replace(news, comment=comment, user_id=user_id) if isinstance(news, TicketRequest) else news


def read_merge_request_delivery(event: str, body: Mapping[str, Any], *, trigger: str) -> PullRequestNews | Ignored:
    """Return what a delivery says about a merge request.

    Args:
        event: `X-Gitlab-Event`, `NOTE` or `PIPELINE`.
        body: the verified payload.
        trigger: the name by which a note mentions us.
    """
    if event == PIPELINE:
        return _read_pipeline(body)
    said, request = part(body, "object_attributes"), part(body, "merge_request")
    number, user_id = request.get("iid"), part(body, "user").get("id")
    if said.get("noteable_type") != "MergeRequest" or not isinstance(number, int) or not isinstance(user_id, int):
        return Ignored("it is about no merge request")
    if request.get("state", "opened") != "opened":
        return Ignored("the merge request is closed")
    if (comment := _note(body, trigger)) is None:
        return Ignored("it says nothing, or a program says it")
    is_edit = said.get("action", "create") == "update"
    return PullRequestNews(comment, repository_of(body), number=number, user_id=user_id, is_edit=is_edit)


def _note(body: Mapping[str, Any], trigger: str) -> NewComment | None:
    """Return a note of a person; None where it says nothing, or GitLab itself or a bot says it."""
    said, name = part(body, "object_attributes"), one_line(part(body, "user").get("username"))
    text = said.get("note")
    kept = visible(text)[:MAX_COMMENT] if isinstance(text, str) else ""
    if (
        not kept
        or said.get("system")
        or not isinstance(said.get("id"), int)
        or is_our_own(text)
        or _BOT.fullmatch(name)
    ):
        return None
    place = part(said, "position")
    path, line = place.get("new_path"), place.get("new_line")
    return NewComment(
        source=f"note:{said['id']}",
        author=name,
        body=kept,
        is_order=is_mentioned(kept, trigger),
        path=one_line(path) if isinstance(path, str) else None,
        line=line if isinstance(line, int) and 0 < line < 10_000_000 else None,
    )


def _read_pipeline(body: Mapping[str, Any]) -> PullRequestNews | Ignored:
    pipeline = part(body, "object_attributes")
    commit = pipeline.get("sha")
    if pipeline.get("status") != "failed":
        return Ignored("it is no pipeline that failed")
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        return Ignored("it names no commit")
    builds = body.get("builds")
    jobs = [job for job in builds if isinstance(job, Mapping)] if isinstance(builds, list) else []
    failed = [job for job in jobs if job.get("status") == "failed" and not job.get("allow_failure")][:_MAX_JOBS]
    lines = [
        f"The job {one_line(job.get('name'))} failed in the stage {one_line(job.get('stage'))}"
        f" ({one_line(job.get('failure_reason') or 'no reason given')})."
        for job in failed
    ]
    address = pipeline.get("url")
    told = "\n".join([*lines, address if isinstance(address, str) else ""]).strip()
    comment = NewComment(f"{CHECK}pipeline@{commit}", "the pipeline", visible(told)[:MAX_COMMENT], is_order=True)
    return PullRequestNews(comment, repository_of(body), commit=commit)


def _is_new_label(body: Mapping[str, Any], trigger: str) -> bool:
    """Whether an issue has got the label just now: with its opening, or by a change."""
    if part(body, "object_attributes").get("action") in ("open", "reopen"):
        return True
    before, after = label_change(body)
    return trigger in after and trigger not in before


def label_change(body: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the labels of an issue before and after a change of them; none of both if it is another change."""
    changed = part(part(body, "changes"), "labels")
    return label_names(changed.get("previous"), "title"), label_names(changed.get("current"), "title")


def repository_of(body: Mapping[str, Any]) -> str:
    """Return the path of the project that a delivery is from."""
    return str(part(body, "project").get("path_with_namespace"))
