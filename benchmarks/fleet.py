"""An installation on the servers that both sides of a race share: its processes, a way to submit, and a way to rest."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from redis import Redis
from sqlalchemy import text
from sqlmodel import Session

from benchmarks.places import AT_ONCE, BROKER, LEDGER, place
from benchmarks.servers import TENANT
from ledger.releases import NewRelease, activate, add_release, ensure_site
from ledger.store import Ledger, create_ledger_engine
from producers.dispatch.broker import Publisher
from producers.intake.submit import Submitted, Submitter
from producers.local.supervisor import Program, Supervisor, free_port
from routing.broker import create_app
from routing.jobs import Source
from routing.policy.platform import DispatchWindow, Policy, platform_policy

_REST = text("""
    UPDATE job SET state = 'cancelled', waiting_since = NULL, pushed_at = NULL, held_for = NULL, ended_at = now()
     WHERE ended_at IS NULL
""")
_LEFT = text("SELECT EXISTS (SELECT FROM job WHERE ended_at IS NULL)")


class Fleet:
    """The ledger and the broker of an installation, seen from a process that submits."""

    def __init__(self, policy: Policy | None = None) -> None:
        logging.disable(logging.WARNING)
        self.ledger = Ledger(create_ledger_engine(place(LEDGER)))
        self.broker = Redis.from_url(place(BROKER))
        publisher = Publisher(create_app(place(BROKER)))
        self._submitter = Submitter(self.ledger, publisher, policy or platform_policy())

    def submit(self, body: object) -> None:
        """Submit one job."""
        self._submitter.submit(body, tenant=TENANT, source=Source.PYTHON)

    def submit_many(self, bodies: Sequence[object]) -> None:
        """Submit jobs that come together."""
        told = self._submitter.submit_many(bodies, tenant=TENANT, source=Source.PYTHON)
        assert all(isinstance(one, Submitted) for one in told)

    def rest(self) -> None:
        """Take away what waits: so that a queue which nobody works off is as short at every turn."""
        with self.ledger.begin() as session:
            session.execute(_REST)
        self.broker.flushdb()

    def is_done(self) -> bool:
        """Tell whether every job has ended."""
        with self.ledger.begin() as session:
            return not session.scalar(_LEFT)

    def add_sites(self) -> None:
        """Make as many sites as jobs wait at once, each with a release: two jobs of one would wait for each other."""
        with self.ledger.begin() as session:
            for number in range(AT_ONCE):
                _add_site(session, f"site-{number}")


def _add_site(session: Session, name: str) -> None:
    site = ensure_site(session, TENANT, name)
    if site.active_release_id is None:
        signals = {"files": 4, "has_js": False, "has_build": False}
        new = NewRelease(
            site_id=site.id,
            digest="0" * 64,
            manifest={},
            total_bytes=0,
            signals=signals,
            scan={},
            scan_passed=True,
            scan_digest="0" * 64,
        )
        activate(session, site.id, add_release(session, new), base_release_id=None)


def with_room() -> Policy:
    """Return the platform's policy with a dispatch window that holds all jobs of a turn."""
    return platform_policy().model_copy(
        update={"dispatch_window": DispatchWindow(per_queue=AT_ONCE, per_tenant=AT_ONCE)}
    )


def with_room_on_disk(directory: Path) -> Path:
    """Write the same policy for a process to read."""
    path = directory / "policy.yaml"  # of which JSON is a part
    path.write_text(with_room().model_dump_json())
    return path


def environment(home: Path) -> dict[str, str]:
    """Return the settings of an installation's processes."""
    api, pages = free_port(), free_port()
    return os.environ | {
        "POINTSMAN_LEDGER__URL": place(LEDGER),
        "POINTSMAN_BROKER__URL": place(BROKER),
        "POINTSMAN_CONTENT_STORE__ROOT": str(home / "content-store"),
        "POINTSMAN_RUNS__ROOT": str(home / "runs"),
        "POINTSMAN_PREVIEW__KEYS": '["a key of thirty-two letters and more"]',
        "POINTSMAN_AUDIT__SIGNING_KEY": "a key of thirty-two letters and more",
        "POINTSMAN_API__PORT": str(api),
        "POINTSMAN_API__PUBLIC_URL": f"http://127.0.0.1:{api}",
        "POINTSMAN_PAGES__PORT": str(pages),
        "POINTSMAN_PAGES__PUBLIC_URL": f"http://127.0.0.1:{pages}",
    }


def run(programs: Sequence[Program], settings: dict[str, str], home: Path) -> None:
    """Run an installation's processes until this one ends."""
    supervisor = Supervisor(environment=settings, logs=home / "logs")
    atexit.register(supervisor.stop)
    for program in programs:
        supervisor.start(program)
    supervisor.wait_ready()


def home() -> Path:
    """Return a directory that goes when this process ends."""
    directory = Path(tempfile.mkdtemp(prefix="pointsman-bench-home-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
