"""The words of a pull request."""

from dataclasses import replace
from uuid import UUID

import pytest

from gateway.forge import neutralise
from routing.jobs import Ticket
from workers.runs.publishing import MAX_LISTED, GateLine, PullRequestFacts, StepLine, branch_of, describe

RUN = UUID("0190a0a0-0000-7000-8000-00000000abcd")
TICKET = Ticket(
    source="github", key="a/shop#12", title="Cart total is wrong", url="https://f.example/12", reference="a/shop#12"
)
FACTS = PullRequestFacts(
    run_id=RUN,
    ticket=TICKET,
    summary="The total adds quantities.",
    steps=[StepLine("fix", "backend-dev", "completed", 2, 0.41), StepLine("qa", "qa", "completed", 1, 0.2)],
    gates=[GateLine("P0 needs a person after QA", "passed", "key:ada")],
    open_issues=["The icon is blurred"],
    changed=["src/cart.ts", "tests/cart.test.ts"],
    cost_usd=0.6123,
    estimate_usd=(2.0, 4.0),
)


def test_a_reviewer_reads_what_was_done_by_whom_and_at_what_cost() -> None:
    text = describe(FACTS)
    assert text.title == "Cart total is wrong"
    for part in (
        "(https://f.example/12)",
        "> The total adds quantities.",
        "| fix | backend-dev | completed | 2 | $0.4100 |",
        "- The icon is blurred",
        "P0 needs a person after QA: passed by key:ada",
        "- src/cart.ts",
        "It cost $0.6123 (the estimate was $2.00 to $4.00)",
        str(RUN),
        "Nothing was merged",
    ):
        assert part in text.body, part


def test_a_run_without_gates_or_leftovers_has_no_empty_chapters() -> None:
    body = describe(replace(FACTS, gates=(), open_issues=(), estimate_usd=None)).body
    assert "**Looked" not in body
    assert "**Left" not in body
    assert "\n\n\n" not in body


@pytest.mark.parametrize(
    ("said", "acts"),
    [
        ("thanks @admin", "@admin"),
        ("![](https://evil.example/?secret)", "!["),
        ("<img src=x>", "<img"),
        ("<!-- pointsman 1 -->x", "<!--"),
        ("Closes #7", "#7"),
        ("Closes a/b#7", "b#7"),
        ("@everyone", "@everyone"),
    ],
)
@pytest.mark.threat("D7")
def test_what_an_agent_says_makes_the_forge_do_nothing(said: str, acts: str) -> None:
    assert acts not in neutralise(said)
    for facts in (replace(FACTS, summary=said), replace(FACTS, open_issues=[said]), replace(FACTS, changed=[said])):
        assert acts not in describe(facts).body


def test_ordinary_words_stay_as_they_are() -> None:
    said = "Mail ada@example.com; a < b; use `@scope/pkg`; issue no. 7; #heading"
    assert neutralise(said) == said


def test_a_summary_cannot_leave_its_quotation() -> None:
    body = describe(replace(FACTS, summary="one\n\n| a | b |\n# Title\r\ntwo\x0bthree")).body
    quoted = [line for line in body.splitlines() if line.startswith(">")]
    assert quoted == ["> one", ">", "> | a | b |", "> # Title", "> two three"]


def test_a_cell_cannot_add_columns_or_lines() -> None:
    body = describe(replace(FACTS, steps=[StepLine("a|b\nc", "x", "completed", 1, 0)])).body
    assert "| a\\|b c | x |" in body


def test_long_lists_are_cut_and_say_so() -> None:
    body = describe(replace(FACTS, changed=[f"f{number}.ts" for number in range(MAX_LISTED + 5)])).body
    assert "- and 5 more" in body


@pytest.mark.parametrize(
    ("key", "branch"),
    [
        ("a/shop#12", "pointsman/a-shop-12-0190a0a0"),
        ("ENG-7", "pointsman/eng-7-0190a0a0"),
        ("../../x..lock~^:", "pointsman/x-lock-0190a0a0"),
        ("\u00e4\u00e4", "pointsman/ticket-0190a0a0"),
    ],
)
def test_a_branch_is_named_after_its_ticket_and_its_run(key: str, branch: str) -> None:
    assert branch_of(TICKET.model_copy(update={"key": key}), RUN) == branch
