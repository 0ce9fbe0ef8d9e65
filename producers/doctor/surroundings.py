"""Looks at what an installation stands on: the broker, the disk, the gateway, the exporter, and the secrets."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx2
from pydantic import BaseModel, ConfigDict, Field
from redis import Redis
from redis.exceptions import RedisError

from producers.bootstrap import Installation
from producers.doctor.findings import (
    Finding,
    fail,
    judge_disk,
    judge_eviction,
    judge_lag,
    judge_persistence,
    judge_prices,
    ok,
    warn,
)
from producers.runway import open_broker
from routing.config import IN_FILE, PREFIX, read_settings
from routing.errors import PolicyError
from routing.policy import Policy
from routing.queues import QUEUES
from routing.transport import is_exposed_broker, is_exposed_ledger
from sandbox.disk import Disk
from sandbox.gateway.config import GatewayConfig
from sandbox.trust import authorities

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
        yield fail("den", seen, "POINTSMAN_DEN__ROOT needs a directory of this account's own on a POSIX file system, "
                                "the same for API, workers and dispatcher")  # fmt: skip
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
        yield warn("exporter", f"nothing answers at {place}",
                   "start `pointsman exporter`; if it is on another machine, ask from there")  # fmt: skip
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
