"""Cells: a tenant's rows and files move from one ledger to another while both work, and nothing is lost or twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from celery import Celery
from pydantic import SecretStr
from sqlalchemy import make_url, text
from sqlalchemy.exc import OperationalError
from sqlmodel import SQLModel

from ledger.cells import copying, tenant_rows
from ledger.cells.directory import CellRecord, Directory, Move, Step
from ledger.dispatch_window import release_due
from ledger.errors import CellError
from ledger.notifications import claim_due_notifications
from ledger.operations.history_reader import examine
from ledger.operations.served_calls import unbooked
from ledger.record_tables import Epoch
from ledger.releases import NewRelease, add_release, ensure_site
from ledger.runs.tables import AgentExecution, Gate, Project, ReviewComment, Run, RunStep, TicketNote
from ledger.start_attempt import claim
from ledger.store import Ledger, create_ledger_engine
from ledger.tables import Tenant
from producers.cells import intake, move
from producers.cells.intake import Forwarder
from producers.cells.move import Timing, abort_move, move_tenant
from producers.dispatch.broker import Publisher
from producers.dispatch.housekeeping import collect_garbage
from producers.dispatch.redis_client import open_broker
from producers.intake.celery_intake import MAX_TRIES, CeleryIntake, IntakeLists
from producers.intake.submit import Submitter
from producers.use_cases.tenants import create_key, hash_secret
from producers.use_cases.tickets import TicketWriter
from routing.broker import create_app
from routing.config import CellSecrets
from routing.jobs import JobMessage, Reason, State
from routing.policy.agents import AccountsConfig
from routing.queues import QueueName
from routing.scheduling import WaitReason
from sites.config import ContentStoreConfig
from sites.content_store import ContentStore, Entry, Manifest
from sites.disk import Disk
from sites.ownership import adopt
from sites.repository import copies
from sites.repository.copies import claim_root
from tests.directories import new_directory
from tests.integration.monitoring.driving import Fleet
from tests.services import Postgres, Valkey, wait_until
from tests.unit.workers.runs.repositories import make_project

MAY_BE_EMPTY = {"person", "login_session", "approval", "debate", "task_failure", "recorded_call", "delivery"} | {
    "notice",
    "notice_delivery",
    "kept_delivery",
}
"""Tables of which the tenant has no rows here."""
NOW = Timing(drain=0.0, let_go=5.0, lease=0.0)


@dataclass
class Two:
    """Two cells and their directory; the first has tenant acme, with a job of each kind, and neighbour."""

    directory: Directory
    directory_url: str
    east: Fleet
    west: Fleet
    stores: dict[str, ContentStore]
    roots: dict[str, Path]
    """Of the cells' workspaces."""
    kept: str
    """Digest of a file of acme's."""
    run_id: UUID

    def files_of_run(self, cell: str) -> dict[str, bytes]:
        """Return the files of the workspace of acme's run in a cell."""
        root = self.roots[cell] / f"{self.run_id}.git"
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def move(self) -> Move:
        """Return acme's move."""
        move = self.directory.move_of("acme")
        assert move is not None
        return move

    def check_books(self) -> None:
        """Check both ledgers' histories by all the rules that there are."""
        for fleet in (self.east, self.west):
            verdict = examine(fleet.ledger.engine, fleet.policy.retention)
            assert verdict.ok, verdict.violations

    def fingerprint(self, fleet: Fleet, *, without: tuple[str, ...] = ()) -> dict[str, int]:
        """Return how many rows of acme each table has; what the audit trail says of its moves does not count."""
        unmoved = {"audit": " AND action NOT IN ('tenant_moved_out', 'tenant_moved_in')"}
        with fleet.ledger.begin() as session:
            return {
                name: session.execute(
                    text(
                        f"SELECT count(*) FROM {name} WHERE ({table.rows.replace('%(tenant)s', ':tenant')})"
                        f"{unmoved.get(name, '')}"
                    ),
                    {"tenant": "acme"},
                ).scalar_one()
                for name, table in tenant_rows.TABLES.items()
                if name not in without
            }


def open_fleet(url: str, stack: ExitStack, *tenants: str) -> Fleet:
    ledger = Ledger(create_ledger_engine(url, pool_size=2))
    stack.callback(ledger.close)
    site_id = uuid4()
    with ledger.begin() as session:
        session.add(Epoch())  # no other ledger's, though all are copies of one template
        for name in tenants:
            session.add(Tenant(name=name, provider="fake"))
        session.flush()
        if tenants:
            site_id = ensure_site(session, "acme", "bakery").id
    return Fleet(ledger, url, site_id=site_id)


@pytest.fixture
def two(postgres: Postgres, tmp_path: Path) -> Iterator[Two]:
    with ExitStack() as stack:
        url, directory = stack.enter_context(new_directory(postgres))
        fleets, stores, roots = [], {}, {}
        for name, tenants in (("east", ("acme", "neighbour")), ("west", ())):
            ledger_url = stack.enter_context(postgres.database())
            postgres.leave(ledger_url)
            fleets.append(open_fleet(ledger_url, stack, *tenants))
            config = ContentStoreConfig(root=tmp_path / name)
            stores[name], roots[name] = ContentStore(config.root), tmp_path / f"{name}-runs"
            adopt(fleets[-1].ledger, stores[name])
            claim_root(roots[name], name)
            settings = config.model_dump_json()
            directory.add_cell(
                CellRecord(name, "http://x", "http://y", "redis://z", ledger_url, settings, str(roots[name]))
            )
        east, west = fleets
        kept = stores["east"].put(b"<h1>Bread</h1>")
        with east.ledger.begin() as session:
            secret = create_key(session, "acme", name="ci", scopes=["submit"])
        directory.claim("acme", cell="east", key_hashes=[hash_secret(secret)])
        directory.claim("neighbour", cell="east")
        offered = east.claim(east.accept())
        east.call(offered)
        with east.ledger.begin() as session:
            manifest = Manifest({"index.html": Entry(kept, 14, "text/html")})
            add_release(session, release_of(east.site_id, manifest))
        east.end(offered, State.FAILED, Reason.INTERNAL_ERROR)
        east.end(east.claim(east.accept(tier=None)), State.ANSWERED, Reason.DONE)
        east.accept()
        yield Two(directory, url, east, west, stores, roots, kept, add_run(east, roots["east"]))


def add_run(fleet: Fleet, root: Path, *, tenant: str = "acme") -> UUID:
    """A run that has begun and waits, with a row in each of its tables."""
    run_id = fleet.accept(tenant=tenant, tier=None, site_id=None, queue=QueueName.CONTROL)
    bill = {"queue": QueueName.STEPS, "root_id": run_id, "parent_id": run_id}
    step_id = fleet.accept(tenant=tenant, tier=None, site_id=None, **bill)
    head = make_project(root / f"{run_id}.git", {"README.md": b"# Shop"})
    with fleet.ledger.begin() as session:
        config = {"repo": {"url": "https://forge.example/acme/shop"}, "stack": {"language": "python"}}
        project = Project(tenant=tenant, name="shop", config=config)
        session.add(project)
        session.flush()
        session.add(Run(job_id=run_id, project_id=project.id, base_commit=head, head_commit=head))
        session.flush()
        session.add(RunStep(run_id=run_id, key="fix", position=0, phase="work", task="fix it", tries=1))
        session.flush()
        session.add(AgentExecution(job_id=step_id, run_id=run_id, step_key="fix", attempt=1))
        session.add(Gate(run_id=run_id, key="plan", kind="plan", reason="new"))
        session.add(ReviewComment(root_id=run_id, source="x", author="bob", body="wider", is_order=False))
        session.add(TicketNote(run_id=run_id, kind="started"))
    return run_id


def release_of(site_id: UUID, manifest: Manifest) -> NewRelease:
    return NewRelease(
        site_id=site_id,
        digest=manifest.digest,
        manifest=json.loads(manifest.to_json()),
        total_bytes=14,
        signals={},
        scan={},
        scan_passed=True,
        scan_digest="s" * 64,
    )


def test_each_table_of_the_ledger_moves_with_its_tenant_or_says_why_it_stays() -> None:
    named = [*tenant_rows.TABLES, *tenant_rows.STAYING]
    assert sorted(named) == sorted(SQLModel.metadata.tables)


def test_a_cell_is_opened_with_what_its_reader_knows_and_the_directory_does_not(two: Two) -> None:
    store = json.dumps({"url": "s3://east/x", "secrets": {"secret_access_key": "plover"}})
    url = "postgresql://pointsman:sword%2Ffish@a:5432,b:5432/pointsman?sslmode=require"
    known = CellRecord("east", "http://x", "http://y", "redis://:xyzzy@z:6379/0", url, store, accounts="{}")
    two.directory.add_cell(known)
    row = str(raw_cells(two.directory_url))
    assert not [word for word in ("plover", "sword", "xyzzy") if word in row]
    secrets = CellSecrets(
        ledger=SecretStr("sword/fish"),
        broker=SecretStr("xyzzy"),
        content_store={"secret_access_key": SecretStr("plover")},
    )
    reader = Directory(two.directory_url, {"east": secrets})
    assert reader.cell("east")._replace(content_store="") == known._replace(content_store="")
    assert json.loads(reader.cell("east").content_store) == json.loads(store)
    reader.close()
    assert two.directory.cell("east").ledger_url == url.replace(":sword%2Ffish", "")


def raw_cells(url: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT cell FROM cell").fetchall()


def test_a_tenant_moves_with_all_its_rows_and_files_and_its_old_cell_takes_nothing_more_of_it(two: Two) -> None:
    before = two.fingerprint(two.east)
    steps: list[Step] = []
    calls = two.east.execute_scalars("SELECT id FROM call")
    files = two.files_of_run("east")
    move_tenant(two.directory, "acme", "west", timing=NOW, told=lambda made: steps.append(made.step))
    assert steps == [Step.FROZEN, Step.COPIED, Step.SWITCHED, Step.OPENED]
    assert two.fingerprint(two.west) == before
    assert (two.files_of_run("west"), two.files_of_run("east")) == (files, {})
    assert {name for name, count in before.items() if not count} <= MAY_BE_EMPTY
    assert before["job"] == 5
    assert before["event"] > 9
    assert before["cap"] >= 3
    assert before["release"] == 1
    assert two.stores["west"].get(two.kept) == b"<h1>Bread</h1>"
    for fleet in (two.east, two.west):
        with fleet.ledger.begin() as session:
            assert unbooked(calls).all(session) == [], "a gateway that reads its journal again books nothing twice"
    gone = two.fingerprint(two.east, without=("tenant", "api_key", "audit"))
    assert set(gone.values()) == {0}
    place = two.directory.place_of("acme")
    assert place is not None
    assert place.cell == "west"
    assert place.epoch == 2
    assert place.step is None
    with pytest.raises(OperationalError, match=tenant_rows.TENANT_CLOSED):
        two.east.accept(tier=None)
    assert two.west.scalar("SELECT paused_at FROM tenant WHERE name = 'acme'") is None
    two.west.end(two.west.claim(two.west.accept(tier=None)), State.ANSWERED, Reason.DONE)


def contents(fleet: Fleet) -> dict[str, list[str]]:
    """Return the rows of acme's jobs, without what the move changes of them."""
    with fleet.ledger.begin() as session:
        return {
            name: list(
                session.scalars(
                    text(
                        f"SELECT (to_jsonb(each) - CAST(:left AS text[]))::text FROM {name} AS each"
                        f" WHERE {table.rows.replace('%(tenant)s', ':tenant')}"
                    ),
                    {"tenant": "acme", "left": [*table.changed, table.drawn]},
                )
            )
            for name, table in tenant_rows.TABLES.items()
            if table.job
        }


@pytest.mark.parametrize("is_known", [True, False], ids=["in one go", "after a crash"])
def test_what_has_ended_is_copied_ahead_and_what_came_changed_or_went_since_then_with_the_rest(
    two: Two, *, is_known: bool
) -> None:
    tenant_rows.close(two.west.ledger, "acme")
    ahead = copying.copy(two.east.ledger, two.west.ledger, "acme", is_ahead=True)
    assert ahead.rows == sum(map(len, contents(two.west).values()))
    assert two.west.scalar("SELECT count(*) FROM job") == two.west.scalar("SELECT count(ended_at) FROM job") == 2
    failed, answered = two.east.execute_scalars("SELECT id FROM job WHERE ended_at IS NOT NULL ORDER BY created_at")
    two.east.execute("UPDATE job SET dismissed_at = now() WHERE id = :id", id=failed)
    two.east.execute("UPDATE call SET finish = 'cut'")
    two.east.execute("INSERT INTO event (job_id, tenant, kind, data) VALUES (:id, 'acme', 'late', '{}')", id=failed)
    two.east.execute("DELETE FROM notification WHERE job_id = :id", id=answered)
    for table, column in (("attempt", "job_id"), ("job", "id")):
        two.east.execute(f"DELETE FROM {table} WHERE {column} = :id", id=answered)
    two.east.end(two.east.claim(two.east.accept(tier=None)), State.ANSWERED, Reason.DONE)
    tenant_rows.close(two.east.ledger, "acme")
    before = contents(two.east)
    copying.copy(two.east.ledger, two.west.ledger, "acme", since=ahead if is_known else None)
    moved = contents(two.west)
    assert {name: sorted(rows) for name, rows in moved.items()} == {name: sorted(rows) for name, rows in before.items()}
    assert two.west.scalar(
        "SELECT bool_and(ids = sorted) FROM (SELECT array_agg(id ORDER BY at, id) AS ids, array_agg(id ORDER BY id)"
        " AS sorted FROM event WHERE xid = 0 GROUP BY job_id) AS each"
    ), "a job's events keep their order"


def test_a_job_that_goes_on_is_copied_though_its_time_has_as_many_rows_as_was_copied_ahead(two: Two) -> None:
    tenant_rows.close(two.west.ledger, "acme")
    waiting, gone = (UUID(int=number) for number in (1, 2))
    for job_id in (waiting, gone):
        two.east.accept(tier=None, id=job_id)
    two.east.execute("DELETE FROM audit WHERE job_id IS NOT NULL")  # the trail is kept for a shorter time
    two.east.execute("UPDATE job SET state = 'cancelled', ended_at = now() WHERE id = :id", id=gone)
    ahead = copying.copy(two.east.ledger, two.west.ledger, "acme", is_ahead=True)
    for table, column in (("event", "job_id"), ("job", "id")):
        two.east.execute(f"DELETE FROM {table} WHERE {column} = :id", id=gone)
    tenant_rows.close(two.east.ledger, "acme")
    copying.copy(two.east.ledger, two.west.ledger, "acme", since=ahead)
    assert two.west.execute_scalars("SELECT id FROM job WHERE id::text LIKE '00000000%'") == [waiting]


@pytest.mark.parametrize("is_known", [True, False], ids=["in one go", "after a crash"])
def test_what_was_copied_ahead_and_did_not_change_is_not_copied_again(two: Two, *, is_known: bool) -> None:
    for _ in range(5):
        two.east.end(two.east.claim(two.east.accept(tier=None)), State.ANSWERED, Reason.DONE)
    two.east.execute("UPDATE job SET ended_at = ended_at - interval '1 day' WHERE ended_at IS NOT NULL")
    tenant_rows.close(two.west.ledger, "acme")
    ahead = copying.copy(two.east.ledger, two.west.ledger, "acme", is_ahead=True)
    kept = two.west.execute_scalars("SELECT ctid::text || id FROM job ORDER BY id")
    assert len(kept) >= 5
    tenant_rows.close(two.east.ledger, "acme")
    copying.copy(two.east.ledger, two.west.ledger, "acme", since=ahead if is_known else None)
    assert set(kept) <= set(two.west.execute_scalars("SELECT ctid::text || id FROM job ORDER BY id"))


def test_a_stream_that_resumes_in_the_new_cell_misses_nothing(two: Two) -> None:
    last = two.east.scalar("SELECT max(id) FROM event")
    move_tenant(two.directory, "acme", "west", timing=NOW)
    two.west.accept(tier=None)
    assert two.west.scalar("SELECT min(id) FROM event WHERE tenant = 'acme'") > last


def test_other_tenants_go_on_while_one_is_closed_and_nothing_is_left_when_none_is(two: Two) -> None:
    triggers = "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal"
    assert two.east.scalar(triggers) == 0
    tenant_rows.close(two.east.ledger, "acme")
    two.east.accept(tenant="neighbour", tier=None, site_id=None)
    with pytest.raises(OperationalError, match=tenant_rows.TENANT_CLOSED):
        two.east.accept(tier=None)
    tenant_rows.close(two.east.ledger, "neighbour")
    tenant_rows.open_again(two.east.ledger, "acme")
    with pytest.raises(OperationalError, match=tenant_rows.TENANT_CLOSED):
        two.east.accept(tenant="neighbour", tier=None, site_id=None)
    two.east.accept(tier=None)
    tenant_rows.open_again(two.east.ledger, "neighbour")
    assert two.east.scalar(triggers) == 0


def test_a_dispatcher_goes_on_with_the_jobs_of_others_while_one_tenant_is_closed(two: Two) -> None:
    held = {"held_for": WaitReason.TIME, "held_until": datetime.now(UTC) + timedelta(hours=1)}
    jobs = [two.east.accept(tenant=name, tier=None, site_id=None, **held) for name in ("acme", "neighbour")]
    two.east.execute("UPDATE job SET held_until = now() - interval '1 second' WHERE held_until IS NOT NULL")
    message = JobMessage(job_id=two.east.accept(tier=None), fence=0)
    tenant_rows.pause(two.east.ledger, "acme")
    tenant_rows.close(two.east.ledger, "acme")
    with two.east.ledger.begin() as session:
        release_due(session)
    assert [two.east.job(job_id).held_for for job_id in jobs] == ["time", None]
    assert claim(two.east.ledger, message, queue=QueueName.ANSWER, worker="w", policy=two.east.policy) is None
    with two.east.ledger.begin() as session, pytest.raises(OperationalError, match=tenant_rows.TENANT_CLOSED):
        session.execute(text("UPDATE job SET cancel_requested_at = now() WHERE id = :id"), {"id": jobs[0]})


def test_messages_to_others_are_sent_while_one_tenant_is_closed(two: Two) -> None:
    add_run(two.east, two.roots["east"], tenant="neighbour")
    for name in ("acme", "neighbour"):
        two.east.end(two.east.claim(two.east.accept(tenant=name, tier=None, site_id=None)), State.ANSWERED, Reason.DONE)
    two.east.execute("UPDATE notification SET callback_url = 'https://x.example', next_at = now()")
    two.east.execute("UPDATE ticket_note SET next_at = now() - interval '1 s'")
    two.east.execute("UPDATE ticket_note SET next_at = now() - interval '2 s' WHERE run_id = :id", id=two.run_id)
    note = "SELECT next_at FROM ticket_note WHERE run_id = :id"
    next_at = two.east.scalar(note, id=two.run_id)
    tenant_rows.close(two.east.ledger, "acme")
    writer = TicketWriter(two.east.ledger, AccountsConfig())
    with two.east.ledger.begin() as session:
        assert [due.tenant for due in claim_due_notifications(session, 9, per_tenant=5)] == ["neighbour"]
    assert [writer.deliver_due(limit=1) for _ in range(2)] == [1, 0], "the neighbour's, which is younger"
    assert two.east.scalar(note, id=two.run_id) == next_at
    tenant_rows.open_again(two.east.ledger, "acme")
    with two.east.ledger.begin() as session:
        assert {due.tenant for due in claim_due_notifications(session, 9, per_tenant=5)} == {"acme"}
    assert writer.deliver_due(limit=1) == 1
    assert two.east.scalar(note, id=two.run_id) != next_at


def test_a_job_at_work_is_waited_for_then_handed_back_and_its_move_goes_on_when_asked_again(two: Two) -> None:
    claimed = two.east.claim(two.east.accept(tier=None))
    with pytest.raises(CellError, match="still at work"):
        move_tenant(two.directory, "acme", "west", timing=Timing(drain=0.0, let_go=0.3, lease=0.0))
    assert two.east.scalar("SELECT count(*) FROM attempt WHERE lost_cause = 'worker_stopped'") == 1
    two.east.end(claimed, State.ANSWERED, Reason.DONE)
    move_tenant(two.directory, "acme", "west", timing=NOW)
    assert two.west.job(claimed.job.id).state == State.ANSWERED


def stop(two: Two, step: Step) -> None:
    """Begin acme's move, and break it off after a step."""

    def raise_at(made: object) -> None:
        if getattr(made, "step", None) is step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        move_tenant(two.directory, "acme", "west", timing=NOW, told=raise_at)


@pytest.mark.parametrize(
    ("step", "end", "cell"),
    [(Step.FROZEN, "move", "west"), (Step.OPENED, "move", "east"), (Step.COPIED, "abort", "west")],
)
def test_a_path_that_leads_to_the_other_cells_workspaces_is_noticed_however_far_the_move_has_come(
    two: Two, step: Step, end: str, cell: str
) -> None:
    def go_on() -> None:
        if end == "abort":
            abort_move(two.directory, "acme")
        else:
            move_tenant(two.directory, "acme", "west", timing=NOW)

    files = two.files_of_run("east")
    stop(two, step)
    record = two.directory.cell(cell)
    other = two.roots["east" if cell == "west" else "west"]
    for wrong in (other, other / "not-mounted"):
        two.directory.add_cell(record._replace(runs_root=str(wrong)))
        with pytest.raises(CellError, match=f"are not those of cell '{cell}'"):
            go_on()
    assert files in (two.files_of_run("east"), two.files_of_run("west"))
    assert not (other / "not-mounted").exists()
    two.directory.add_cell(record)
    go_on()
    left, gone = ("east", "west") if end == "abort" else ("west", "east")
    assert (two.files_of_run(left), two.files_of_run(gone)) == (files, {})


def test_a_store_of_another_ledger_is_noticed_when_a_move_goes_on(two: Two) -> None:
    stop(two, Step.FROZEN)
    record = two.directory.cell("west")
    two.directory.add_cell(record._replace(content_store=two.directory.cell("east").content_store))
    with pytest.raises(CellError, match="content store of cell 'west'"):
        move_tenant(two.directory, "acme", "west", timing=NOW)
    two.directory.add_cell(record)
    move_tenant(two.directory, "acme", "west", timing=NOW)
    assert two.stores["west"].get(two.kept) == b"<h1>Bread</h1>"


@pytest.mark.parametrize("error", [OSError, CellError])
def test_a_tenant_goes_on_where_it_is_if_what_it_has_cannot_be_looked_at(
    two: Two, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    checks = iter([None, error("workspace", "acme", "1", "/")])

    def check(*places: object) -> None:
        if (raised := next(checks)) is not None:
            raise raised

    monkeypatch.setattr(move, "_check_workspaces", check)
    with pytest.raises(error):
        move_tenant(two.directory, "acme", "west", timing=NOW)
    two.east.accept(tier=None)


def test_a_move_is_given_up_after_what_was_copied_ahead(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    before, files = two.fingerprint(two.east), two.files_of_run("east")

    def copy_and_stop(*places: Any, **chosen: Any) -> None:
        assert whole_copy(*places, **chosen).rows
        raise KeyboardInterrupt

    whole_copy = copying.copy
    monkeypatch.setattr(copying, "copy", copy_and_stop)
    with pytest.raises(KeyboardInterrupt):
        move_tenant(two.directory, "acme", "west", timing=NOW)
    assert two.files_of_run("west") == files
    abort_move(two.directory, "acme")
    assert (two.files_of_run("east"), two.files_of_run("west")) == (files, {})
    assert two.fingerprint(two.east) == before
    assert set(two.fingerprint(two.west, without=("audit",)).values()) == {0}
    two.east.accept(tier=None)


def test_a_move_can_be_given_up_until_it_has_switched(two: Two) -> None:
    before = two.fingerprint(two.east)

    files = two.files_of_run("east")
    for step in (Step.FROZEN, Step.COPIED):
        stop(two, step)
        abort_move(two.directory, "acme")
        assert (two.files_of_run("east"), two.files_of_run("west")) == (files, {})
        assert two.fingerprint(two.east) == before
        assert set(two.fingerprint(two.west, without=("audit",)).values()) == {0}
        two.east.accept(tier=None)
        before = two.fingerprint(two.east)
    stop(two, Step.SWITCHED)
    with pytest.raises(CellError, match="has been moved already"):
        abort_move(two.directory, "acme")
    move_tenant(two.directory, "acme", "west", timing=NOW)
    assert two.fingerprint(two.west) == before
    two.west.end(two.west.claim(two.west.accept(tier=None)), State.ANSWERED, Reason.DONE)
    before = two.fingerprint(two.west)
    two.check_books()
    move_tenant(two.directory, "acme", "east", timing=NOW)
    assert two.fingerprint(two.east) == before
    two.check_books()


def test_audit_rows_of_a_tenant_that_comes_back_are_there_once_sealed_or_not(two: Two) -> None:
    trail = "SELECT count(*) FROM audit WHERE tenant = 'acme' AND action NOT LIKE 'tenant_moved%'"
    before = two.east.scalar(trail)
    two.east.execute("UPDATE audit SET sealed_in = 1 WHERE seq IN (SELECT max(seq) FROM audit WHERE tenant = 'acme')")
    move_tenant(two.directory, "acme", "west", timing=NOW)
    two.west.execute("UPDATE audit SET sealed_in = 1 WHERE seq IN (SELECT max(seq) FROM audit)")
    move_tenant(two.directory, "acme", "east", timing=NOW)
    assert two.east.scalar(trail) == two.west.scalar(trail) == before


def test_one_process_moves_a_tenant_at_a_time_however_long_that_takes(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.cells.directory._LEAVING_SECONDS", 0.0)
    monkeypatch.setattr("ledger.store.IDLE_SESSION_TIMEOUT_MS", 100)
    two.directory.close()  # its connections have the time limit of before
    directory = Directory(two.directory_url)
    with directory.moving("acme"):
        directory.places()
        wait_until(lambda: not unused(two, "idle"), seconds=10, what="the server has closed what nobody uses")
        with pytest.raises(CellError, match="moved by another process"):
            move_tenant(two.directory, "acme", "west", timing=NOW)
        assert unused(two, "idle", locks=1), "a server ends a transaction that does nothing, and its lock with it"
    directory.close()


def unused(two: Two, state: str, *, locks: int = 0) -> list[Any]:
    """Return the directory's connections in a state that have so many advisory locks."""
    return two.east.execute_scalars(
        "SELECT pid FROM pg_stat_activity AS each WHERE application_name = 'pointsman-directory'"
        f" AND datname = '{make_url(two.directory_url).database}' AND state = '{state}'"
        f" AND {locks} = (SELECT count(*) FROM pg_locks WHERE pid = each.pid AND locktype = 'advisory')"
    )


def killed_at(url: str, owner: object, name: str, when: str, step: Step | None) -> bool:
    """Move acme in a process that is killed before or after it calls a function; False if it came to its end."""
    child = os.fork()
    if not child:
        function = getattr(owner, name)

        def die(*args: Any, **keywords: Any) -> Any:
            if step is not None and args[-1] is not step:
                return function(*args, **keywords)
            if when == "after":
                function(*args, **keywords)
            return os.kill(os.getpid(), signal.SIGKILL)

        setattr(owner, name, die)
        try:
            move_tenant(Directory(url), "acme", "west", timing=NOW)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_a_move_that_is_killed_at_every_step_in_turn_goes_on(two: Two) -> None:
    before, files = two.fingerprint(two.east), two.files_of_run("east")
    points: list[tuple[object, str, str, Step | None]] = [
        (Directory, "begin_move", "after", None),
        (tenant_rows, "close", "after", None),
        (Disk, "settle_file", "before", None),
        (Disk, "settle_file", "after", None),
        (copies, "_copy_file", "after", None),
        (move, "copy_workspace", "after", None),
        (copying, "_make_equal", "before", None),
        (copying, "_make_equal", "after", None),
        (copying, "copy", "after", None),
        (tenant_rows, "pause", "after", None),
        (Directory, "advance", "before", Step.FROZEN),
        (Directory, "advance", "after", Step.FROZEN),
        (move, "copy_workspace", "before", None),
        (move, "copy_workspace", "after", None),
        (copying, "_make_equal", "after", None),
        (copying, "copy", "after", None),
        (Directory, "advance", "after", Step.COPIED),
        (Directory, "advance", "before", Step.SWITCHED),
        (Directory, "advance", "after", Step.SWITCHED),
        (tenant_rows, "open_again", "after", None),
        (tenant_rows, "resume", "after", None),
        (Directory, "advance", "after", Step.OPENED),
        (move, "remove_workspace", "before", None),
        (shutil, "rmtree", "before", None),
        (move, "remove_workspace", "after", None),
        (copying, "clear", "before", None),
        (copying, "clear", "after", None),
        (Directory, "end_move", "before", None),
    ]
    for point in points:
        assert killed_at(two.directory_url, *point), point
    move_tenant(two.directory, "acme", "west", timing=NOW)
    assert two.fingerprint(two.west) == before
    assert (two.files_of_run("west"), two.files_of_run("east")) == (files, {})
    assert not [path for root in two.roots.values() for path in root.glob(".*")], "no draft is left"
    assert set(two.fingerprint(two.east, without=("tenant", "api_key", "audit")).values()) == {0}
    assert two.west.scalar("SELECT paused_at FROM tenant WHERE name = 'acme'") is None
    two.west.accept(tier=None)


@pytest.fixture
def brokers(valkey: Valkey, tmp_path: Path) -> Iterator[tuple[str, str]]:
    valkey.flush()
    with Valkey(tmp_path) as other:
        yield valkey.url, other.url


def test_a_celery_message_is_forwarded_to_the_cell_of_its_tenant_and_waits_while_that_moves(
    two: Two, brokers: tuple[str, str]
) -> None:
    def take(fleet: Fleet, name: str, url: str) -> int:
        lists, forwarder = IntakeLists(url), Forwarder(two.directory, cell=name, broker_url=url, tls={})
        app = create_app("redis://127.0.0.1:1/0")
        submitter = Submitter(fleet.ledger, Publisher(app), fleet.policy)
        read = CeleryIntake(lists, fleet.ledger, submitter, holder="x", forward=forwarder).submit_waiting()
        forwarder.hand_over()
        for each in (forwarder, lists, app):
            each.close()
        return read

    def send(job_id: UUID, url: str, *, expires: datetime | None = None) -> None:
        client = Celery("client", broker=url)
        fields = {"tenant": "acme", "prompt": "What is a proxy?"}
        client.send_task("pointsman.submit", kwargs=fields, task_id=str(job_id), queue="intake", expires=expires)
        client.close()

    for name, url in zip(("east", "west"), brokers, strict=True):
        two.directory.add_cell(two.directory.cell(name)._replace(broker_url=url))
    jobs = [uuid4() for _ in range(3)]
    send(jobs[0], brokers[1])  # to a cell that never had the tenant
    assert [take(two.west, "west", brokers[1]), take(two.east, "east", brokers[0])] == [1, 1]
    assert two.east.job(jobs[0]).tenant == "acme"
    tenant_rows.close(two.east.ledger, "acme")
    send(jobs[1], brokers[0])
    send(jobs[2], brokers[0], expires=datetime(2020, 1, 1, tzinfo=UTC))  # its refusal waits, too
    assert [take(two.east, "east", brokers[0]) for _ in range(2 * MAX_TRIES + 2)] == [2] * (2 * MAX_TRIES + 2)
    tenant_rows.open_again(two.east.ledger, "acme")
    move_tenant(two.directory, "acme", "west", timing=NOW)
    for _ in range(2):  # the second time as after a crash before the removal
        send(jobs[1], brokers[0])
    assert [take(two.east, "east", brokers[0]), take(two.west, "west", brokers[1])] == [4, 4]
    assert [take(two.east, "east", brokers[0]), take(two.west, "west", brokers[1])] == [0, 0]
    assert two.west.scalar("SELECT count(*) FROM job WHERE id = :id", id=jobs[1]) == 1
    assert two.west.job(jobs[2]).state == "rejected"
    assert two.east.scalar("SELECT count(*) FROM job WHERE tenant = 'acme'") == 0


def test_only_one_message_of_many_waits_for_a_cell_whose_broker_does_not_answer(
    two: Two, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "open_broker", partial(open_broker, timeout_seconds=0.5))
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        closing(Forwarder(two.directory, cell="west", broker_url=valkey.url, tls={})) as forwarder,
    ):
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        two.directory.add_cell(two.directory.cell("east")._replace(broker_url=url))
        started = time.monotonic()
        for number in range(10):
            assert forwarder("acme", "intake", b"%d" % number)
            forwarder.hand_over()
        assert 0.5 <= time.monotonic() - started < 2


def test_a_message_is_handed_over_again_when_the_other_cells_broker_has_lost_it(
    two: Two, brokers: tuple[str, str]
) -> None:
    two.directory.add_cell(two.directory.cell("east")._replace(broker_url=brokers[0]))
    with (
        open_broker(brokers[0]) as east,
        open_broker(brokers[1]) as west,
        closing(Forwarder(two.directory, cell="west", broker_url=brokers[1], tls={})) as forwarder,
    ):
        assert forwarder("acme", "intake", b"{}")
        for _ in range(3):
            forwarder.hand_over()
        assert east.lrange("intake", 0, -1) == [b"{}"], "once, however often it is looked for"
        east.flushall()  # what it had in memory died with it
        forwarder.hand_over()
        assert east.rpop("intake") == b"{}"
        forwarder.hand_over()
        assert (east.keys(), west.keys()) == ([], [])


def test_what_an_earlier_process_has_set_aside_is_handed_over(two: Two, brokers: tuple[str, str]) -> None:
    two.directory.add_cell(two.directory.cell("east")._replace(broker_url=brokers[0]))
    two.directory.add_cell(two.directory.cell("east")._replace(name="north", broker_url="redis://127.0.0.1:1/0"))
    two.directory.claim("nora", cell="north")
    for tenant in ("acme", "nora"):  # each by a process that has set aside this one alone
        with closing(Forwarder(two.directory, cell="west", broker_url=brokers[1], tls={})) as forwarder:
            assert forwarder(tenant, "intake", b"{}")
            if tenant == "nora":
                forwarder.hand_over()
    with open_broker(brokers[0]) as east:
        assert east.lrange("intake", 0, -1) == [b"{}"]


def test_no_sweep_of_the_new_cell_takes_a_file_that_was_there_before_and_comes_again(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert two.stores["west"].put(b"<h1>Bread</h1>") == two.kept
    (left,) = two.stores["west"].root.rglob(two.kept)
    os.utime(left, (0, 0))  # as of a move that was given up
    copy = copying.copy

    def sweep_then_copy(origin: Ledger, target: Ledger, *args: Any, **options: Any) -> Any:
        if not options.get("is_ahead"):
            collect_garbage(target, two.stores["west"], two.west.policy)
        return copy(origin, target, *args, **options)

    monkeypatch.setattr(copying, "copy", sweep_then_copy)
    move_tenant(two.directory, "acme", "west", timing=NOW)
    assert two.stores["west"].get(two.kept) == b"<h1>Bread</h1>"


def test_what_could_not_be_moved_is_refused_before_anything_is_done(two: Two) -> None:
    two.stores["west"].blobs.own("another ledger", takes_over=True)
    with pytest.raises(CellError, match="store of cell 'west' is not that of its ledger"):
        move_tenant(two.directory, "acme", "west", timing=NOW)
    assert two.directory.move_of("acme") is None
    with pytest.raises(CellError, match="belongs to cell 'east'"):
        two.directory.claim("acme", cell="west")
