"""A ledger that lost the row of a served call gets it back, once, at its cost."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import TypeAdapter
from typer.testing import CliRunner

from gateway import reconciliation
from gateway.journal import read_journal
from gateway.ledger_client import Ledger as LedgerClient
from gateway.reconciliation import Reconciliation
from ledger.operations.history import Rule
from ledger.operations.history_reader import examine
from ledger.operations.served_calls import Served
from ledger.store import Ledger, Statement
from producers.backup import repair
from producers.cli import app
from tests.integration.gateway.gateway_world import (
    Held,
    ScriptedProvider,
    World,
    closing,
    gateway_world,
    message,
    opening,
    provider,
    scripted_provider,
    stream,
    words,
)

LOST_CALLS = (
    "UPDATE cap SET spent_nanousd = 0, reserved_nanousd = 0",
    "DELETE FROM call",
    "DELETE FROM event WHERE kind = 'call'",
)
LOST_CAPS = (*LOST_CALLS, "DELETE FROM cap")
LOST_CLAIM = (
    *LOST_CAPS,
    "DELETE FROM attempt",
    "UPDATE job SET fence = 0, state = 'queued', started_at = NULL, waiting_since = now(), pushed_at = now()",
    "DELETE FROM event WHERE kind IN ('started', 'state')",
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture(autouse=True)
def settles_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciliation, "_SETTLING_SECONDS", 0.0)


@contextmanager
def serving(
    ledger: Ledger, url: str, home: Path, *, lost_meanwhile: Sequence[str] = ()
) -> Iterator[tuple[World, Held]]:
    """A gateway that has served one call; meanwhile its ledger lost something."""
    with ExitStack() as stack:

        async def script(played: ScriptedProvider, http: web.Request) -> web.StreamResponse:
            for statement in lost_meanwhile:
                await asyncio.to_thread(world.execute, statement)
            return await stream(played, http, opening(), words("abc"), closing(output_tokens=3))

        upstream = stack.enter_context(scripted_provider(script))
        own = {"own": provider(upstream.url)}
        seldom = {"reconcile_seconds": 3600, "watch_seconds": 60}  # it does not see by itself what was lost
        world = stack.enter_context(gateway_world(ledger, url, own, journal=home, **seldom))
        held = world.attempt()
        reply = world.post(held, message(stream=True))
        assert (reply.status_code, "message_stop" in reply.text) == (200, True)
        yield world, held


def lose(world: World, statements: Sequence[str]) -> None:
    for statement in statements:
        world.execute(statement)


def restore(world: World) -> None:
    with world.ledger.begin() as session:
        repair(session)


def reconcile(url: str, home: Path, *, times: int = 1, keep_days: float = 7) -> list[int]:
    """Reconcile as one process that starts does, and tell how many calls each round booked."""

    async def work() -> list[int]:
        client = LedgerClient(url, connections=2)
        standing = Reconciliation(home, client, keep_days=keep_days)
        booked = [await standing.reconcile() for _ in range(times)]
        standing.close()
        await client.close()
        return booked

    return asyncio.run(work())


def alarms(world: World) -> list[str]:
    return [event["lost"] for event in world.events("call_restored")]


def broken(world: World, home: Path) -> list[Rule]:
    """The rules that are broken, by the journal as it will be read in some minutes."""
    aged = [replace(call, served_at=call.served_at - timedelta(minutes=3)) for call in read_journal(home)]
    return [found.rule for found in examine(world.ledger.engine, world.policy.retention, journal=aged).violations]


def orphans(world: World) -> list[tuple[object, ...]]:
    with world.ledger.begin() as session:
        query = "SELECT attempt_id, cost_nanousd, tenant FROM orphan_call"
        return [tuple(row) for row in session.connection().exec_driver_sql(query)]


def spent(world: World) -> dict[str, int]:
    return {scope: cap.spent_nanousd for scope, cap in world.caps().items()}


@pytest.mark.parametrize("lost", [LOST_CALLS, LOST_CAPS], ids=["its row", "its row and its caps"])
def test_a_call_that_ends_without_its_row_is_booked_and_raises_the_alarm(
    ledger: Ledger, ledger_url: str, home: Path, lost: Sequence[str]
) -> None:
    with serving(ledger, ledger_url, home, lost_meanwhile=lost) as (world, held):
        [call] = world.calls()
        assert (call.state, call.attempt_id, call.reserved_nanousd) == ("settled", held.attempt_id, 0)
        assert call.cost_nanousd > 0
        assert set(spent(world).values()) == {call.cost_nanousd}
        assert alarms(world) == ["row"]
        assert broken(world, home) == []


def test_a_call_whose_claim_was_lost_is_owed_by_its_tenant_and_is_no_part_of_the_job(
    ledger: Ledger, ledger_url: str, home: Path
) -> None:
    with serving(ledger, ledger_url, home, lost_meanwhile=LOST_CLAIM) as (world, held):
        assert world.calls() == []
        [(attempt_id, cost, tenant)] = orphans(world)
        assert (attempt_id, tenant) == (held.attempt_id, "acme")
        assert spent(world) == {"tenant_day": cost, "fleet_day": cost}
        assert [event["wasted_nanousd"] for event in world.events("call")] == [cost]
        assert alarms(world) == ["attempt"]
        assert broken(world, home) == []


def test_a_call_whose_attempt_is_swept_while_it_is_booked_is_owed_like_any_of_an_unknown_one(
    ledger: Ledger, ledger_url: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(ledger, ledger_url, home) as (world, held):
        [call] = world.calls()
    lose(world, LOST_CALLS)
    restore(world)
    look = LedgerClient.query

    async def sweep_after_a_look(client: LedgerClient, statement: Statement) -> Sequence[tuple[Any, ...]]:
        found = await look(client, statement)
        if "orphan_call" in statement.sql and found == [(False, True)]:
            await asyncio.to_thread(world.execute, "DELETE FROM attempt")
        return found

    monkeypatch.setattr(LedgerClient, "query", sweep_after_a_look)
    assert reconcile(ledger_url, home) == [1]
    assert world.calls() == []
    assert [(attempt_id, cost) for attempt_id, cost, _ in orphans(world)] == [(held.attempt_id, call.cost_nanousd)]
    assert alarms(world) == ["attempt"]


@pytest.mark.parametrize("lost", [LOST_CALLS, LOST_CLAIM], ids=["its row", "its claim"])
def test_what_a_restored_ledger_lacks_is_booked_once(
    ledger: Ledger, ledger_url: str, home: Path, lost: Sequence[str]
) -> None:
    with serving(ledger, ledger_url, home) as (world, _):
        [call] = world.calls()
    lose(world, lost)
    restore(world)
    assert Rule.SERVED_BOOKED in broken(world, home)
    assert reconcile(ledger_url, home, times=2) == [1, 0]
    assert reconcile(ledger_url, home) == [0]
    booked = [call.cost_nanousd for call in world.calls()] + [cost for _, cost, _ in orphans(world)]
    assert booked == [call.cost_nanousd]
    assert len(alarms(world)) == 1
    assert Rule.SERVED_BOOKED not in broken(world, home)


def test_the_command_names_what_the_journal_has_and_the_ledger_lacks(
    ledger: Ledger, ledger_url: str, home: Path
) -> None:
    with serving(ledger, ledger_url, home) as (world, _):
        pass
    [path] = home.glob("*.jsonl")
    [served] = read_journal(home)
    long_ago = served.served_at - timedelta(minutes=3)
    path.write_text(path.read_text().replace(served.served_at.isoformat()[:19], long_ago.isoformat()[:19]))
    ask = ["audit", "history", "--journal", str(home)]
    whole = CliRunner().invoke(app, ask, env={"POINTSMAN_LEDGER__URL": ledger_url})
    assert (whole.exit_code, "0 violations" in whole.output or "no violations" in whole.output) == (0, True)
    lose(world, LOST_CALLS)
    lacking = CliRunner().invoke(app, ask, env={"POINTSMAN_LEDGER__URL": ledger_url})
    assert lacking.exit_code == 1
    assert f"{served.id}  {Rule.SERVED_BOOKED.value}" in lacking.output.replace("\n", " ")


def test_what_retention_deleted_is_no_loss(ledger: Ledger, ledger_url: str, home: Path) -> None:
    with serving(ledger, ledger_url, home) as (world, _):
        pass
    assert reconcile(ledger_url, home) == [0]
    lose(world, LOST_CALLS)
    assert reconcile(ledger_url, home) == [0], "it was booked when this ledger was asked"


def test_a_call_that_retention_may_have_deleted_is_no_loss_to_a_ledger_that_is_compared_anew(
    ledger: Ledger, ledger_url: str, home: Path
) -> None:
    with serving(ledger, ledger_url, home) as (world, _):
        pass
    [path], [served] = home.glob("*.jsonl"), read_journal(home)
    swept = replace(served, served_at=served.served_at - timedelta(days=7, hours=1))
    path.write_bytes(TypeAdapter(Served).dump_json(swept) + b"\n")  # the first of a day whose last came 23 hours later
    lose(world, [*LOST_CAPS, "DELETE FROM attempt", "DELETE FROM job"])
    assert reconcile(ledger_url, home, keep_days=7) == [0]
    assert orphans(world) == []


def test_a_ledger_whose_disk_was_set_back_is_compared_anew(ledger: Ledger, ledger_url: str, home: Path) -> None:
    with serving(ledger, ledger_url, home) as (world, _):
        pass
    assert reconcile(ledger_url, home) == [0]
    lose(world, LOST_CALLS)
    marks = home / "reconciled.json"
    later = json.loads(marks.read_text())
    marks.write_text(json.dumps(later | {"written": later["written"] + 10**9}))
    assert reconcile(ledger_url, home) == [1]


def test_an_open_call_that_its_gateway_could_not_book_is_booked_at_its_cost(
    ledger: Ledger, ledger_url: str, home: Path
) -> None:
    with serving(ledger, ledger_url, home) as (world, _):
        [before] = world.calls()
    lose(world, ["UPDATE call SET state = 'reserved', cost_nanousd = 0", LOST_CALLS[2]])
    world.execute("UPDATE cap SET spent_nanousd = 0, reserved_nanousd = :reserved", reserved=before.reserved_nanousd)
    assert reconcile(ledger_url, home) == [1]
    [after] = world.calls()
    assert (after.state, after.cost_nanousd) == ("settled", before.cost_nanousd)
    assert alarms(world) == []
    assert broken(world, home) == []


def test_the_journal_of_another_ledger_is_left_alone(ledger: Ledger, ledger_url: str, home: Path) -> None:
    with serving(ledger, ledger_url, home) as (world, _):
        pass
    lose(world, [*LOST_CALLS, "DELETE FROM epoch", "INSERT INTO epoch (id) VALUES (gen_random_uuid())"])
    assert reconcile(ledger_url, home) == [0]
    assert broken(world, home) == []


def test_one_process_reconciles_and_old_files_go(ledger: Ledger, ledger_url: str, home: Path) -> None:
    with serving(ledger, ledger_url, home) as (world, _):
        pass
    lose(world, LOST_CALLS)

    async def work() -> tuple[int, int]:
        client = LedgerClient(ledger_url, connections=2)
        first, second = (Reconciliation(home, client, keep_days=7) for _ in range(2))
        booked = await first.reconcile(), await second.reconcile()
        first.close()
        await client.close()
        return booked

    assert asyncio.run(work()) == (1, 0)
    assert reconcile(ledger_url, home, keep_days=0) == [0]
    assert list(read_journal(home)) == []
