"""A backup that is made under load is one moment of ledger and content store, and what is restored from it goes on."""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import obstore
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from ledger.attempts import lock_owned_job
from ledger.audit import seal, verify
from ledger.errors import DumpError, FencedError, SchemaMismatchError
from ledger.job_control import request_cancel
from ledger.jobs import lock_job
from ledger.operations.leaders import lead, leaders
from ledger.operations.migrate import find_program, is_empty, open_snapshot, write_dump
from ledger.operations.partitions import SPAN, _begin, _provide
from ledger.releases import kept_releases
from ledger.store import Ledger, create_ledger_engine
from ledger.tables import Release, Site
from monitoring.event_metrics import fold_pending
from producers import backup as backup_module
from producers.backup import BLOBS, DUMP, FENCE_JUMP, MANIFEST, Restored, back_up, read_backup, restore
from producers.cli import app
from producers.dispatch import housekeeping
from producers.dispatch.file_lease import BACKUP, SWEEPER, FileLease
from producers.dispatch.housekeeping import collect_garbage
from producers.errors import FileLeaseLostError, InstallationError
from routing.jobs import State
from routing.policy.platform import Retention
from sites.content_store import ContentStore, open_content_store
from sites.object_blobs import open_store
from sites.releases import manifest_of, manifest_of_dict, site_key
from tests.factories import Shop
from tests.integration.jobs.test_lifecycle import HOME, Rig, change
from tests.integration.monitoring.driving import Fleet
from tests.object_server import ObjectServer, place_at
from tests.services import Postgres, wait_until
from workers.attempt import Attempt
from workers.outcomes import Candidate, Outcome

KEY = b"a-signing-key-of-this-test"
ENVIRONMENT: dict[str, str] = {}
SWEEP_ALL = Retention.model_construct(releases=1, days=0, draft_hours=0)
"""Sweeps give up at once what no policy may give up so soon."""
YOUNG_SECONDS = 10
"""What was stored in the last seconds may belong to a release that is being made."""


@pytest.fixture
def origin(shop: Shop, tmp_path: Path) -> Rig:
    """A ledger and a content store with a site, and with whatever a test does to them."""
    return Rig(shop, ContentStore(tmp_path / "content-store"))


@pytest.fixture
def target(postgres: Postgres, tmp_path: Path) -> Iterator[Rig]:
    """An empty database and an empty content store."""
    with postgres.database(template="template1") as url:
        shop = Shop(Ledger(create_ledger_engine(url, pool_size=4)), url=url)
        yield Rig(shop, ContentStore(tmp_path / "restored"))
        shop.ledger.close()


def take_backup(rig: Rig, to: Path) -> Path:
    back_up(rig.shop.ledger, rig.shop.url, rig.content_store, to, environment=ENVIRONMENT)
    return to


def bring_back(rig: Rig, source: Path, **options: Any) -> Restored:
    return restore(
        rig.shop.ledger, rig.shop.url, rig.content_store, source, environment=ENVIRONMENT, signing_key=KEY, **options
    )


def says(words: str) -> Callable[[Attempt], Outcome]:
    page = HOME.replace(b"Bread", words.encode())
    return lambda attempt: Candidate(files={"index.html": page, f"{words}.txt": words.encode()}, summary=words)


def publish(rig: Rig, site_id: UUID, words: str) -> None:
    job_id = rig.shop.accept(site_id=site_id, prompt=words)
    rig.run(job_id, says(words))
    rig.shop.approve(job_id)
    assert rig.publish(job_id).state == "published"


def settle(rig: Rig) -> None:
    """End what was under way at the moment of the backup: it holds its site until then, in the restored past too."""
    for job_id, state in rig.shop.rows("SELECT id, state FROM job WHERE ended_at IS NULL"):
        if state == State.PUBLISHING:
            assert rig.publish(job_id).state == "published"
            continue
        with rig.shop.ledger.begin() as session:
            request_cancel(session, lock_job(session, job_id), actor="owner")


def releases(rig: Rig) -> dict[UUID, dict[str, bytes]]:
    """Every release that the ledger says still has its files, byte for byte."""
    with rig.shop.ledger.begin() as session:
        kept = [(each.id, each.manifest) for each in kept_releases(session)]
    return {release_id: rig.content_store.read_tree(manifest_of_dict(manifest)) for release_id, manifest in kept}


# ------------------------------------------------------------------------------------------------------ consistency


@contextmanager
def in_background(*works: Callable[[], None]) -> Iterator[list[int]]:
    """Do these again and again meanwhile; counts rounds, and fails the test if one of them fails."""
    stopping, rounds, errors = threading.Event(), [0] * len(works), list[BaseException]()

    def repeat(number: int, work: Callable[[], None]) -> None:
        try:
            while not stopping.is_set():
                work()
                rounds[number] += 1
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=each) for each in enumerate(works)]
    for thread in threads:
        thread.start()
    try:
        yield rounds
    finally:
        stopping.set()
        for thread in threads:
            thread.join(30)
    assert errors == []


@pytest.mark.slow
def test_a_backup_amid_publishes_and_sweeps_restores_to_one_moment_and_goes_on(
    origin: Rig, target: Rig, tmp_path: Path
) -> None:
    site_id, other_id = origin.site("shop"), origin.site("other")
    publish(origin, other_id, "untouched")
    for number in range(3):
        publish(origin, site_id, f"old{number}")
    for path in (origin.content_store.root / "blobs").glob("*/*"):
        os.utime(path, (0, 0))
    words = iter(f"version{number}" for number in range(10_000))
    eager = origin.shop.policy.model_copy(update={"retention": SWEEP_ALL})

    def sweep() -> None:
        collect_garbage(origin.shop.ledger, origin.content_store, eager, clock=lambda: time.time() - YOUNG_SECONDS)

    with in_background(lambda: publish(origin, site_id, next(words)), sweep) as rounds:
        wait_until(lambda: min(rounds) >= 2, seconds=60, what="publishes and sweeps are under way")
        source = take_backup(origin, tmp_path / "backup")
        done = list(rounds)
        wait_until(
            lambda: all(now > then for now, then in zip(rounds, done, strict=True)),
            seconds=60,
            what="neither was stopped for good",
        )
    bring_back(target, source)
    found = releases(target)
    assert found, "every release that the restored ledger names can be read, whole"
    assert target.shown(other_id)["untouched.txt"] == b"untouched"
    with target.shop.ledger.begin() as session:
        for site in (session.get_one(Site, site_id), session.get_one(Site, other_id)):
            release = session.get_one(Release, site.active_release_id)
            assert target.content_store.shows(site_key(site), manifest_of(release), release_id=str(release.id))
    settle(target)
    publish(target, site_id, "after")
    assert target.shown(site_id)["after.txt"] == b"after"


def test_a_sweep_waits_for_a_backup_that_copies(
    origin: Rig, target: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site_id = origin.site()
    for number in range(3):
        publish(origin, site_id, f"version{number}")
    before = releases(origin)
    eager = origin.shop.policy.model_copy(update={"retention": SWEEP_ALL})
    sweeping = threading.Thread(
        target=collect_garbage,
        args=(origin.shop.ledger, origin.content_store, eager),
        kwargs={"clock": lambda: time.time() + 5},
    )
    copy = backup_module._copy

    def copy_beside_a_sweep(*arguments: Any) -> Any:
        sweeping.start()  # after the moment was chosen: the ledger gives up releases that the backup names
        marked = "SELECT count(*) FROM release WHERE swept_at IS NOT NULL"
        wait_until(lambda: origin.shop.scalar(marked), seconds=10, what="the ledger gives releases up")
        return copy(*arguments)

    monkeypatch.setattr(backup_module, "_copy", copy_beside_a_sweep)
    source = take_backup(origin, tmp_path / "backup")
    sweeping.join(10)
    assert len(releases(origin)) < len(before), "it was swept as soon as the backup was done"
    bring_back(target, source)
    assert releases(target) == before


def test_a_backup_whose_lease_lapsed_says_so_and_is_none(
    origin: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(origin, origin.site(), "hello")
    copy = backup_module._copy

    def copy_and_stand_still(*arguments: Any) -> Any:
        copied = copy(*arguments)
        monkeypatch.setattr(FileLease, "_lead", lambda self: False)
        wait_until(lambda: BACKUP not in held(), seconds=10, what="the lease lapses")
        return copied

    def held() -> set[str]:
        with origin.shop.ledger.begin() as session:
            return set(leaders(session))

    monkeypatch.setattr(FileLease.__init__, "__defaults__", (0.5, lambda: None))
    monkeypatch.setattr(backup_module, "_copy", copy_and_stand_still)
    with pytest.raises(FileLeaseLostError, match="backup could not be renewed"):
        take_backup(origin, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_a_backup_that_waits_for_another_says_so(origin: Rig, tmp_path: Path) -> None:
    publish(origin, origin.site(), "hello")
    told: list[str] = []
    shop = origin.shop
    waiting = threading.Thread(
        target=back_up,
        args=(shop.ledger, shop.url, origin.content_store, tmp_path / "backup"),
        kwargs={"environment": ENVIRONMENT, "progress": told.append},
    )
    with FileLease(shop.ledger, BACKUP):
        waiting.start()
        wait_until(lambda: told, seconds=10, what="it says why it waits")
        assert told == ["another backup is under way; waiting for its end"]
    waiting.join(20)
    assert (tmp_path / "backup" / "manifest.json").exists()


def test_a_backup_does_not_wait_for_a_sweep_and_a_sweep_that_died_is_followed_by_another(
    origin: Rig, tmp_path: Path
) -> None:
    publish(origin, origin.site(), "hello")
    with FileLease(origin.shop.ledger, SWEEPER):
        take_backup(origin, tmp_path / "backup")
    with origin.shop.ledger.begin() as session:
        assert lead(session, SWEEPER, "a process that died", seconds=0.5)
    collect_garbage(origin.shop.ledger, origin.content_store, origin.shop.policy)
    with origin.shop.ledger.begin() as session:
        assert not {SWEEPER, BACKUP} & set(leaders(session))


def test_a_sweep_reads_what_is_kept_again_after_a_backup_that_began_while_it_read(
    origin: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(origin, origin.site(), "hello")
    shop, read, readings = origin.shop, housekeeping._kept, list[Any]()
    sweep = threading.Thread(target=collect_garbage, args=(shop.ledger, origin.content_store, shop.policy))
    with ExitStack() as backup:

        def read_as_a_backup_begins(*arguments: Any) -> Any:
            readings.append(read(*arguments))
            if len(readings) == 1:
                backup.enter_context(FileLease(shop.ledger, BACKUP))
            return readings[-1]

        monkeypatch.setattr(housekeeping, "_kept", read_as_a_backup_begins)
        sweep.start()
        wait_until(lambda: readings, seconds=10, what="it has read once")
        sweep.join(1)
        assert sweep.is_alive(), "it waits for the backup"
    sweep.join(10)
    assert (sweep.is_alive(), len(readings)) == (False, 2)


def test_a_lease_outlives_its_seconds_as_long_as_it_is_held(origin: Rig) -> None:
    with FileLease(origin.shop.ledger, SWEEPER, seconds=0.4) as lease:
        began = time.monotonic()
        wait_until(lambda: time.monotonic() > began + 1, seconds=5, what="it was renewed")
        lease.check()
        with origin.shop.ledger.begin() as session:
            assert not lead(session, SWEEPER, "another", seconds=1)


def test_a_backup_of_a_disk_is_restored_into_an_object_store_and_back(
    origin: Rig, target: Rig, tmp_path: Path, object_server: ObjectServer, postgres: Postgres
) -> None:
    site_id = origin.site("shop")
    publish(origin, site_id, "hello")
    before = releases(origin)
    config = place_at(object_server.endpoint, tmp_path / "host", prefix="restored")
    target = Rig(target.shop, open_content_store(config))
    bring_back(target, take_backup(origin, tmp_path / "backup"))
    shutil.rmtree(tmp_path / "host")
    assert releases(target) == before
    publish(target, site_id, "after")
    after = releases(target)
    assert len(after) == len(before) + 1
    with pytest.raises(InstallationError, match="not empty"):
        bring_back(target, tmp_path / "backup")
    bucket = open_store(config)
    for blob in list(target.content_store.blobs.list()):  # damage behind this host's cache
        obstore.put(bucket, blob.key, b"x" * blob.size)
    back = take_backup(target, tmp_path / "again")
    assert read_backup(back).damaged == ()
    shutil.rmtree(tmp_path / "host")
    assert releases(target) == after, "it has mended what it found"
    origin = Rig(origin.shop, ContentStore(tmp_path / "third"))
    postgres.leave(origin.shop.url)
    bring_back(origin, back, is_forced=True)
    assert releases(origin) == after


# ---------------------------------------------------------------------------------------------------------- repairs


@pytest.fixture
def busy(origin: Rig) -> dict[str, Any]:
    """Work in every stage at the moment of the backup."""
    shop = origin.shop
    shop.tenant("acme", provider="fake")
    fleet = Fleet(shop.ledger, shop.url, site_id=origin.site("other"))
    running = shop.claim(shop.accept(site_id=origin.site("busy")))
    fleet.open_call(running)
    offered = shop.accept(site_id=origin.site("offered"))
    origin.run(offered, change)
    approved = shop.accept(site_id=origin.site("approved"))
    origin.run(approved, change)
    shop.approve(approved)
    pushed = shop.accept(site_id=origin.site("free"), is_pushed=True)
    told = shop.running(tier=None, callback_url="https://owner.example/hook")
    shop.end(told, State.ANSWERED)
    with shop.ledger.begin() as session:
        seal(session, signing_key=KEY)
    return {"running": running, "offered": offered, "approved": approved, "pushed": pushed, "told": told.job.id}


def test_a_restored_past_is_told_what_it_cannot_know(
    origin: Rig, target: Rig, busy: dict[str, Any], tmp_path: Path
) -> None:
    done = bring_back(target, take_backup(origin, tmp_path / "backup"))
    shop, lost = target.shop, busy["running"]
    assert done.audit_problems == ()
    assert done.repaired._replace(folded=0) == (1, 1, 1, 1, 0)
    assert shop.scalar("SELECT count(*) FROM attempt WHERE ended_at IS NULL") == 0
    assert shop.scalar("SELECT sum(reserved_nanousd) FROM cap") == 0
    assert shop.rows(
        "SELECT state, wasted FROM call, LATERAL (SELECT sum((data->>'wasted_nanousd')::bigint) AS wasted"
        " FROM event WHERE event.job_id = call.job_id) AS waste"
    )[0] == ("presumed", shop.scalar("SELECT sum(cost_nanousd) FROM call"))
    job = shop.job(lost.job.id)
    assert (job.state, job.waiting_since is not None) == ("queued", True), "it goes on, with another worker"
    assert (job.lost_attempts, job.held_for) == (0, None), "its worker was stopped; that is no crash of it"
    with pytest.raises(FencedError), shop.ledger.begin() as session:
        lock_owned_job(session, lost.attempt)
    assert shop.job(busy["pushed"]).pushed_at is None
    assert shop.rows("SELECT next_at, delivered_at FROM notification WHERE job_id = :id", id=busy["told"]) == [
        (None, None)
    ]
    (row,) = shop.rows("SELECT detail FROM audit WHERE action = 'restored'")
    assert row.detail["withheld"] == 1
    assert row.detail["audit_head"] == done.backup.audit_head
    with shop.ledger.begin() as session:
        seal(session, signing_key=KEY)
        assert verify(session, signing_key=KEY, expected_head=done.backup.audit_head).ok
    fold_pending(shop.ledger)  # transaction numbers of the other cluster do not stop it


def test_a_worker_of_the_lost_time_that_nobody_stopped_has_no_effect(
    origin: Rig, target: Rig, busy: dict[str, Any], tmp_path: Path
) -> None:
    source = take_backup(origin, tmp_path / "backup")
    zombie = origin.shop.claim(busy["pushed"])  # after the backup: the restored ledger knows nothing of this attempt
    bring_back(target, source)
    again = target.shop.claim(busy["pushed"])
    assert again.attempt.fence == zombie.attempt.fence + FENCE_JUMP
    with pytest.raises(FencedError), target.shop.ledger.begin() as session:
        lock_owned_job(session, zombie.attempt)
    with pytest.raises(FencedError), target.shop.ledger.begin() as session:
        lock_owned_job(session, busy["running"].attempt)


def test_jobs_of_every_stage_go_on_to_their_ends(
    origin: Rig, target: Rig, busy: dict[str, Any], tmp_path: Path
) -> None:
    bring_back(target, take_backup(origin, tmp_path / "backup"))
    shop = target.shop
    assert target.publish(busy["approved"]).state == "published"
    shop.approve(busy["offered"])
    assert target.publish(busy["offered"]).state == "published"
    for job_id in (busy["running"].job.id, busy["pushed"]):
        assert target.run(job_id, change).state == "awaiting_approval"
        shop.approve(job_id)
        assert target.publish(job_id).state == "published"
    assert shop.scalar("SELECT count(*) FROM site WHERE lock_job_id IS NOT NULL") == 0


def test_notifications_that_were_due_are_sent_again_when_asked_for(
    origin: Rig, target: Rig, busy: dict[str, Any], tmp_path: Path
) -> None:
    done = bring_back(target, take_backup(origin, tmp_path / "backup"), resend=True)
    assert done.repaired.withheld == 0
    assert target.shop.scalar("SELECT count(*) FROM notification WHERE next_at IS NOT NULL") == 1


# --------------------------------------------------------------------------------------------------------- refusals


@pytest.fixture
def source(origin: Rig, tmp_path: Path) -> Path:
    publish(origin, origin.site(), "one")
    return take_backup(origin, tmp_path / "backup")


def test_a_backup_is_never_written_over_and_is_there_whole_or_not_at_all(
    origin: Rig, source: Path, tmp_path: Path
) -> None:
    with pytest.raises(InstallationError, match="name a new directory"):
        take_backup(origin, source)
    with pytest.raises(DumpError, match="pg_dump failed"):
        back_up(
            origin.shop.ledger,
            origin.shop.url,
            origin.content_store,
            tmp_path / "other",
            environment={"PGOPTIONS": "-c no_such_setting=1"},
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "content-store"]


def edit(path: Path) -> None:
    data = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def edit_blob(source: Path) -> None:
    edit(next((source / BLOBS / "blobs").glob("*/*")))


def test_events_come_back_in_the_partitions_that_they_were_in(origin: Rig, target: Rig, tmp_path: Path) -> None:
    site_id = origin.site()
    publish(origin, site_id, "one")
    following = int(origin.shop.scalar("SELECT last_value FROM event_id_seq")) // SPAN + 1
    with origin.shop.ledger.begin() as session:
        _provide(session, following)
    _begin(origin.shop.ledger, following)
    publish(origin, site_id, "two")
    events = "SELECT tableoid::regclass::text, id, kind, job_id FROM event ORDER BY id"
    told = origin.shop.rows(events)
    assert len({row[0] for row in told}) == 2
    bring_back(target, take_backup(origin, tmp_path / "backup"))
    assert target.shop.rows(events)[: len(told)] == told
    publish(target, UUID(str(target.shop.scalar("SELECT id FROM site"))), "later")


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no manifest": (lambda source: (source / MANIFEST).unlink(), "not a backup, or an unfinished one"),
    "another manifest": (lambda source: edit(source / MANIFEST), "is invalid for this version"),
    "an edited ledger": (lambda source: edit(source / DUMP), "does not match the manifest"),
    "a missing file": (
        lambda source: next((source / BLOBS / "blobs").glob("*/*")).unlink(),
        "does not match the manifest",
    ),
    "an edited file": (edit_blob, "damaged: blob"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_backup_is_refused_before_anything_is_touched(
    source: Path, target: Rig, damage: str, tmp_path: Path
) -> None:
    harm, names = DAMAGES[damage]
    harm(source)
    with pytest.raises(InstallationError, match=names):
        bring_back(target, source)
    assert is_empty(target.shop.ledger.engine)
    assert not (tmp_path / "restored").exists()


def test_a_backup_of_a_newer_version_is_refused(source: Path, target: Rig) -> None:
    manifest = json.loads((source / MANIFEST).read_text())
    (source / MANIFEST).write_text(json.dumps(manifest | {"revision": "0199"}))
    with pytest.raises(SchemaMismatchError, match="upgrade"):
        bring_back(target, source)


def test_a_connection_that_is_just_going_does_not_keep_a_backup_from_being_restored(source: Path, target: Rig) -> None:
    leaving = psycopg.connect(target.shop.url)
    closer = threading.Timer(0.3, leaving.close)
    closer.start()
    bring_back(target, source)
    closer.join()
    assert not is_empty(target.shop.ledger.engine)


def test_a_target_that_holds_something_or_is_in_use_is_left_alone_unless_forced(source: Path, target: Rig) -> None:
    with (
        psycopg.connect(target.shop.url),
        pytest.raises(InstallationError, match=r"1 other connections.*stop every process"),
    ):
        bring_back(target, source, is_forced=True)
    bring_back(target, source)
    kept = releases(target)
    publish(target, UUID(str(target.shop.scalar("SELECT id FROM site"))), "later")
    with pytest.raises(InstallationError, match="not empty"):
        bring_back(target, source)
    assert len(releases(target)) == len(kept) + 1
    bring_back(target, source, is_forced=True)
    assert releases(target) == kept


def test_what_others_keep_in_the_database_is_not_in_the_way(origin: Rig, tmp_path: Path) -> None:
    """An operator's own objects beside the ledger's, one of them with the name of a table of ours."""
    publish(origin, origin.site(), "one")
    kept = releases(origin)
    origin.shop.execute("CREATE TABLE of_others (id serial PRIMARY KEY, at timestamptz UNIQUE)")
    origin.shop.execute("INSERT INTO of_others VALUES (1)")
    origin.shop.execute("CREATE FUNCTION job() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    origin.shop.execute("CREATE VIEW of_theirs AS SELECT id FROM of_others")
    origin.shop.execute("CREATE VIEW of_ours AS SELECT id FROM site")
    bring_back(origin, take_backup(origin, tmp_path / "backup"), is_forced=True)
    assert releases(origin) == kept
    assert origin.shop.scalar("SELECT count(*) FROM of_ours") == 1
    assert origin.shop.rows("SELECT id FROM of_others") == [(1,)]


def test_programs_reach_the_server_that_the_ledgers_own_connections_do(origin: Rig, tmp_path: Path) -> None:
    """An address of several hosts follows the primary by what it wants of a server."""
    elsewhere = make_conninfo(origin.shop.url, target_session_attrs="standby")
    with open_snapshot(origin.shop.url) as snapshot, pytest.raises(DumpError, match="standby"):
        write_dump(snapshot, elsewhere, tmp_path / "dump", environment=ENVIRONMENT)


def test_a_file_that_cannot_be_read_does_not_keep_the_others_out_of_a_backup(origin: Rig, tmp_path: Path) -> None:
    publish(origin, origin.site(), "one")
    path = next((origin.content_store.root / "blobs").glob("*/*"))
    path.unlink()
    path.mkdir()  # reading it fails, as of a bad block
    assert read_backup(take_backup(origin, tmp_path / "backup")).damaged == (path.name,)


def test_an_old_program_is_not_taken_for_a_newer_server() -> None:
    with pytest.raises(DumpError, match="no pg_dump of PostgreSQL 99 or newer"):
        find_program("pg_dump", at_least=99, environment={"PATH": "/usr/bin"})


# ------------------------------------------------------------------------------------------------------ the commands


def test_the_commands_back_up_and_restore(
    origin: Rig, target: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site_id = origin.site()
    publish(origin, site_id, "one")
    for name, value in {"AUDIT__SIGNING_KEY": KEY.decode(), "PREVIEW__KEYS": f'["{"k" * 32}"]'}.items():
        monkeypatch.setenv(f"POINTSMAN_{name}", value)

    def run(rig: Rig, *arguments: str) -> Any:
        monkeypatch.setenv("POINTSMAN_LEDGER__URL", rig.shop.url)
        monkeypatch.setenv("POINTSMAN_CONTENT_STORE__ROOT", str(rig.content_store.root))
        rig.shop.ledger.close()
        return CliRunner().invoke(app, arguments)

    made = run(origin, "backup", str(tmp_path / "b"), "--json")
    assert made.exit_code == 0, made.output
    manifest = json.loads(made.stdout)
    assert manifest["counts"]["jobs"] == 1
    assert "POINTSMAN_AUDIT__SIGNING_KEY" in manifest["keys"]
    for path in (tmp_path / "b").rglob("*"):
        assert not path.is_file() or KEY not in path.read_bytes()
    assert (tmp_path / "b").stat().st_mode & 0o077 == 0, "it holds what the tenants wrote"
    again = run(origin, "backup", str(tmp_path / "b"))
    assert (again.exit_code, "name a new directory" in again.stderr) == (1, True)
    done = run(target, "restore", str(tmp_path / "b"), "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["shown"] == 1
    assert target.shown(site_id)["one.txt"] == b"one"
    assert read_backup(tmp_path / "b").blobs == manifest["blobs"]
