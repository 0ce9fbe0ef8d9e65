"""The checks of `pointsman doctor`: what each looks at."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import httpx2
from pydantic import BaseModel, Field
from redis import Redis
from redis.exceptions import RedisError, ResponseError
from sqlalchemy import func
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlmodel import Session, col, select

from gateway.config import GatewayConfig
from gateway.forges.deploy_keys import check_keys
from gateway.network import authorities
from ledger.audit import check_newest
from ledger.errors import SchemaMismatchError
from ledger.notifications import count_undelivered
from ledger.operations.activity import oldest_transaction, read_blockers, read_connections, read_session
from ledger.operations.leaders import CELERY_INTAKE, DISPATCHER, leaders
from ledger.operations.partitions import may_tend
from ledger.operations.workers import slots_by_queue
from ledger.store import Fit, Ledger, fit, found_revision, wanted_revision
from ledger.tables import Tenant
from producers.bootstrap import Installation
from producers.diagnosis import (
    MOST_CHARACTERS,
    Check,
    Finding,
    Verdict,
    fail,
    judge_blockers,
    judge_clock,
    judge_connections,
    judge_disk,
    judge_eviction,
    judge_lag,
    judge_owner,
    judge_persistence,
    judge_prices,
    judge_refusal,
    judge_session,
    judge_speed,
    judge_transaction,
    judge_webhooks,
    judge_workers,
    ok,
    warn,
)
from producers.dispatch.redis_client import open_broker
from producers.image_checks import check_images
from routing.addresses import is_exposed_broker, is_exposed_ledger, is_exposed_url
from routing.config import IN_FILE, PREFIX, read_settings, strip_settings
from routing.errors import PolicyError
from routing.policy.agents import AccountsConfig
from routing.policy.platform import Policy
from routing.queues import QUEUES
from sandbox.config import BoxSettings
from sandbox.package_mirror.registries import check_mirror
from sandbox.pool import check_boxes
from sites.blob_cache import COUNT
from sites.content_store import open_content_store
from sites.disk import Disk
from sites.errors import SiteError
from sites.ownership import check_place


def checks_of(installation: Installation, environment: Mapping[str, str]) -> Sequence[Check]:
    """Return the checks of an installation, in the order in which their findings are shown.

    Broker and gateway have timeouts of their own, shorter than a check's: where they are late, this machine is busy.
    """
    gateway_url = installation.settings.worker.gateway_url
    return (
        Check("prices", lambda: check_policy(installation.policy)),
        Check("ledger", lambda: check_ledger(installation)),
        Check("ledger sessions", lambda: check_sessions(installation), late=Verdict.WARN),
        Check("broker", lambda: check_broker(installation), late=Verdict.WARN),
        Check("connections over TLS", lambda: check_transport(installation)),
        Check("content store", lambda: check_files(installation)),
        Check("workspaces", lambda: check_workspaces(installation)),
        Check("preview keys", lambda: check_secrets(installation)),
        Check("deploy keys", lambda: check_deploy_keys(installation.settings.accounts)),
        Check("gateway", lambda: check_gateway(gateway_url, environment), late=Verdict.WARN),
        Check("exporter", lambda: check_exporter(installation), late=Verdict.WARN),
        Check("package registry", lambda: check_registry(installation), late=Verdict.WARN),
        Check("box engine", lambda: check_sandboxes(environment), late=Verdict.WARN),
        Check("images", lambda: check_images(installation, environment), late=Verdict.WARN),
    )


_SHOWN_TENANTS = 10


def check_sessions(installation: Installation) -> Iterator[Finding]:
    """Check for what holds the ledger up; one that cannot be reached is `check_ledger`'s finding."""
    try:
        with installation.ledger.engine.connect() as connection:
            yield judge_session(read_session(connection))
            yield judge_owner(may_tend(connection))
            yield judge_connections(read_connections(connection))
            yield judge_transaction(oldest_transaction(connection))
            yield judge_blockers(read_blockers(connection))
    except (ArgumentError, DBAPIError):
        return


def check_ledger(installation: Installation) -> Iterator[Finding]:
    """Check the ledger; without a fitting schema, nothing else in it."""
    try:
        engine = installation.ledger.engine
        match fit(engine):
            case Fit.OLDER | Fit.FOREIGN as found:
                seen = str(SchemaMismatchError(found_revision(engine), wanted_revision()))
                migrates = "run `pointsman migrate` with this version"
                yield fail("ledger", seen, migrates if found is Fit.OLDER else "run a version of that ledger's era")
                return
            case Fit.NEWER:
                yield warn("ledger", f"at revision {found_revision(engine)}, newer than this version", "upgrade here")
            case Fit.CURRENT:
                yield ok("ledger", f"at revision {found_revision(engine)}")
        yield judge_clock(_ahead_seconds(installation.ledger))
        with installation.ledger.begin() as session:
            yield _providers(session)
            yield from _leaders(session)
            yield judge_workers({queue.queue: queue.slots for queue in slots_by_queue(session)})
            yield judge_webhooks(count_undelivered(session))
            yield from _audit(session, installation)
        if not (place := installation.settings.content_store).url and place.root.exists():
            yield check_files_of_sites(installation)
    except ArgumentError:
        yield fail("ledger", "POINTSMAN_LEDGER__URL is no URL", "use postgresql://user@host/database")
    except DBAPIError as error:
        yield judge_refusal(str(error.orig))


def _ahead_seconds(ledger: Ledger) -> float:
    """Return how far the ledger's clock is ahead, corrected by half the round trip."""
    with ledger.begin() as session:
        session.scalar(select(1))  # the connection is open from here on
        sent = time.time()
        ledger_time = session.scalar(select(func.clock_timestamp()))
        local_time = datetime.fromtimestamp((sent + time.time()) / 2, UTC)
    assert isinstance(ledger_time, datetime)
    return (ledger_time - local_time).total_seconds()


def _providers(session: Session) -> Finding:
    """Report tenants without a provider: there is no key that they could fall back to (S-065)."""
    name = "tenants have a model provider"
    names = session.exec(select(Tenant.name).where(col(Tenant.provider).is_(None)).limit(_SHOWN_TENANTS)).all()
    if not names:
        return ok(name)
    hint = "jobs that need a model fail for them; `pointsman key create --tenant NAME --provider NAME`"
    return warn(name, f"{', '.join(names)} have none", hint)


def _leaders(session: Session) -> Iterator[Finding]:
    alive = leaders(session)
    for role, name in ((DISPATCHER, "dispatcher"), (CELERY_INTAKE, "Celery intake")):
        if role in alive:
            yield ok(name, f"led by {alive[role]}")
        else:
            yield fail(name, "has no leader", "start `pointsman dispatcher`: jobs wait, and nothing is recovered")


def _audit(session: Session, installation: Installation) -> Iterator[Finding]:
    """Check only the end of the chain; `pointsman audit verify` checks all of it."""
    key = installation.settings.audit.signing_key.get_secret_value()
    if not key:
        hint = "set POINTSMAN_AUDIT__SIGNING_KEY where `pointsman dispatcher` runs, which needs it"
        yield warn("audit key", "not set here, so the audit chain was not checked", hint)
        return
    yield ok("audit key")
    problems = check_newest(session, signing_key=key.encode(), kept_head=installation.audit_heads.newest())
    if problems:
        yield fail("audit chain", problems[0], "run `pointsman audit verify`, and find out who writes to the database")
    else:
        yield ok("audit chain", "its end is signed and matches the stored head")


_TIMEOUT_SECONDS = 1.5
"""Of each connection and answer: shorter than a check's, so that it can say what was slow."""
_STORE_TIMEOUT_SECONDS = 1.0
"""Of an object store's requests, of which a check needs several."""
_PROBE_KEY = "pointsman:doctor"
"""Written for a millisecond. The broker's user for doctors may write nothing else."""
_LAG = "pointsman_fold_lag_seconds "
_GATEWAY_URL = f"{PREFIX}WORKER__GATEWAY_URL"
_MAX_BYTES = 4_000_000
_LOCAL_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where to reach what listens on every interface."""


def check_broker(installation: Installation) -> Iterator[Finding]:
    """Check the broker."""
    config = installation.settings.broker
    try:
        broker = open_broker(config.url, tls=config.tls, timeout_seconds=_TIMEOUT_SECONDS)
    except ValueError:
        yield fail("broker", "POINTSMAN_BROKER__URL is no URL", "use redis://host:6379/0")
        return
    try:
        began = time.monotonic()
        broker.set(_PROBE_KEY, "", px=1)
        yield judge_speed("broker", "takes writes", seconds=time.monotonic() - began)
        policy = _setting(broker, "maxmemory-policy")
        yield judge_eviction(policy)
        yield judge_persistence({name: _setting(broker, name) for name in ("appendonly", "save")})
    except ResponseError as error:
        hints = {"OOM": "free memory or raise maxmemory", "NOPERM": "`pointsman broker acl` has its user's rules"}
        hint = next((hint for word, hint in hints.items() if word in str(error)), "fix POINTSMAN_BROKER__URL")
        yield fail("broker", f"refuses: {str(error)[:MOST_CHARACTERS]}", hint)
    except RedisError as error:
        yield fail("broker", f"POINTSMAN_BROKER__URL: {str(error)[:MOST_CHARACTERS]}", "start it, or fix the URL")
    finally:
        broker.close()


def _setting(broker: Redis, name: str) -> str:
    values = broker.config_get(name)
    return str(values.get(name, "")) if isinstance(values, dict) else ""


def check_transport(installation: Installation) -> Iterator[Finding]:
    """Report connections that cross a network unencrypted."""
    if is_exposed_broker(installation.settings.broker.url):
        yield fail("broker over TLS", "passwords and prompts cross the network unencrypted", "use rediss://")
    if is_exposed_url(installation.settings.content_store.options.get("endpoint", "")):
        yield fail("content store over TLS", "site files cross the network unencrypted", "use https:// in `endpoint`")
    pooler_url = installation.settings.ledger.pooler_url.get_secret_value()
    if any(is_exposed_ledger(url) for url in (installation.ledger_url, pooler_url) if url):
        yield fail(
            "ledger over TLS", "nothing verifies the identity of the database", "add sslmode=verify-full to the URL"
        )


def check_files(installation: Installation) -> Iterator[Finding]:
    """Check whether the content store takes files, and the free space. Creates no store on a disk."""
    root = installation.settings.content_store.root.absolute()
    if url := installation.settings.content_store.url:
        yield check_object_store(installation, url)
        if not installation.settings.content_store.projects:
            yield check_cache(root / "cache")
            return
    nearest = next(path for path in (root, *root.parents) if path.exists())
    try:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=nearest) as scratch:
            _exercise(Path(scratch))
        seconds = time.monotonic() - began
    except OSError as error:
        seen = f"{root}: {error.strerror or error}"
        yield fail(
            "content store",
            seen,
            "POINTSMAN_CONTENT_STORE__ROOT must be a directory owned by this account on a POSIX file system, "
            "shared by API, workers and dispatcher",
        )
        return
    if nearest == root:
        seen = f"{root} supports writes, links and renames"
        yield judge_speed("content store", seen, seconds=seconds)
    else:
        yield warn(
            "content store",
            f"{root} does not exist yet",
            "the dispatcher makes it as it starts; mount it here if others share one",
        )
    yield judge_disk(free_bytes=shutil.disk_usage(nearest).free, where=str(nearest))


def check_files_of_sites(installation: Installation) -> Finding:
    """Check whether a content store on a disk holds the files of this ledger's live sites."""
    name, config = "files of live sites", installation.settings.content_store
    try:
        check_place(installation.ledger, open_content_store(config))
    except (SiteError, OSError) as error:
        hint = "POINTSMAN_CONTENT_STORE__ROOT must be what API, workers and dispatcher share; is it mounted here?"
        return fail(name, f"{config.root.absolute()}: {error}", hint)
    return ok(name)


def check_workspaces(installation: Installation) -> Iterator[Finding]:
    """Check whether runs could have workspaces here; makes none."""
    root = installation.settings.runs.root.absolute()
    nearest = next(path for path in (root, *root.parents) if path.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=nearest):
            yield ok("workspaces", str(root))
    except OSError as error:
        seen = f"{root}: {error.strerror or error}"
        yield warn("workspaces", seen, "only runs of projects need POINTSMAN_RUNS__ROOT, which this account must write")


def check_object_store(installation: Installation, url: str) -> Finding:
    """Check whether an object store lets this program write and read, and holds this ledger's files."""
    began = time.monotonic()
    config = installation.settings.content_store
    limit = {"timeout_seconds": min(config.timeout_seconds, _STORE_TIMEOUT_SECONDS)}
    try:
        content_store = open_content_store(config.model_copy(update=limit))
        content_store.check_room(1)
        check_place(installation.ledger, content_store)
    except (ArgumentError, DBAPIError):
        return warn("content store", f"{url}: not compared with the ledger", "see what is said of the ledger")
    except (SiteError, PolicyError) as error:
        hint = (
            "see POINTSMAN_CONTENT_STORE__URL, __OPTIONS and __SECRETS; a new one is marked as the dispatcher starts, "
            "or by `pointsman restore`"
        )
        return fail("content store", f"{url}: {error}", hint)
    return judge_speed("content store", f"{url} takes files", seconds=time.monotonic() - began)


def check_cache(cache: Path) -> Finding:
    """Check whether this account may write a cache, or where it will be; without one everything is read from afar."""
    nearest = next(path for path in (cache, *cache.parents) if path.exists())
    name = "content store cache"
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=nearest) as scratch:
            _exercise(Path(scratch))
        if (count := cache / COUNT).exists() and not os.access(count, os.R_OK | os.W_OK):
            return warn(name, f"{count} belongs to another account", "run all processes of a host as one account")
    except OSError as error:
        return warn(name, f"{cache}: {error.strerror or error}", "POINTSMAN_CONTENT_STORE__ROOT must be this account's")
    return ok(name, str(cache))


def _exercise(scratch: Path) -> None:
    """Do what the content store does: durable writes, hard links, atomic symlinks, and a lock.

    Raises:
        OSError: the operator's fault: the file system cannot do it, or denies it to this account.
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
    """Report missing secrets, which may not be needed here; none is ever shown."""
    if installation.signer is None:
        hint = "set POINTSMAN_PREVIEW__KEYS where `pointsman api` runs, which needs it"
        yield warn("preview keys", "not set here", hint)
    else:
        yield ok("preview keys")


def check_policy(policy: Policy) -> Iterator[Finding]:
    """Check the policy beyond its validation at load."""
    models = {model for queue in QUEUES for model in policy.models_of(queue)}
    yield judge_prices(models, policy.prices)


_GATEWAY_SETTINGS = f"{PREFIX}GATEWAY__"


class _GatewaySettings(BaseModel, frozen=True):
    gateway: GatewayConfig = Field(default_factory=dict, validate_default=True)


def check_gateway(url: str, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check whether the gateway answers and, where its settings are present, whether it has provider keys.

    One that answers has read its own environment, which alone should hold the keys: a part of its settings without any
    key says nothing then.
    """
    answer = _get(f"{url}/healthz")
    if answer is not None and "pointsman-gateway" not in answer.body:
        yield fail("gateway", f"what answers at {url} is no gateway", f"fix {_GATEWAY_URL}")
    elif answer is not None:
        yield judge_speed("gateway", url, seconds=answer.seconds)
    elif {_GATEWAY_URL, f"{_GATEWAY_URL}{IN_FILE}"}.isdisjoint(environment):
        hint = f"start `pointsman gateway`; if it runs on another machine, workers need {_GATEWAY_URL}"
        yield warn("gateway", f"nothing answers at {url}", hint)
    else:
        yield fail("gateway", f"nothing answers at {url}", f"start `pointsman gateway`, or fix {_GATEWAY_URL}")
    own = [name for name in environment if name.startswith(_GATEWAY_SETTINGS)]
    has_keys = any(name.startswith(f"{_GATEWAY_SETTINGS}PROVIDERS__") for name in own)
    if not own or (answer is not None and not has_keys):
        return
    try:
        config = read_settings(_GatewaySettings, environment).gateway
    except PolicyError as error:
        yield fail("provider keys", str(error), "fix it in the gateway's environment")
        return
    if config.providers:
        yield ok("provider keys", f"{', '.join(sorted(config.providers))} have one")
    else:
        yield fail("provider keys", "there is no provider", "set POINTSMAN_GATEWAY__PROVIDERS__<NAME>__...")


def check_exporter(installation: Installation) -> Iterator[Finding]:
    """Check how far the metrics lag."""
    config = installation.settings.exporter
    host = _LOCAL_ADDRESSES.get(config.host, config.host)
    place = f"[{host}]:{config.port}" if ":" in host else f"{host}:{config.port}"
    page = _get(f"http://{place}/metrics")
    if page is None:
        yield warn(
            "exporter",
            f"nothing answers at {place}",
            "start `pointsman exporter`; if it runs on another machine, run doctor there",
        )
        return
    line = next((line for line in page.body.splitlines() if line.startswith(_LAG)), None)
    if line is None:
        yield warn("exporter", f"what answers at {place} is no exporter", "fix POINTSMAN_EXPORTER__PORT")
        return
    yield judge_lag(float(line.removeprefix(_LAG)))


def check_deploy_keys(accounts: AccountsConfig) -> Iterator[Finding]:
    """Check the keys for forges and for repositories by ssh, and that those servers are pinned."""
    for name, hint in check_keys(accounts):
        yield fail(name, "runs of projects that need it can neither begin nor end", hint) if hint else ok(name)


def check_registry(installation: Installation) -> Iterator[Finding]:
    """Check where boxes get packages from."""
    mirror = installation.settings.mirror
    yield from map(
        _only_boxes, check_mirror(mirror.npm, strip_settings(installation.environment()), npmrc=mirror.npmrc)
    )


def check_sandboxes(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check what boxes need of their engine."""
    try:
        config = read_settings(BoxSettings, environment).box
    except PolicyError as error:
        queues = ", ".join(name for name, queue in QUEUES.items() if queue.needs_box)
        yield fail("sandboxes", str(error), f"fix it in the environment of the workers of {queues}")
        return
    yield from map(_only_boxes, check_boxes(config))


def _only_boxes(check: tuple[str, str]) -> Finding:
    """Judge a check of what only boxes need: its name and what to do, if anything."""
    name, hint = check
    return warn(name, hint, "only code agents and builds need it") if hint else ok(name)


class _Answer(NamedTuple):
    body: str
    seconds: float


def _get(url: str) -> _Answer | None:
    """Return the response of one of our servers, without a proxy; None if there is none."""
    try:
        with httpx2.Client(
            timeout=_TIMEOUT_SECONDS, trust_env=False, verify=url.startswith("https:") and authorities()
        ) as client:
            began = time.monotonic()
            with client.stream("GET", url) as answer:
                body = next(answer.iter_bytes(_MAX_BYTES), b"").decode("utf-8", "replace")
                return _Answer(body, time.monotonic() - began) if answer.is_success else None
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return None
