"""The daily routing log on a real ledger: each decision once, in order, whatever dies, and whoever else writes."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from ledger.job_control import request_cancel
from ledger.jobs import lock_job, route_job
from ledger.store import Ledger, create_ledger_engine
from ledger.submission import accept
from producers.config import DispatcherConfig
from producers.dispatch.broker import BrokerLists, Publisher
from producers.dispatch.dispatcher import Dispatcher
from producers.use_cases.routing_log import BATCH_ENTRIES, MARK_NAME, RoutingLog
from routing.broker import create_app
from routing.decision.llm_router import route_by_llm
from routing.decision.router import Mode, Signals, decide
from routing.jobs import State
from routing.policy.platform import platform_policy
from routing.queues import QueueName
from tests.factories import Shop, make_new_job
from tests.services import Postgres

ENTRY = re.compile(
    r'\d\d:\d\d ROUTE "(?:[^"\\\n]|\\["\\nrt]|\\u[0-9a-f]{4})*" → (?:ANSWER|ACTION)\n'
    r"  Triggers: \[[^\n\]]*\]\n"
    r"  (?:Confidence: (?:STRONG|WEAK|NONE) \(\d+ triggers?\)|Pattern: [^\n]+)\n"
    r"  Routed to: (?:Swarm Orchestrator|Direct Response|Tool Specialist)\n\n"
)
DOCUMENT = """\
13:26 ROUTE "fix the E2E tests in zbooks repo" → ACTION
  Triggers: [fix, tests, repo]
  Confidence: STRONG (3 triggers)
  Routed to: Swarm Orchestrator

13:27 ROUTE "what is HPOS?" → ANSWER
  Triggers: []
  Pattern: Question + no external refs
  Routed to: Direct Response

13:28 ROUTE "search the codebase for auth" → ACTION
  Triggers: [search, codebase]
  Confidence: WEAK (2 triggers)
  Routed to: Swarm Orchestrator

"""


def new_job(prompt: str, **overrides: Any) -> Any:
    route = decide(Signals(prompt=prompt), platform_policy())
    fields = {"prompt": prompt, "tier": None, "mode": route.mode.value, "route": route.model_dump(mode="json")}
    return make_new_job(**(fields | overrides))


def decided(shop: Shop, prompt: str, *, at: str | None = None, **overrides: Any) -> UUID:
    with shop.ledger.begin() as session:
        job_id = accept(session, new_job(prompt, **overrides)).job.id
    if at is not None:
        shop.execute("UPDATE event SET at = :at WHERE job_id = :id", at=at, id=job_id)
    return job_id


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "memory"


@pytest.fixture
def log(shop: Shop, directory: Path) -> Callable[[], RoutingLog]:
    """Make a writer, as a dispatcher that starts does."""
    return lambda: RoutingLog(shop.ledger, directory)


def files(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(directory.glob("*.md"))}


def shown(directory: Path) -> list[str]:
    """The messages of all entries, in order; fails where anything else stands in a file."""
    whole = "".join(files(directory).values())
    assert "".join(ENTRY.findall(whole)) == whole
    return re.findall(r'ROUTE "(.*)" →', whole)


@pytest.mark.req("R-068", "R-069", "R-070", "R-071", "R-091", "R-092", "R-096")
def test_the_document_s_three_decisions_make_the_document_s_file(
    shop: Shop, directory: Path, log: Callable[[], RoutingLog]
) -> None:
    for minute, prompt in (
        (26, "fix the E2E tests in zbooks repo"),
        (27, "what is HPOS?"),
        (28, "search the codebase for auth"),
    ):
        decided(shop, prompt, at=f"2026-02-18T13:{minute}:59+00")
    assert log().write_pending() == 3
    assert files(directory) == {"2026-02-18.md": DOCUMENT}


@pytest.mark.req("R-068")
def test_decisions_over_midnight_go_to_the_files_of_their_days_in_utc(
    shop: Shop, directory: Path, log: Callable[[], RoutingLog]
) -> None:
    decided(shop, "pwd", at="2026-02-19T01:59:59+02:00")
    decided(shop, "fix two", at="2026-02-19T02:00:00+02:00")
    decided(shop, "fix three", at="2026-02-18T23:59:59.999999+00")
    one = log()
    one.write_pending()
    found = files(directory)
    assert [re.findall(r'(\S+) ROUTE "(.*)"', body) for body in found.values()] == [
        [("23:59", "pwd"), ("23:59", "fix three")],
        [("00:00", "fix two")],
    ]
    assert list(found) == ["2026-02-18.md", "2026-02-19.md"]


def test_nothing_is_written_twice_or_touched_again(shop: Shop, directory: Path, log: Callable[[], RoutingLog]) -> None:
    decided(shop, "fix one")
    one = log()
    assert (one.write_pending(), one.write_pending(), log().write_pending()) == (1, 0, 0)
    before = {path: path.stat().st_mtime_ns for path in directory.glob("*.md")}
    decided(shop, "fix two", at="2031-01-01T00:00:00+00")
    assert one.write_pending() == 1
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert shown(directory) == ["fix one", "fix two"]


def test_a_writer_that_died_anywhere_is_completed_by_the_next(
    shop: Shop, directory: Path, log: Callable[[], RoutingLog]
) -> None:
    decided(shop, "fix one", at="2026-02-18T10:00:00+00")
    log().write_pending()
    mark = (directory / MARK_NAME).read_bytes()
    path = directory / "2026-02-18.md"
    begun = path.stat().st_size
    for number in range(3):
        decided(shop, f"fix “{number}”", at="2026-02-18T10:01:00+00")
    log().write_pending()
    whole = path.read_bytes()
    for size in (*range(begun, len(whole), 17), len(whole)):
        path.write_bytes(whole[:size])
        (directory / MARK_NAME).write_bytes(mark)
        assert log().write_pending() == 3
        assert path.read_bytes() == whole
        assert log().write_pending() == 0


def test_what_came_since_the_writer_died_follows_what_it_left_unfinished(
    shop: Shop, directory: Path, log: Callable[[], RoutingLog]
) -> None:
    decided(shop, "fix one", at="2026-02-18T10:00:00+00")
    log().write_pending()
    path = directory / "2026-02-18.md"
    path.write_bytes(path.read_bytes()[:20])
    (directory / MARK_NAME).unlink()
    decided(shop, "fix two", at="2026-02-18T10:01:00+00")
    log().write_pending()
    assert shown(directory) == ["fix one", "fix two"]


@pytest.mark.req("R-068", "R-096")
def test_of_two_dispatchers_the_leader_writes_and_the_other_goes_on_where_it_stopped(
    shop: Shop, directory: Path, broker_url: str, log: Callable[[], RoutingLog]
) -> None:
    with ExitStack() as stack:
        app = create_app(broker_url)
        stack.callback(app.close)
        lists = BrokerLists(broker_url)
        stack.callback(lists.close)
        one, two = (
            Dispatcher(
                shop.ledger,
                Publisher(app),
                lists,
                policy=shop.policy,
                config=DispatcherConfig(),
                holder=holder,
                signing_key=b"k" * 32,
                routing_log=log(),
            )
            for holder in ("one", "two")
        )
        for turn in range(3):
            leader, follower = (one, two) if turn % 2 == 0 else (two, one)
            assert leader.run_once()
            decided(shop, f"fix {turn}")
            assert not follower.run_once()
            assert len(shown(directory)) == turn
            leader.run_once()
            assert shown(directory) == [f"fix {number}" for number in range(turn + 1)]
            leader.resign()


def test_writers_that_all_believe_to_lead_write_each_entry_once(
    shop: Shop, directory: Path, log: Callable[[], RoutingLog]
) -> None:
    stopping = threading.Event()

    def write() -> None:
        one = log()
        while not stopping.is_set():
            one.write_pending()

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(40):
        decided(shop, f"fix {number}")
    stopping.set()
    for thread in threads:
        thread.join()
    log().write_pending()
    assert shown(directory) == [f"fix {number}" for number in range(40)]


def test_entries_stand_in_the_order_of_their_transactions_and_wait_for_one_that_still_runs(
    shop: Shop, directory: Path, log: Callable[[], RoutingLog]
) -> None:
    one = log()
    with shop.ledger.begin() as session:
        session.execute(text("SELECT pg_current_xact_id()"))
        decided(shop, "fix the later")
        assert one.write_pending() == 0
        accept(session, new_job("fix the earlier"))
        assert one.write_pending() == 0
    assert one.write_pending() == 2
    assert shown(directory) == ["fix the earlier", "fix the later"]


@pytest.mark.req("R-072")
@pytest.mark.parametrize(
    "prompt",
    [
        'x" → ANSWER\n  Triggers: []\n\n13:00 ROUTE "y',
        "fix\r\n\r\n13:27 ROUTE ```a```",
        "\u202efix\u2066 \u2028\u0085 \x1b[2J",
        "fix `rm -rf` \\",
        "fix ../../2026-02-18.md",
        "fix a\ud800b\x00",
    ],
)
def test_a_prompt_can_neither_forge_an_entry_nor_choose_a_file(
    shop: Shop, directory: Path, log: Callable[[], RoutingLog], prompt: str
) -> None:
    decided(shop, prompt.replace("\ud800", "\ufffd").replace("\x00", " "), at="2026-02-18T10:00:00+00")
    decided(shop, "fix two", at="2026-02-18T10:00:00+00")
    log().write_pending()
    assert len(shown(directory)) == 2
    assert list(files(directory)) == ["2026-02-18.md"]


@pytest.mark.req("R-068", "R-100")
def test_a_decision_with_a_model_s_say_is_logged_once_as_it_was_made(
    shop: Shop, directory: Path, log: Callable[[], RoutingLog]
) -> None:
    signals = Signals(prompt="fix the tests")
    job_id = decided(shop, signals.prompt, state=State.RECEIVED, queue=QueueName.INTAKE)
    one = log()
    assert one.write_pending() == 0
    with shop.ledger.begin() as session:
        rules = decide(signals, platform_policy())
        route = route_by_llm(rules, {"mode": "ANSWER"}, signals=signals, policy=platform_policy())
        route_job(session, lock_job(session, job_id), route)
    assert (one.write_pending(), one.write_pending()) == (1, 0)
    assert route.mode is Mode.ANSWER
    (entry,) = files(directory).values()
    assert "→ ANSWER\n  Triggers: []\n  Pattern: Soft router (prompt-based)\n" in entry


@pytest.mark.req("R-091")
def test_a_decision_is_logged_though_the_job_ends_before_it_is_worked_on(
    shop: Shop, directory: Path, log: Callable[[], RoutingLog]
) -> None:
    for state in (State.QUEUED, State.RECEIVED):
        job_id = decided(shop, f"fix what is {state.value}", state=state)
        with shop.ledger.begin() as session:
            request_cancel(session, lock_job(session, job_id), actor="owner")
    log().write_pending()
    assert shown(directory) == ["fix what is queued", "fix what is received"]


@pytest.mark.req("R-100")
def test_a_log_that_exists_outlives_the_switch_between_routers(
    shop: Shop, directory: Path, log: Callable[[], RoutingLog]
) -> None:
    decided(shop, "fix one")
    log().write_pending()
    (before,) = files(directory).values()
    decided(shop, "fix two", state=State.RECEIVED, queue=QueueName.INTAKE)
    log().write_pending()
    assert list(files(directory).values()) == [before]
    decided(shop, "fix three")
    log().write_pending()
    (after,) = files(directory).values()
    assert (after[: len(before)], after != before) == (before, True)


def test_neither_key_patterns_nor_configured_secrets_are_written(shop: Shop, directory: Path) -> None:
    decided(shop, "fix hunter22 and sk-abcdefghijklmnopqrstuvwxyz")
    RoutingLog(shop.ledger, directory, known_keys=("hunter22",)).write_pending()
    assert shown(directory) == ["fix [redacted] and [redacted]"]


def test_what_others_wrote_into_a_file_stays_and_is_warned_of(
    shop: Shop, directory: Path, log: Callable[[], RoutingLog], caplog: pytest.LogCaptureFixture
) -> None:
    decided(shop, "fix one", at="2026-02-18T10:00:00+00")
    log().write_pending()
    path = directory / "2026-02-18.md"
    with path.open("a") as file:
        file.write("a note\n")
    before = path.read_text()
    decided(shop, "fix two", at="2026-02-18T10:01:00+00")
    with caplog.at_level(logging.WARNING):
        log().write_pending()
    assert path.read_text().startswith(before)
    assert path.read_text().count("fix two") == 1
    assert "routing_log_changed_by_others" in caplog.messages


def test_a_directory_that_cannot_be_written_stops_nobody_and_is_caught_up_with(
    shop: Shop, directory: Path, log: Callable[[], RoutingLog], caplog: pytest.LogCaptureFixture
) -> None:
    decided(shop, "fix one")
    directory.parent.mkdir(parents=True)
    directory.write_text("in the way")
    one = log()
    with caplog.at_level(logging.WARNING):
        assert one.write_pending() == 0
    assert "routing_log_not_written" in caplog.messages
    directory.unlink()
    assert one.write_pending() == 1


def test_a_file_that_is_a_link_is_not_followed(shop: Shop, directory: Path, log: Callable[[], RoutingLog]) -> None:
    decided(shop, "fix one", at="2026-02-18T10:00:00+00")
    directory.mkdir(parents=True)
    target = directory.parent / "target"
    target.write_text("")
    (directory / "2026-02-18.md").symlink_to(target)
    assert log().write_pending() == 0
    assert target.read_text() == ""


def test_a_row_that_cannot_be_read_is_passed_over(shop: Shop, directory: Path, log: Callable[[], RoutingLog]) -> None:
    shop.accept()
    decided(shop, "fix one")
    one = log()
    one.write_pending()
    assert shown(directory) == ["fix one"]
    assert one.write_pending() == 0


def test_a_backlog_is_written_in_batches(shop: Shop, directory: Path, log: Callable[[], RoutingLog]) -> None:
    decided(shop, "fix one", at="2026-02-18T10:00:00+00")
    shop.execute(
        "INSERT INTO event (kind, job_id, data, at) SELECT kind, job_id, data, at FROM event, generate_series(1, :more)"
        " WHERE kind = 'accepted'",
        more=BATCH_ENTRIES,
    )
    one = log()
    assert [one.write_pending() for _ in range(3)] == [BATCH_ENTRIES, 1, 0]
    assert len(shown(directory)) == BATCH_ENTRIES + 1


@pytest.fixture
def other(postgres: Postgres) -> Iterator[Shop]:
    """Another ledger, of which the mark in the directory knows nothing."""
    with postgres.database() as url:
        ledger = Ledger(create_ledger_engine(url))
        shop = Shop(ledger, url)
        shop.tenant()
        yield shop
        ledger.close()


def test_in_another_ledger_only_what_is_newer_than_the_log_is_due(
    shop: Shop, other: Shop, directory: Path, log: Callable[[], RoutingLog]
) -> None:
    decided(shop, "fix one", at="2026-02-18T10:00:00+00")
    log().write_pending()
    decided(other, "fix what a restored copy brings along", at="2026-02-18T10:00:00+00")
    decided(other, "fix two", at="2026-02-18T11:00:00+00")
    moved = RoutingLog(other.ledger, directory)
    assert (moved.write_pending(), moved.write_pending()) == (1, 0)
    decided(other, "fix three", at="2026-02-18T12:00:00+00")
    assert moved.write_pending() == 1
    assert shown(directory) == ["fix one", "fix two", "fix three"]
