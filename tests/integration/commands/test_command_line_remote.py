"""The command line with nothing but a URL and a key: no settings, ledger, broker or content store."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import select
from sqlmodel import col
from typer.testing import CliRunner, Result

from ledger.tables import Job, Release
from producers.api.app import create_server
from producers.cli import app
from producers.config import ApiConfig
from producers.local.supervisor import free_port, write_up_file
from sites.releases import manifest_of
from tests.integration.api.http_world import HOME, PAGES, World, shared_ledger, world, write_files
from tests.services import wait_until
from tests.unit.sites.test_archives import zipped
from workers.handlers.patch import patch_files

__all__ = ["shared_ledger", "world"]

Run = Callable[..., Result]


@pytest.fixture
def url(world: World) -> Iterator[str]:
    """A real server of the API."""
    port = free_port()
    server = create_server(world.app, config=ApiConfig(port=port))
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started, seconds=10, what="the API listens")
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call the command in an empty directory of an account that knows no installation."""
    monkeypatch.chdir(tmp_path)
    homes = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path)}

    def call(*arguments: object, input: str | None = None, **environment: str) -> Result:
        given = {**homes, **environment}
        return CliRunner().invoke(app, [*map(str, arguments)], input=input, env=given, prog_name="pointsman")

    return call


@pytest.fixture
def logged_in(run: Run, url: str, world: World) -> Run:
    assert run("login", url, input=world.key() + "\n").exit_code == 0
    return run


def offered(world: World, tmp_path: Path) -> UUID:
    """Return a job that waits for approval."""
    world.site("bakery", PAGES, tmp_path)
    job_id = world.submit(prompt="Change the hero heading to 'Cake'", site="bakery")
    world.offer(job_id, {**PAGES, "index.html": HOME.replace(b"Bread", b"Cake")})
    return job_id


def test_a_login_is_kept_for_this_account_alone_until_a_logout(
    run: Run, url: str, world: World, tmp_path: Path
) -> None:
    (tmp_path / "key.txt").write_text(world.key())
    assert run("--profile", "prod", "login", url, "--key-file", tmp_path / "key.txt").exit_code == 0
    path = tmp_path / "config" / "pointsman" / "profiles" / "prod.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run("jobs", "--json", POINTSMAN_PROFILE="prod").stdout == "[]\n"
    assert run("--profile", "prod", "logout").exit_code == 0
    gone = run("jobs", POINTSMAN_PROFILE="prod")
    assert (gone.exit_code, "no profile 'prod'" in gone.stderr) == (2, True)


@pytest.mark.parametrize(
    ("address", "key", "code", "message"),
    [
        ("{url}", "pmk_" + "x" * 43, 1, "refuses the key"),
        ("{url}/nowhere", "pmk_" + "x" * 43, 1, "no API answers there"),
        ("http://127.0.0.1:1", "pmk_k", 1, "no API answers there"),
        ("ftp://host", "pmk_k", 2, "the URL must be like"),
        ("https://me:secret@host", "pmk_k", 2, "the URL must be like"),
        ("{url}", "two words", 2, "the key must be"),
    ],
)
def test_what_is_no_server_or_no_key_is_said_and_not_kept(
    run: Run, url: str, tmp_path: Path, address: str, key: str, code: int, message: str
) -> None:
    done = run("login", address.format(url=url), input=key + "\n")
    assert (done.exit_code, message in done.stderr) == (code, True), done.output
    assert key not in done.output
    assert not (tmp_path / "config").exists()


def test_a_review_needs_nothing_but_a_login_and_is_audited_by_the_key_s_name(
    logged_in: Run, world: World, tmp_path: Path
) -> None:
    job_id = offered(world, tmp_path)
    short = str(job_id)[-8:]
    assert str(job_id) in logged_in("jobs", "--state", "awaiting_approval").stdout
    assert "+++ b/index.html" in logged_in("job", short, "--diff").stdout
    assert "passed" in logged_in("job", short, "--scan").stdout
    assert logged_in("watch", short, "--json").exit_code == 0
    shown = json.loads(logged_in("approve", short, "--json").stdout)
    assert (shown["id"], shown["state"]) == (str(job_id), "publishing")
    world.publish(job_id)
    assert logged_in("watch", short).exit_code == 0
    assert len(json.loads(logged_in("site", "releases", "bakery", "--json").stdout)) == 2
    assert logged_in("site", "export", "bakery", tmp_path / "out").exit_code == 0
    assert b"Cake" in (tmp_path / "out" / "index.html").read_bytes()
    assert logged_in("site", "rollback", "bakery").exit_code == 0
    with world.ledger.engine.connect() as connection:
        actors = connection.exec_driver_sql("SELECT actor FROM audit WHERE action = 'approved'").scalars().all()
    assert actors[-1].startswith(f"key:{world.tenant}/")


def test_an_approval_that_waits_is_undone_and_given_again(logged_in: Run, world: World, tmp_path: Path) -> None:
    short = str(offered(world, tmp_path))[-8:]
    assert "--undo-seconds" in logged_in("approve", short, "--undo-seconds", 61).stderr
    approved = logged_in("approve", short, "--undo-seconds", 60)
    assert (approved.exit_code, "publishing in 60 s" in approved.output) == (0, True), approved.output
    undone = json.loads(logged_in("undo", short, "--json").stdout)
    assert (undone["state"], undone["undo_until"]) == ("awaiting_approval", None)
    again = logged_in("undo", short)
    assert (again.exit_code, "is not undone" in again.stderr) == (1, True), again.output
    assert json.loads(logged_in("approve", short, "--json").stdout)["undo_until"] is None
    world.publish(UUID(undone["id"]))
    assert "the job is published" in logged_in("undo", short).stderr


def test_a_job_is_submitted_followed_and_cancelled(logged_in: Run, world: World, tmp_path: Path) -> None:
    made = json.loads(logged_in("submit", "What is bread?", "--json").stdout)
    assert (made["state"], made["waits_for"]) == ("queued", "queue answer, which is paused")
    (tmp_path / "jobs.jsonl").write_text('{"prompt": "pwd"}\n{"prompt": "", "typo": 1}\n')
    batch = logged_in("submit", "--batch", "jobs.jsonl")
    first, second = map(json.loads, batch.stdout.splitlines())
    assert (batch.exit_code, first["queue"]) == (1, "tools")
    assert "typo" in second["refused"]
    assert json.loads(logged_in("cancel", made["id"], "--json").stdout)["state"] == "cancelled"
    assert logged_in("watch", made["id"]).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("job", "6b1b1f0e"), 1, "no job's id begins or ends with 6b1b1f0e"),
        (("job", "6b1b1f0e-0000-4000-8000-000000000000"), 1, "`pointsman jobs` lists the jobs"),
        (("submit", "x", "--site", "nowhere"), 2, "site: "),
        (("jobs", "--tenant", "acme"), 2, "the key of profile default names the tenant"),
        (("queue", "pause", "spec"), 2, "acts on the installation itself"),
    ],
)
def test_an_error_is_one_line_or_one_object(
    logged_in: Run, arguments: tuple[str, ...], code: int, message: str
) -> None:
    said = logged_in(*arguments)
    assert (said.exit_code, message in said.stderr) == (code, True), said.output
    told = logged_in(*arguments, "--json")
    assert (told.exit_code, told.stdout, message in json.loads(told.stderr)["error"]) == (code, "", True)


def test_what_the_environment_says_is_stronger_than_a_login_and_a_login_than_a_running_up(
    logged_in: Run, run: Run, url: str, world: World, tmp_path: Path
) -> None:
    dead = {"POINTSMAN_URL": "http://127.0.0.1:1", "POINTSMAN_KEY": "k"}
    write_up_file({"XDG_STATE_HOME": str(tmp_path)}, dead)
    assert logged_in("jobs").exit_code == 0
    assert "cannot be reached" in logged_in("jobs", **dead).stderr
    assert logged_in("--profile", "default", "jobs", **dead).exit_code == 0
    assert "cannot be reached" in logged_in("--profile", "local", "jobs").stderr
    assert logged_in("jobs", POINTSMAN_URL=url).exit_code == 2


def test_commands_by_http_load_neither_ledger_nor_broker_nor_server(url: str, world: World, tmp_path: Path) -> None:
    program = """
import sys
from producers.cli import app
app(["jobs"], standalone_mode=False)
heavy = {"celery", "kombu", "sqlalchemy", "sqlmodel", "redis", "fastapi", "alembic", "routing", "ledger", "yaml"}
sys.exit(" ".join(heavy & set(sys.modules)))
"""
    environment = {"HOME": str(tmp_path), "POINTSMAN_URL": url, "POINTSMAN_KEY": world.key()}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout[:3], done.stderr.strip()) == ("job", "")


@contextmanager
def working(world: World) -> Iterator[None]:
    """Work off imports, and publish what is approved, as a worker would."""
    stopping = threading.Event()

    def work() -> None:
        while not stopping.wait(0.02):
            with world.ledger.begin() as session:
                waiting = select(Job).where(col(Job.tenant) == world.tenant, col(Job.waiting_since).is_not(None))
                jobs = [(job.id, job.queue) for job in session.scalars(waiting)]
            for job_id, queue in jobs:
                world.publish(job_id) if queue == "control" else world.work(job_id, patch_files)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    stopping.set()
    thread.join(20)


def test_a_directory_is_packed_sent_scanned_and_offered_and_published_if_asked(
    logged_in: Run, world: World, tmp_path: Path
) -> None:
    write_files(tmp_path / "in", {**PAGES, "node_modules/x/index.js": b"x"})
    with working(world):
        done = logged_in("site", "import", "bakery", "in")
        assert done.exit_code == 0, done.output
        assert "awaiting_approval" in done.stdout
        assert "pointsman approve" in done.stdout
        assert "unpack" in done.stderr
        assert world.active("bakery") is None
        assert logged_in("cancel", json.loads(logged_in("jobs", "--json").stdout)[0]["id"]).exit_code == 0
        live = logged_in("site", "import", "bakery", "in", "--publish", "--json")
        assert (live.exit_code, json.loads(live.stdout)["state"], live.stderr) == (0, "published", "")
    assert world.pages.get(f"/live/{world.tenant}/bakery/").content == HOME
    with world.ledger.begin() as session:
        release = session.get_one(Release, world.active("bakery"))
        assert sorted(manifest_of(release)) == sorted(PAGES)


def test_an_archive_is_sent_as_it_is_and_a_refusal_names_entry_rule_and_fix(
    logged_in: Run, world: World, tmp_path: Path
) -> None:
    bad = {**PAGES, "bad.html": b"<!doctype html>\n<h1 onclick='x()'>x</h1>"}
    (tmp_path / "bad.zip").write_bytes(zipped(bad))
    (tmp_path / "up.zip").write_bytes(zipped({**PAGES, "../up.html": HOME}))
    (tmp_path / "note.txt").write_text("no archive")
    with working(world):
        done = logged_in("site", "import", "bakery", "bad.zip", "--publish")
        assert done.exit_code == 1, done.output
        assert "bad.html, line 2: " in done.stdout
        assert "scan refused" in done.stdout or "findings of the scan" in done.stdout
        done = logged_in("site", "import", "bakery", "up.zip", "--publish")
        assert (done.exit_code, "path '../up.html' is refused: parent" in done.stdout) == (1, True), done.output
    for path, code, message in (
        ("note.txt", 2, "must be a zip or tar.gz archive"),
        ("nothing", 2, "there is no such directory"),
    ):
        done = logged_in("site", "import", "bakery", path)
        assert (done.exit_code, message in done.stderr) == (code, True), done.output
    assert world.active("bakery") is None
