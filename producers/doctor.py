"""What `pointsman doctor` finds, and how it judges what it saw. Pure: the looking is its neighbours' work."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import httpx2
from pydantic import BaseModel, ConfigDict, Field
from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy import func
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlmodel import col, select

from gateway.config import GatewayConfig
from gateway.network import authorities
from ledger.audit import check_newest
from ledger.dispatch_window import DISPATCHER, leaders
from ledger.errors import SchemaMismatchError
from ledger.operations.workers import slots_by_queue
from ledger.store import Fit, Ledger, fit, found_revision, wanted_revision
from ledger.tables import Tenant
from producers.bootstrap import Installation
from producers.dispatch.broker import open_broker
from producers.intake import celery_intake
from routing.broker import is_exposed_broker, is_exposed_ledger
from routing.config import IN_FILE, PREFIX, read_settings
from routing.errors import PolicyError
from routing.policy.platform import Policy
from routing.queues import QUEUES, QueueName
from sites.content_store import Disk

MIN_FREE_BYTES = 1_000_000_000
"""Below it a disk may be full within a day of ordinary work."""
LEAST_FREE_BYTES = 200_000_000
"""Below it a single job may fail to store what it made."""
_SKEW_WARN_SECONDS = 2.0
_SKEW_FAIL_SECONDS = 60.0
"""Links are signed, and webhooks dated, by the host's clock; receivers refuse what is minutes off."""
_LAG_WARN_SECONDS = 60.0


class Verdict(StrEnum):
    """How something stands."""

    OK = "OK"
    WARN = "WARN"
    """It works, or is not needed by everybody; somebody should look at it."""
    FAIL = "FAIL"
    """Jobs are refused, lost or stuck because of it."""


class Finding(NamedTuple):
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    seen: str = ""
    """What was found."""
    hint: str = ""
    """What to do; empty when all is well."""

    @property
    def line(self) -> str:
        """The finding as people read it."""
        told = ": ".join(part for part in (self.name, self.seen) if part)
        return f"{self.verdict.value:<4}  {told}" + (f"; {self.hint}" if self.hint else "")


def ok(name: str, seen: str = "") -> Finding:
    """Return a finding that nobody needs to read."""
    return Finding(name, Verdict.OK, seen)


def warn(name: str, seen: str, hint: str) -> Finding:
    """Return a finding that somebody should look at."""
    return Finding(name, Verdict.WARN, seen, hint)


def fail(name: str, seen: str, hint: str) -> Finding:
    """Return a finding that something does not work because of."""
    return Finding(name, Verdict.FAIL, seen, hint)


def worst(findings: Iterable[Finding]) -> Verdict:
    """Return how an installation stands as a whole."""
    found = {finding.verdict for finding in findings}
    return next((verdict for verdict in (Verdict.FAIL, Verdict.WARN) if verdict in found), Verdict.OK)


def judge_clock(ahead_seconds: float) -> Finding:
    """Judge how far the ledger's clock is ahead of this machine's."""
    name, seen = "clock", f"the ledger's is {ahead_seconds:+.1f} s from this machine's"
    hint = "let NTP set both; leases go by the ledger's clock, links and webhooks by this machine's"
    if abs(ahead_seconds) >= _SKEW_FAIL_SECONDS:
        return fail(name, seen, hint)
    return warn(name, seen, hint) if abs(ahead_seconds) >= _SKEW_WARN_SECONDS else ok(name, seen)


def judge_disk(name: str, *, free_bytes: int, where: str) -> Finding:
    """Judge how much room is left on a disk."""
    seen = f"{free_bytes // 1_000_000} MB are free at {where}"
    hint = "make room there, or lower `retention` in the policy"
    if free_bytes < LEAST_FREE_BYTES:
        return fail(name, seen, hint)
    return warn(name, seen, hint) if free_bytes < MIN_FREE_BYTES else ok(name, seen)


def judge_eviction(policy: str) -> Finding:
    """Judge what a broker does when its memory is full."""
    seen = f"maxmemory-policy is {policy}"
    if policy == "noeviction":
        return ok("broker keeps messages", seen)
    return fail("broker keeps messages", seen, "set it to noeviction: any other drops messages without a word")


def judge_persistence(settings: Mapping[str, str]) -> Finding:
    """Judge what of a broker outlives its restart. Jobs do without it: the ledger has them."""
    name = "broker persistence"
    if settings.get("appendonly") == "yes" or settings.get("save"):
        return ok(name, "on")
    return warn(
        name,
        "off",
        "jobs come back from the ledger in seconds, but what Celery clients have just put on `intake` and "
        "is no job yet is lost with a restart: set appendonly to yes",
    )


def judge_workers(slots: Mapping[str, int]) -> Finding:
    """Judge whether somebody serves each queue.

    Args:
        slots: of the workers that serve now, by the name of their queue.
    """
    bare = [queue.value for queue in QUEUES if not slots.get(queue.value)]
    seen = ", ".join(f"{queue.value} {slots[queue.value]}" for queue in QUEUES if slots.get(queue.value))
    if not bare:
        return ok("workers", f"slots: {seen}")
    hint = f"jobs wait there: start `pointsman worker {' '.join(bare)}`"
    told = f"nobody serves {', '.join(bare)}"
    if QueueName.CONTROL.value in bare or not seen:
        return fail("workers", told, hint)
    return warn("workers", told, f"{hint}, if you want such work done")


def judge_lag(seconds: float) -> Finding:
    """Judge how old the oldest event is that is in no metric yet."""
    seen = f"metrics are {seconds:.0f} s behind the ledger"
    if seconds >= _LAG_WARN_SECONDS:
        return warn("exporter", seen, "look at its log; alerts and dashboards show the past until it catches up")
    return ok("exporter", seen)


def judge_prices(models: Iterable[str], priced: Iterable[str]) -> Finding:
    """Judge whether every model that the policy names has a price."""
    if missing := sorted(set(models) - set(priced)):
        hint = "add them to `prices` in the policy: until then they are charged as the dearest model there"
        return fail("prices", f"none for {', '.join(missing)}", hint)
    return ok("prices", f"for all {len(set(models))} models that the policy names")


# Looks at the ledger: is it there, of this version, on time; does somebody lead; does the audit chain hold.

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
    for role, name in ((DISPATCHER, "dispatcher"), (celery_intake.ROLE, "Celery door")):
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


# Looks at what an installation stands on: the broker, the disk, the gateway, the exporter, and the secrets.

_PATIENCE_SECONDS = 3.0
_LAG = "pointsman_fold_lag_seconds "
_GATEWAY_URL = f"{PREFIX}WORKER__GATEWAY_URL"
_MOST_BYTES = 4_000_000
_OF_THIS_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where to ask for what listens everywhere."""


def check_broker(installation: Installation) -> Iterator[Finding]:
    """Yield what is found of the broker."""
    config = installation.settings.broker
    try:
        broker = open_broker(config.url, tls=config.tls, timeout_seconds=_PATIENCE_SECONDS)
    except ValueError:
        yield fail("broker", "POINTSMAN_BROKER__URL is no URL", "it is like redis://host:6379/0")
        return
    try:
        policy = _setting(broker, "maxmemory-policy")
        yield ok("broker")
        yield judge_eviction(policy)
        yield judge_persistence({name: _setting(broker, name) for name in ("appendonly", "save")})
    except RedisError as error:
        seen = f"cannot be reached at POINTSMAN_BROKER__URL ({type(error).__name__})"
        yield fail("broker", seen, "start it, or mend the URL; its user needs `+config|get` to be looked at")
    finally:
        broker.close()


def _setting(broker: Redis, name: str) -> str:
    found = broker.config_get(name)
    return str(found.get(name, "")) if isinstance(found, dict) else ""


def check_transport(installation: Installation) -> Iterator[Finding]:
    """Yield which connections cross a network in the clear."""
    if is_exposed_broker(installation.settings.broker.url):
        yield fail("broker over TLS", "passwords and prompts cross the network in the clear", "use rediss://")
    if is_exposed_ledger(installation.ledger_url):
        yield fail("ledger over TLS", "nothing checks whose database this is", "add sslmode=verify-full to the URL")


def check_files(installation: Installation) -> Iterator[Finding]:
    """Yield whether the Den can do all that releases need of a file system, and how full it is. It is not made here."""
    root = installation.settings.den.root.absolute()
    there = next(place for place in (root, *root.parents) if place.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=there) as scratch:
            _try_out(Path(scratch))
    except OSError as error:
        seen = f"{root}: {error.strerror or error}"
        yield fail(
            "den",
            seen,
            "POINTSMAN_DEN__ROOT needs a directory of this account's own on a POSIX file system, "
            "the same for API, workers and dispatcher",
        )
        return
    if there == root:
        yield ok("den", f"{root} is written to, linked and moved in")
    else:
        yield warn("den", f"there is no {root} yet", "it is made at first use; if others have one, mount it here")
    yield judge_disk("den disk", free_bytes=shutil.disk_usage(there).free, where=str(there))


def _try_out(scratch: Path) -> None:
    """Do once what the Den does: durable writes, second names, links that move in one step, and a lock.

    Raises:
        OSError: the operator's fault: the file system cannot do it, or lets this account not.
    """
    disk = Disk()
    disk.write_atomically(scratch / "blob", b"x")
    disk.link(scratch / "blob", scratch / "tree")
    for release in ("1", "2"):
        (scratch / release).mkdir()
        disk.point(scratch / "current", Path(release))
    with disk.excluding(scratch):
        os.utime(scratch / "blob")


def check_secrets(installation: Installation) -> Iterator[Finding]:
    """Yield which secrets are not here, where they may not be needed; none is ever shown."""
    if installation.signer is None:
        hint = "where `pointsman api` runs set POINTSMAN_PREVIEW__KEYS: it does not start without"
        yield warn("preview keys", "there are none here", hint)
    else:
        yield ok("preview keys")


def check_policy(policy: Policy) -> Iterator[Finding]:
    """Yield whether the policy fits together beyond what reading it has checked."""
    models = {model for queue in QUEUES for model in policy.models_of(queue)}
    yield judge_prices(models, policy.prices)


class _GatewaySettings(BaseModel):
    model_config = ConfigDict(frozen=True)

    gateway: GatewayConfig = Field(default_factory=dict, validate_default=True)


def check_gateway(url: str, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield whether the gateway answers, and, where its settings are known, whether each provider has a key.

    Args:
        url: where workers look for it.
        environment: of this process. Only the gateway's own has keys, and no other should.
    """
    if _get(f"{url}/healthz") is not None:
        yield ok("gateway", url)
    elif {_GATEWAY_URL, f"{_GATEWAY_URL}{IN_FILE}"}.isdisjoint(environment):
        hint = f"start `pointsman gateway`; where it is on another machine, workers need {_GATEWAY_URL}"
        yield warn("gateway", f"nothing answers at {url}", hint)
    else:
        yield fail("gateway", f"nothing answers at {url}", f"start `pointsman gateway`, or mend {_GATEWAY_URL}")
    if not any(name.startswith(f"{PREFIX}GATEWAY__") for name in environment):
        return
    try:
        config = read_settings(_GatewaySettings, environment).gateway
    except PolicyError as error:
        yield fail("provider keys", str(error), "mend it in the gateway's environment")
        return
    if config.providers:
        yield ok("provider keys", f"{', '.join(sorted(config.providers))} have one")
    else:
        yield fail("provider keys", "there is no provider", "set POINTSMAN_GATEWAY__PROVIDERS__<NAME>__...")


def check_exporter(installation: Installation) -> Iterator[Finding]:
    """Yield how far the metrics are behind."""
    config = installation.settings.exporter
    host = _OF_THIS_HOST.get(config.host, config.host)
    place = f"[{host}]:{config.port}" if ":" in host else f"{host}:{config.port}"
    page = _get(f"http://{place}/metrics")
    if page is None:
        yield warn(
            "exporter",
            f"nothing answers at {place}",
            "start `pointsman exporter`; if it is on another machine, ask from there",
        )
        return
    found = next((line for line in page.splitlines() if line.startswith(_LAG)), f"{_LAG}inf")
    yield judge_lag(float(found.removeprefix(_LAG)))


def _get(url: str) -> str | None:
    """Return what a server of ours answers, None where there is none; no proxy is asked."""
    try:
        with (
            httpx2.Client(timeout=_PATIENCE_SECONDS, trust_env=False, verify=authorities()) as client,
            client.stream("GET", url) as answer,
        ):
            body = next(answer.iter_bytes(_MOST_BYTES), b"")
            return body.decode("utf-8", "replace") if answer.is_success else None
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return None
