"""The words of a pull request."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from gateway.forges.forge import neutralise
from ledger.runs.run import RunRows
from ledger.runs.tables import AgentExecution, Gate, Project, Run, RunStep
from ledger.tables import Job
from routing.jobs import Ticket
from workers.runs.publishing import MAX_LISTED, MAX_SUBJECT, commit_message, describe

RUN = UUID("0190a0a0-0000-7000-8000-00000000abcd")
TICKET = Ticket(
    source="github", key="a/shop#12", title="Cart total is wrong", url="https://f.example/12", reference="a/shop#12"
)


def rows_of(
    summary: str = "The total adds quantities.",
    *,
    issue: str | None = "The icon is blurred",
    changed: list[str] | None = None,
    estimate: dict[str, Any] | None = None,
    gates: bool = True,
    first: str = "fix",
) -> RunRows:
    issues = [{"title": issue}] if issue is not None else []
    files = changed if changed is not None else ["src/cart.ts", "tests/cart.test.ts"]
    steps = [
        RunStep(run_id=RUN, key=first, position=0, agent="backend-dev", phase="work", state="completed", tries=2),
        RunStep(run_id=RUN, key="qa", position=1, agent="qa", phase="work", state="completed", tries=1),
        RunStep(run_id=RUN, key="summary_1", position=2, phase="summary", state="completed", tries=1),
    ]
    steps[0].changed, steps[1].result, steps[2].result = files, {"issues": issues}, {"summary": summary}
    job_id = uuid4()
    decided = Gate(run_id=RUN, key="rule", kind="rule", reason="P0 needs a person after QA", state="passed")
    decided.actor = "key:ada"
    return RunRows(
        job=Job(id=RUN),
        run=Run(job_id=RUN, estimate={"low_usd": 2.0, "high_usd": 4.0} if estimate is None else estimate),
        project=Project(tenant="acme", name="shop"),
        steps=steps,
        executions=[AgentExecution(job_id=job_id, run_id=RUN, step_key=first, attempt=1)],
        gates=[decided] if gates else [],
        cancelling=frozenset(),
        costs={job_id: 410_000_000},
        spent_nanousd=612_300_000,
        cap_nanousd=0,
    )


def body_of(**fields: Any) -> str:
    return describe(rows_of(**fields), TICKET).body


def test_a_ticket_s_address_ends_where_its_link_does() -> None:
    hostile = "https://f.example/12)![x](https://evil.example/a.png)@acme/everyone<b>"
    text = describe(rows_of(), TICKET.model_copy(update={"url": hostile})).body
    assert "(https://f.example/12%29![x]%28https://evil.example/a.png%29@acme/everyone%3Cb%3E)" in text


def test_a_reviewer_reads_what_was_done_by_whom_and_at_what_cost() -> None:
    text = describe(rows_of(), TICKET)
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
    body = body_of(gates=False, issue=None, estimate={})
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
    for fields in ({"summary": said}, {"issue": said}, {"changed": [said]}):
        assert acts not in body_of(**fields)


def test_ordinary_words_stay_as_they_are() -> None:
    said = "Mail ada@example.com; a < b; use `@scope/pkg`; issue no. 7; #heading"
    assert neutralise(said) == said


def test_a_summary_cannot_leave_its_quotation() -> None:
    body = body_of(summary="one\n\n| a | b |\n# Title\r\ntwo\x0bthree")
    quoted = [line for line in body.splitlines() if line.startswith(">")]
    assert quoted == ["> one", ">", "> | a | b |", "> # Title", "> two three"]


def test_a_cell_cannot_add_columns_or_lines() -> None:
    body = body_of(first="a|b\nc")
    assert "| a\\|b c | backend-dev |" in body


def test_long_lists_are_cut_and_say_so() -> None:
    body = body_of(changed=[f"f{number}.ts" for number in range(MAX_LISTED + 5)])
    assert "- and 5 more" in body


@pytest.mark.parametrize(
    ("key", "branch"),
    [
        ("a/shop#12", "pointsman/a-shop-12-0000abcd"),
        ("ENG-7", "pointsman/eng-7-0000abcd"),
        ("../../x..lock~^:", "pointsman/x-lock-0000abcd"),
        ("\u00e4\u00e4", "pointsman/ticket-0000abcd"),
        ("", "pointsman/cart-total-is-wrong-0000abcd"),
    ],
)
def test_a_branch_is_named_after_its_ticket_and_its_run_until_one_is_pushed(key: str, branch: str) -> None:
    rows = rows_of()
    rows.run.ticket = {"title": "Cart total is wrong", "key": key}
    assert rows.branch == branch
    rows.run.pushed = {"branch": "pointsman/earlier"}
    assert rows.branch == "pointsman/earlier"


@pytest.mark.parametrize(
    ("text", "intent", "changed", "subject"),
    [
        ("Repair the header", "fix", ["src/a.ts"], "fix: Repair the header"),
        ("Add a cart", "build", ["src/a.ts", "docs/cart.md"], "feat: Add a cart"),
        ("Explain the cart", "build", ["docs/cart.md"], "docs: Explain the cart"),
        ("perf(cart): sum once", "fix", ["src/a.ts"], "perf(cart): sum once"),
        ("Add it\n\nSigned-off-by: Mallory <m@x.example>", "build", ["a.ts"], "feat: Add it"),
        ("Repair it, fixes #7 for @ann", "fix", ["a.ts"], "fix: Repair it, fixes #\u20607 for @\u2060ann"),
    ],
)
def test_a_commit_says_what_kind_of_change_it_is_and_orders_nothing(
    text: str, intent: str, changed: list[str], subject: str
) -> None:
    run_id = uuid4()
    assert commit_message(text, intent=intent, changed=changed, run_id=run_id) == f"{subject}\n\nRun: {run_id}"


@pytest.mark.parametrize("text", ["word " * 40, "w" * 200])
def test_a_long_subject_is_cut_and_stands_whole_below(text: str) -> None:
    subject, _, body, _, trailer = commit_message(text, intent="fix", changed=["a"], run_id=uuid4()).split("\n")
    assert len(subject) <= MAX_SUBJECT
    assert body == text.strip()
    assert trailer.startswith("Run: ")
