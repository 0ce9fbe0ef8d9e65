"""Tickets in files: what is read from them, and what is refused with field and rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from producers.use_cases.tickets import MAX_FILE_BYTES, TicketBody, job_body, read_ticket, text_of
from routing.errors import InvalidJobError
from routing.jobs import parse_request

YAML = """
title: The cart forgets its items
body: |
  Reload the page: it is empty.
labels: [bug, cart]
priority: P1
url: https://tracker.example/SHOP-17
"""
FRONT = """---
labels: [bug]
priority: P0
---
# The cart forgets its items

Reload the page: it is empty.
"""


def refused(text: str, **options: str) -> list[tuple[str, str]]:
    with pytest.raises(InvalidJobError) as error:
        read_ticket(text, **({"project": "shop"} | options))
    return [(item.field, item.rule) for item in error.value.errors]


def test_yaml_and_markdown_give_the_same_ticket() -> None:
    one = read_ticket(YAML, project="shop")
    assert (one.title, one.body, one.labels, one.priority, one.source) == (
        "The cart forgets its items",
        "Reload the page: it is empty.",
        ("bug", "cart"),
        "P1",
        "file",
    )
    other = read_ticket(FRONT, project="shop")
    assert (other.title, other.body, other.labels, other.priority) == (one.title, one.body, ("bug",), "P0")
    plain = read_ticket("# Just a heading\n\nand text", project="shop")
    assert (plain.title, plain.body, plain.priority) == ("Just a heading", "and text", None)


def test_a_ticket_is_the_body_of_a_job_of_its_project() -> None:
    body = job_body(read_ticket(YAML, project="shop"))
    request = parse_request(body)
    assert request.prompt == "The cart forgets its items\n\nReload the page: it is empty."
    assert (request.project, request.priority) == ("shop", "P1")
    assert request.ticket is not None
    assert (request.ticket.labels, request.ticket.source) == (("bug", "cart"), "file")
    assert parse_request(job_body(TicketBody(project="shop", title="Only a title"))).prompt == "Only a title"


@pytest.mark.req("S-101")
@pytest.mark.parametrize(
    ("fields", "priority"),
    [
        ({}, "P2"),
        ({"labels": ("bug", "priority: p1")}, "P1"),
        ({"labels": ("P0",)}, "P0"),
        ({"labels": ("P0",), "priority": "P3"}, "P3"),
    ],
)
def test_a_label_is_the_priority_of_a_ticket_that_states_none(fields: dict[str, Any], priority: str) -> None:
    assert job_body(TicketBody(project="shop", title="Repair it", **fields))["priority"] == priority


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("- a\n- list\n", "ticket"),
        ("title: [unclosed", "ticket"),
        ("body: no title\n", "title"),
        ("title: t\npriority: urgent\n", "priority"),
        ("title: t\nmodel: opus\n", "model"),
        ("title: t\nproject: other\n", "project"),
        ("title: t\nurl: ftp://x\n", "url"),
        ("title: " + "x" * 301, "title"),
        ("1: t\n", "ticket"),
        ("title: !!python/object/apply:os.system [id]\n", "ticket"),
        ("x" * (MAX_FILE_BYTES + 1), "ticket"),
        ("[" * 1000, "ticket"),
    ],
)
def test_a_file_that_is_no_ticket_is_refused_with_field_and_rule(text: str, field: str) -> None:
    found = refused(text)
    assert found[0][0] == field
    assert all("opus" not in rule and "urgent" not in rule for _, rule in found), "values are not repeated"


# The words of the notes that a ticket gets.


def note(state: str, detail: str | None = None, kind: str = "ended", **result: Any) -> str:
    facts: Mapping[str, Any] = result
    return text_of(kind, run_id="r-1", state=state, detail=detail, result=facts, gate_reason="look, @all")


@pytest.mark.req("S-030")
@pytest.mark.parametrize(
    ("state", "result", "said"),
    [
        ("published", {"pull_request": {"url": "https://f.example/pull/1"}}, "Pull request: https://f.example/pull/1"),
        ("published", {"branch": "pointsman/x"}, "Branch: `pointsman/x`"),
        ("published", {}, "Nothing had to be changed."),
        ("answered", {"answer": "Because @ada said so."}, "Because @\u2060ada said so."),
        ("escalated", {}, "hands this ticket to a person"),
        ("budget_exceeded", {}, "budget is spent"),
        ("rejected", {}, "did not let it pass"),
        ("expired", {}, "nobody decided in time"),
        ("cancelled", {}, "was cancelled"),
        ("failed", {}, "could not finish"),
    ],
)
def test_each_end_has_its_words(state: str, result: dict[str, Any], said: str) -> None:
    text = note(state, "why it is so", **result)
    assert said in text
    assert text.endswith("Run `r-1`.")
    assert ("why it is so" in text) is (state not in ("published", "answered"))


@pytest.mark.threat("D7")
def test_what_others_said_makes_a_tracker_do_nothing() -> None:
    assert "@all" not in note("running", kind="gate:p0")
    assert "![" not in note("failed", "![](https://evil.example)")
