"""What GitLab reports, as it sends it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ledger.runs.reviews import NewComment
from producers.intake.gitlab_webhooks import (
    ISSUE,
    NOTE,
    PIPELINE,
    is_about_pull_request,
    read_gitlab_delivery,
    read_merge_request_delivery,
)
from producers.intake.review_webhooks import PullRequestNews
from producers.intake.ticket_webhooks import Ignored, TicketRequest

SHA = "a" * 40
PROJECT = {"id": 5, "path_with_namespace": "acme/web/shop"}
ANN = {"id": 7, "name": "Ann", "username": "ann"}
LABEL = {"id": 1, "title": "pointsman"}


def about(**more: Any) -> dict[str, Any]:
    return {
        "iid": 12,
        "title": "The cart forgets its items",
        "description": "It is empty after a reload.",
        "state": "opened",
        "url": "https://gitlab.example/acme/web/shop/-/issues/12",
        **more,
    }


def issue(action: str = "update", labels: tuple[str, ...] = ("pointsman", "P1"), **more: Any) -> dict[str, Any]:
    titles = [{"id": n, "title": title} for n, title in enumerate(labels)]
    changes = {"labels": {"previous": [], "current": titles}} if action == "update" else {}
    return {
        "object_kind": "issue",
        "user": ANN,
        "project": PROJECT,
        "object_attributes": about(action=action, **more),
        "labels": titles,
        "changes": changes,
    }


def note(text: str, *, place: str = "MergeRequest", action: str = "create", **more: Any) -> dict[str, Any]:
    said = {"id": 9, "note": text, "noteable_type": place, "action": action, "system": False, **more}
    body = {"object_kind": "note", "user": ANN, "project": PROJECT, "object_attributes": said}
    if place == "Issue":
        return {**body, "issue": about(labels=[{"title": "bug"}])}
    return {**body, "merge_request": {"iid": 1, "state": "opened"}}


def pipeline(status: str = "failed", sha: str = SHA) -> dict[str, Any]:
    jobs = [
        {"name": "unit", "stage": "test", "status": "failed", "failure_reason": "script_failure"},
        {"name": "flaky", "stage": "test", "status": "failed", "allow_failure": True},
        {"name": "lint", "stage": "test", "status": "success"},
    ]
    said = {"id": 31, "ref": "x", "sha": sha, "status": status, "url": "https://gitlab.example/-/pipelines/31"}
    return {"object_kind": "pipeline", "project": PROJECT, "object_attributes": said, "builds": jobs}


def ticket(event: str, body: dict[str, Any]) -> TicketRequest | None:
    news = read_gitlab_delivery(event, body, trigger="pointsman")
    return news if isinstance(news, TicketRequest) else None


def news_of(event: str, body: dict[str, Any]) -> PullRequestNews | None:
    news = read_merge_request_delivery(event, body, trigger="pointsman")
    return news if isinstance(news, PullRequestNews) else None


@pytest.mark.req("S-030")
def test_an_issue_that_gets_the_label_is_a_ticket_with_the_priority_of_its_labels() -> None:
    for action in ("update", "open"):
        found = ticket(ISSUE, issue(action))
        assert found is not None
        assert (found.ticket.key, found.ticket.source, found.priority) == ("acme/web/shop#12", "gitlab", "P1")
        assert found.ticket.labels == ("P1",)
        assert found.user_id == 7, "the forge is asked whether this user may"
        assert found.prompt == "The cart forgets its items\n\nIt is empty after a reload."


def test_an_issue_says_when_it_was_changed() -> None:
    found = ticket(ISSUE, issue(updated_at="2026-11-29 03:00:00 UTC"))
    assert found is not None
    assert found.changed_at == datetime(2026, 11, 29, 3, tzinfo=UTC)


def test_an_issue_that_had_the_label_before_or_is_closed_starts_nothing() -> None:
    before = issue()
    before["changes"]["labels"]["previous"] = before["labels"]
    assert ticket(ISSUE, before) is None
    assert ticket(ISSUE, {**issue(), "changes": {"title": {}}}) is None
    assert ticket(ISSUE, issue(labels=("bug",))) is None
    assert ticket(ISSUE, issue("close", state="closed")) is None
    assert ticket(ISSUE, {**issue(), "user": {}}) is None


def test_a_mention_on_an_issue_is_a_ticket_and_its_words_stand_first() -> None:
    found = ticket(NOTE, note("@pointsman keep the currency", place="Issue"))
    assert found is not None
    assert found.prompt.startswith("The cart forgets its items\n\nann asks:\n@pointsman keep the currency")
    assert "> It is empty after a reload." in found.prompt
    assert found.comment == NewComment("note:9", "ann", "@pointsman keep the currency", True)
    assert ticket(NOTE, note("no mention", place="Issue")) is None
    assert ticket(NOTE, note("@pointsman", place="Issue", action="update")) is None
    assert not is_about_pull_request(NOTE, note("x", place="Issue"))


def test_a_note_on_a_merge_request_is_kept_and_one_that_mentions_us_is_an_order() -> None:
    plain = news_of(NOTE, note("Too wide.", position={"new_path": "src/a.ts", "new_line": 3}))
    assert plain is not None
    assert plain.comment == NewComment("note:9", "ann", "Too wide.", False, path="src/a.ts", line=3)
    assert (plain.number, plain.repository, plain.user_id, plain.is_edit) == (1, "acme/web/shop", 7, False)
    order = news_of(NOTE, note("@pointsman narrower", action="update"))
    assert order is not None
    assert order.comment.is_order
    assert order.is_edit


@pytest.mark.parametrize(
    "body",
    [
        note("approved this merge request", system=True),
        note(""),
        note("Pointsman pushed it. @pointsman\n\n<!-- pointsman 7 -->"),
        note("x", place="Commit"),
        {**note("@pointsman x"), "user": {**ANN, "username": "project_5_bot_ab12"}},
        {**note("@pointsman x"), "user": {}},
        {**note("@pointsman x"), "merge_request": {"iid": 1, "state": "merged"}},
        {},
    ],
)
def test_what_no_person_says_about_an_open_merge_request_is_not_heard(body: dict[str, Any]) -> None:
    assert news_of(NOTE, body) is None


def test_a_failed_pipeline_is_an_order_that_names_the_jobs_that_count() -> None:
    found = news_of(PIPELINE, pipeline())
    assert found is not None
    assert (found.commit, found.comment.is_order) == (SHA, True)
    assert found.comment.source == f"check:pipeline@{SHA}"
    assert "The job unit failed in the stage test (script_failure)." in found.comment.body
    assert "flaky" not in found.comment.body
    assert "pipelines/31" in found.comment.body
    for other in (pipeline("success"), pipeline("running"), pipeline(sha="no commit"), {}):
        assert news_of(PIPELINE, other) is None
    assert is_about_pull_request(PIPELINE, pipeline())
    assert "pipelines/31" in news_of(PIPELINE, pipeline() | {"builds": 5}).comment.body


def test_another_event_is_ignored() -> None:
    assert isinstance(read_gitlab_delivery("Push Hook", {}, trigger="pointsman"), Ignored)
