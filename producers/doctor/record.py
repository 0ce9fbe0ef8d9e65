"""Looks at the ledger: is it there, of this version, on time; does somebody lead; does the audit chain hold."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

from sqlalchemy import func
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlmodel import col, select

from monitoring.audit_chain import check_newest
from monitoring.errors import SchemaMismatchError
from monitoring.ledger.dispatch_window import DISPATCHER, leaders
from monitoring.ledger.store import Fit, Ledger, fit, found_revision, wanted_revision
from monitoring.ledger.tables import Tenant
from monitoring.ledger.workers import slots_by_queue
from producers import door
from producers.bootstrap import Installation
from producers.doctor.findings import Finding, fail, judge_clock, judge_workers, ok, warn

_SHOWN_TENANTS = 10
_AWAY = "cannot be reached at POINTSMAN_LEDGER__URL"


def check_ledger(installation: Installation) -> Iterator[Finding]:
    """Yield what is found of the ledger; where there is none of this version, nothing else is asked of it."""
    try:
        engine = installation.ledger.engine
        match fit(engine):
            case Fit.OLDER | Fit.FOREIGN:
                seen = str(SchemaMismatchError(found_revision(engine), wanted_revision()))
                yield fail("ledger", seen, "run `pointsman migrate` with this version")
                return
            case Fit.NEWER:
                yield warn("ledger", f"at revision {found_revision(engine)}, newer than this version", "upgrade here")
            case Fit.CURRENT:
                yield ok("ledger", f"at revision {found_revision(engine)}")
        yield judge_clock(_ahead_seconds(installation.ledger))
        yield _providers(installation.ledger)
        yield from _leaders(installation.ledger)
        yield _workers(installation.ledger)
        yield from _audit(installation)
    except ArgumentError:
        yield fail("ledger", "POINTSMAN_LEDGER__URL is no URL", "it is like postgresql://user@host/database")
    except DBAPIError:
        yield fail("ledger", _AWAY, "start it, or `pointsman up`, or mend the URL")


def _ahead_seconds(ledger: Ledger) -> float:
    """Return how far the ledger's clock is ahead, the way there and back counted by half."""
    with ledger.begin() as session:
        session.scalar(select(1))  # the connection is open from here on
        sent = time.time()
        there = session.scalar(select(func.clock_timestamp()))
        here = datetime.fromtimestamp((sent + time.time()) / 2, UTC)
    assert isinstance(there, datetime)
    return (there - here).total_seconds()


def _providers(ledger: Ledger) -> Finding:
    """Say which tenants no model is called for: there is no key that others' calls could fall back to (S-065)."""
    name = "tenants have a model provider"
    with ledger.begin() as session:
        poor = session.exec(select(Tenant.name).where(col(Tenant.provider).is_(None)).limit(_SHOWN_TENANTS)).all()
    if not poor:
        return ok(name)
    hint = "what needs a model fails for them; `pointsman key create --tenant NAME --provider NAME`"
    return warn(name, f"{', '.join(poor)} have none", hint)


def _leaders(ledger: Ledger) -> Iterator[Finding]:
    with ledger.begin() as session:
        alive = leaders(session)
    for role, name in ((DISPATCHER, "dispatcher"), (door.ROLE, "Celery door")):
        if role in alive:
            yield ok(name, f"led by {alive[role]}")
        else:
            yield fail(name, "nobody leads it", "start `pointsman dispatcher`: jobs wait, and nothing is recovered")


def _workers(ledger: Ledger) -> Finding:
    with ledger.begin() as session:
        return judge_workers({queue.queue: queue.slots for queue in slots_by_queue(session)})


def _audit(installation: Installation) -> Iterator[Finding]:
    """Look at the chain's end alone; the whole of it is what `pointsman audit verify` reads."""
    key = installation.settings.audit.signing_key.get_secret_value()
    if not key:
        hint = "where `pointsman dispatcher` runs set POINTSMAN_AUDIT__SIGNING_KEY: it does not start without"
        yield warn("audit key", "there is none here, so the audit chain was not looked at", hint)
        return
    yield ok("audit key")
    with installation.ledger.begin() as session:
        problems = check_newest(session, signing_key=key.encode(), kept_head=installation.audit_heads.newest())
    if problems:
        yield fail("audit chain", problems[0], "run `pointsman audit verify`, and ask who writes to the database")
    else:
        yield ok("audit chain", "its end is signed, and is what was kept")
