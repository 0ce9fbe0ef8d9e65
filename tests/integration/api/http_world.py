"""A real HTTP API on a real ledger, with the broker away: what is accepted waits in the ledger."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import func, select
from sqlmodel import SQLModel

from ledger.attempts import lock_owned_job
from ledger.dispatch_window import pause_queue
from ledger.job_control import await_approval
from ledger.jobs import end, find_job, move
from ledger.releases import active_release, add_release, find_site
from ledger.start_attempt import Claim, claim
from ledger.store import Ledger, create_ledger_engine
from ledger.tables import Job, Release, Site
from producers.api.app import create_app
from producers.api.requests import Resources
from producers.console.web import Console, Sessions
from producers.dispatch.broker import Publisher
from producers.intake.submit import Submitter
from producers.pages import PageResources, create_pages_app
from producers.use_cases.tenants import Scope, create_key, create_tenant
from routing.broker import create_app as create_celery
from routing.jobs import JobMessage, Reason, State
from routing.policy.platform import Policy, platform_policy
from routing.queues import QUEUES, QueueName
from sites.content_store import ContentStore
from sites.preview import PreviewSigner
from sites.releases import build_release
from tests.services import Postgres
from workers.handlers.publish import run_control
from workers.lifecycle import Handler, run_attempt
from workers.lifecycle import Resources as WorkerResources

DEAD_BROKER = "redis://127.0.0.1:1/0"
PAGES_URL = "http://pages.testserver"
CONSOLE_URL = "http://testserver"
CONSOLE_KEY = "console-key-of-the-tests-0123456789"
AUDIT_KEY = b"audit-key-of-the-tests"

HOME = b"<!doctype html><html lang=en><title>Bakery</title><h1>Bread</h1><link rel=stylesheet href=style.css></html>"
STYLE = b"h1 { color: #123456 }\n"
PAGES: Mapping[str, bytes] = {"index.html": HOME, "style.css": STYLE, "menu/index.html": HOME}


@dataclass
class Clock:
    """Time that a test moves."""

    ahead: float = 0.0
    started: float = 1_800_000_000.0

    def __call__(self) -> float:
        return self.started + self.ahead


@dataclass
class World:
    """One installation, and one tenant of its own for this test."""

    ledger: Ledger
    content_store: ContentStore
    den_root: Path
    policy: Policy
    app: FastAPI
    client: TestClient
    pages_app: FastAPI
    pages: TestClient
    """A client of the pages' own origin."""
    resources: Resources
    clock: Clock
    tenant: str
    keys: dict[tuple[str, ...], str] = field(default_factory=dict)

    def key(self, *scopes: str, tenant: str | None = None) -> str:
        """Make a key of this test's tenant, or of another."""
        scopes = scopes or tuple(Scope)
        with self.ledger.begin() as session:
            create_tenant(session, tenant or self.tenant)
            return create_key(session, tenant or self.tenant, name=f"k-{secrets.token_hex(4)}", scopes=scopes)

    def headers(self, *scopes: str, tenant: str | None = None) -> dict[str, str]:
        """Return headers that authenticate."""
        scopes = scopes or tuple(Scope)
        known = (tenant or self.tenant, *scopes)
        if known not in self.keys:
            self.keys[known] = self.key(*scopes, tenant=tenant)
        return {"Authorization": f"Bearer {self.keys[known]}"}

    def call(self, method: str, path: str, **arguments: Any) -> Any:
        """Send a request with a key of all scopes."""
        headers = {**self.headers(), **arguments.pop("headers", {})}
        return self.client.request(method, path, headers=headers, follow_redirects=False, **arguments)

    def site(self, name: str, files: Mapping[str, bytes], tmp_path: Path) -> Release:
        """Import a site."""
        directory = tmp_path / f"{name}-{secrets.token_hex(3)}"
        write_files(directory, files)
        return self.resources.sites.import_site(self.tenant, name, directory)

    def submit(self, **body: Any) -> UUID:
        """Submit a job."""
        answer = self.call("POST", "/v1/jobs", json=body)
        assert answer.status_code == 202, answer.text
        return UUID(answer.json()["id"])

    def claim(self, job_id: UUID) -> Claim:
        """Take a waiting job as a worker would."""
        with self.ledger.begin() as session:
            job = find_job(session, job_id)
            message = JobMessage(job_id=job.id, fence=job.fence)
            queue = QueueName(job.queue)
            pause_queue(session, queue, is_paused=False)
        taken = claim(self.ledger, message, queue=queue, worker="test", policy=self.policy)
        with self.ledger.begin() as session:
            pause_queue(session, queue, is_paused=True)
        assert taken is not None
        return taken

    def offer(
        self, job_id: UUID, files: Mapping[str, bytes], *, work: Callable[[Claim], object] = lambda _: None
    ) -> Release:
        """Do a job's work: scan a result and let it wait for approval."""
        taken = self.claim(job_id)
        work(taken)
        with self.ledger.begin() as session:
            job = lock_owned_job(session, taken.attempt)
            site = session.get_one(Site, job.site_id)
            base = active_release(session, site)
            new = build_release(
                self.content_store,
                files,
                site=site,
                policy=self.policy,
                base_release_id=base.id if base else None,
                job_id=job.id,
            )
            assert new.scan_passed, new.scan
            move(session, job, State.SCANNING)
            release = add_release(session, new)
            await_approval(session, job, release, hours=1)
        return release

    def finish(
        self, job_id: UUID, state: State, *, reason: Reason = Reason.DONE, detail: str = "", **result: Any
    ) -> None:
        """End a waiting job as a worker would."""
        taken = self.claim(job_id)
        with self.ledger.begin() as session:
            end(session, lock_owned_job(session, taken.attempt), state, reason=reason, detail=detail, result=result)

    def work(self, job_id: UUID, handler: Handler) -> Job:
        """Do a waiting job's work as a worker does, by the queue's own handler."""
        queue = QueueName(self.job(job_id).queue)
        with self._served(queue):
            run_attempt(self._message(job_id), queue, handler, self._worker())
        return self.job(job_id)

    def publish(self, job_id: UUID) -> None:
        """Run the publish task for an approved job."""
        with self._served(QueueName.CONTROL):
            run_control(self._message(job_id), self._worker())

    def _message(self, job_id: UUID) -> JobMessage:
        return JobMessage(job_id=job_id, fence=self.job(job_id).fence)

    def _worker(self) -> WorkerResources:
        return WorkerResources(
            ledger=self.ledger,
            content_store=self.content_store,
            policy=self.policy,
            gateway_url="http://127.0.0.1:1",
            worker="test",
        )

    @contextmanager
    def _served(self, queue: QueueName) -> Iterator[None]:
        with self.ledger.begin() as session:
            pause_queue(session, queue, is_paused=False)
        yield
        with self.ledger.begin() as session:
            pause_queue(session, queue, is_paused=True)

    def job(self, job_id: UUID) -> Job:
        """Return a job's row."""
        with self.ledger.begin() as session:
            return find_job(session, job_id)

    def active(self, name: str) -> UUID | None:
        """Return a site's active release."""
        with self.ledger.begin() as session:
            return find_site(session, self.tenant, name).active_release_id

    def counts(self) -> dict[str, int]:
        """Return how many rows each table of the ledger has."""
        with self.ledger.begin() as session:
            return {
                name: session.scalar(select(func.count()).select_from(table)) or 0
                for name, table in SQLModel.metadata.tables.items()
            }


def problem_of(answer: Any) -> dict[str, Any]:
    """Return the problem that an answer is."""
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["status"] == answer.status_code
    return body


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files below a directory."""
    for path, data in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


@pytest.fixture(scope="module")
def shared_ledger(postgres: Postgres) -> Iterator[Ledger]:
    """One ledger for a module: each of its tests has a tenant of its own."""
    with postgres.database() as url:
        ledger = Ledger(create_ledger_engine(url, pool_size=4))
        yield ledger
        ledger.close()


@pytest.fixture
def world(shared_ledger: Ledger, tmp_path: Path) -> Iterator[World]:
    """A source, a store and a tenant of this test's own."""
    with open_world(shared_ledger, tmp_path / "content-store") as opened:
        yield opened


@pytest.fixture(scope="module")
def shared_world(shared_ledger: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One source for a module whose tests leave nothing behind that another could see."""
    with open_world(shared_ledger, tmp_path_factory.mktemp("content_store")) as opened:
        yield opened


@contextmanager
def open_world(
    ledger: Ledger,
    directory: Path,
    *,
    tenant: str = "",
    pages_url: str = PAGES_URL,
    console_url: str = CONSOLE_URL,
    content_store: ContentStore | None = None,
) -> Iterator[World]:
    """Open a source. The queues are paused, so nothing tries to reach the broker, which is away."""
    clock = Clock()
    policy = platform_policy()
    content_store = content_store or ContentStore(directory)
    resources = Resources(
        ledger=ledger,
        submitter=Submitter(ledger, Publisher(create_celery(DEAD_BROKER)), policy),
        content_store=content_store,
        signer=PreviewSigner(["preview-key-of-the-tests-0123456789"], clock=clock),
        policy=policy,
        pages_url=pages_url,
        poll_seconds=0.02,
        runs_root=directory.parent / "runs",
    )
    console = Console(Sessions([CONSOLE_KEY]), public_url=console_url, audit_key=AUDIT_KEY)
    app = create_app(resources, console=console)
    tenant = tenant or f"t-{secrets.token_hex(5)}"
    with ledger.begin() as session:
        create_tenant(session, tenant)
        for queue in QUEUES:
            pause_queue(session, queue, is_paused=True)
    pages_app = create_pages_app(
        PageResources(
            ledger, content_store, resources.signer, policy.approval.preview_hours * 3600, console_url=console_url
        )
    )
    with TestClient(app) as client, TestClient(pages_app, base_url=PAGES_URL) as pages:
        yield World(ledger, content_store, directory, policy, app, client, pages_app, pages, resources, clock, tenant)
