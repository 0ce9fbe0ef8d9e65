"""`python -m workers.main QUEUE...`: a Celery worker for one or several queues.

The composition root of the workers: the only module here that reads the environment or has effects when it runs.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING

from celery import Celery
from pydantic import BaseModel, ConfigDict
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import configure_mappers

from gateway.fleet_budget import FleetBudget
from ledger.errors import SchemaMismatchError, TracingUnavailableError
from ledger.events import EventKind, record
from ledger.operations.workers import WorkerStatus
from ledger.store import Ledger, await_schema, create_ledger_engine
from monitoring import logs, traces
from monitoring.config import CellsConfig, LedgerConfig, LogsConfig, TracingConfig
from monitoring.heartbeat import beat
from routing.broker import create_app, list_of
from routing.config import BrokerConfig, PolicyConfig, collect_secrets, read_settings, strip_settings
from routing.errors import PolicyError
from routing.policy.agents import AccountsConfig
from routing.policy.platform import Policy, load_policy
from routing.prompt.vocabulary import load_vocabularies
from routing.queues import QUEUES, QueueName
from sandbox.config import BoxConfig
from sites.config import ContentStoreConfig
from sites.content_store import open_content_store
from sites.spec.languages.translation import MAX_CHUNKS
from workers.boxes import EnginePool, PoolOnDemand, no_boxes, open_engine_pool
from workers.compute import FORK_SECONDS, Children, ignore_stops
from workers.config import RunsConfig, WorkerConfig
from workers.dense import allow_files, pool_with
from workers.errors import TooFewFilesError
from workers.handlers.agent import session_plan
from workers.heartbeat import WorkerHeartbeat, install_heartbeat
from workers.lifecycle import Handler, Resources
from workers.pool import PoolHooks, become_pool_child
from workers.scratch import create_scratch
from workers.tasks import HANDLERS, register_tasks

if TYPE_CHECKING:
    from sandbox.pool import Swept


logger = logging.getLogger(__name__)

_CONCURRENCY = {"prefork": 2, "dense": 50}
"""Jobs at once, unless the operator says otherwise."""
_CONNECTIONS = {"prefork": 2, "dense": 8}
"""To the ledger that a process keeps open; it opens as many again when they are busy."""


class WorkerSettings(BaseModel):
    """The sections a worker reads."""

    model_config = ConfigDict(frozen=True)

    ledger: LedgerConfig = LedgerConfig()
    broker: BrokerConfig = BrokerConfig()
    policy: PolicyConfig = PolicyConfig()
    content_store: ContentStoreConfig = ContentStoreConfig()
    logs: LogsConfig = LogsConfig()
    tracing: TracingConfig = TracingConfig()
    worker: WorkerConfig = WorkerConfig()
    box: BoxConfig = BoxConfig()
    accounts: AccountsConfig = AccountsConfig()
    runs: RunsConfig = RunsConfig()
    cells: CellsConfig = CellsConfig()


class ProcessResources:
    """Opens the ledger and the content store once per process: connections must not cross a fork."""

    def __init__(
        self, settings: WorkerSettings, policy: Policy, *, worker: str, queues: Collection[str], pool: str = "prefork"
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._worker = worker
        self._pool = pool
        self._opened: tuple[int, Resources] | None = None
        self._opening = threading.Lock()
        served = [QUEUES[QueueName(queue)] for queue in queues]
        self._has_spares = any(queue.box == "warm" for queue in served)
        # A worker whose queues need no box never loads the engine's client (H-088, H-119).
        needs_box = any(queue.needs_box for queue in served)
        self._boxes = PoolOnDemand(self._open_pool, most=settings.box.at_once) if needs_box else no_boxes()

    def __call__(self) -> Resources:
        """Return this process's resources."""
        pid = os.getpid()
        with self._opening:
            if self._opened is None or self._opened[0] != pid:
                self._opened = (pid, self._open())
            return self._opened[1]

    def prepare(self) -> None:
        """Start what takes long, right after the fork: boxes, and the sweep of what dead workers left."""
        if self._has_spares:
            self._boxes.prepare()

    def close(self) -> None:
        """Leave nothing behind on an engine. Called at the end of a pool child."""
        self._boxes.close()

    def _open_pool(self) -> EnginePool:
        config = self._settings.box
        mine = config if self._has_spares else config.model_copy(update={"warm": 0})
        return open_engine_pool(mine, on_swept=self._record_swept, session=session_plan(self._policy))

    def _record_swept(self, swept: Swept) -> None:
        """Record for the metrics what dead workers left behind; an unreachable ledger misses it."""
        try:
            with self().ledger.begin() as session:
                record(
                    session, EventKind.REAPED, container=swept.containers, network=swept.networks, volume=swept.volumes
                )
        except DBAPIError:
            logger.warning("ledger_unreachable")

    def _open(self) -> Resources:
        return Resources(
            ledger=_open_ledger(self._settings.ledger, pool_size=_CONNECTIONS[self._pool]),
            content_store=open_content_store(self._settings.content_store),
            policy=self._policy,
            gateway_url=self._settings.worker.gateway_url,
            worker=self._worker,
            boxes=self._boxes,
            known_keys=collect_secrets(self._settings),
            accounts=self._settings.accounts,
            runs=self._settings.runs,
            environment=strip_settings(os.environ),
            fleet=FleetBudget(self._settings.cells),
        )


def _open_ledger(config: LedgerConfig, *, pool_size: int) -> Ledger:
    url, pooler_url = config.url.get_secret_value(), config.pooler_url.get_secret_value()
    return Ledger(create_ledger_engine(url, pooler_url=pooler_url, pool_size=pool_size))


def build_worker(
    settings: WorkerSettings,
    *,
    worker: str,
    queues: Collection[str] = (),
    concurrency: int = _CONCURRENCY["prefork"],
    children: Children | None = None,
    handlers: Mapping[QueueName, Handler] = HANDLERS,
) -> tuple[Celery, PoolHooks]:
    """Return a worker's application with the tasks of every queue, and the hooks that must stay alive with it.

    With `children`, which compute for it, it works in threads.
    """
    pool = "prefork" if children is None else "dense"
    configure_mappers()  # once here: in a pool child it takes as long as a dozen small jobs
    policy = load_policy(settings.policy.path)
    takes_in = QueueName.INTAKE in queues  # 16 MiB of words that no other queue's work looks for
    vocabularies = load_vocabularies(settings.policy.vocabulary) if takes_in else None
    app = create_app(
        settings.broker.url,
        broker_use_ssl=settings.broker.tls,
        worker_pool="prefork" if children is None else pool_with(children),
        worker_max_tasks_per_child=settings.worker.max_tasks_per_child,
        worker_max_memory_per_child=settings.worker.max_memory_kib_per_child,
    )
    resources = ProcessResources(settings, policy, worker=worker, queues=queues, pool=pool)
    register_tasks(
        app,
        resources=resources,
        policy=policy,
        environment=lambda: os.environ,
        vocabularies=vocabularies,
        handlers=handlers,
    )

    @cache  # keeps no connection, but what SQLAlchemy asks of a server only once
    def open_ledger() -> Ledger:
        return _open_ledger(settings.ledger, pool_size=0)

    heartbeat = WorkerHeartbeat(
        open_ledger,
        WorkerStatus(id=worker, host=socket.gethostname(), pid=os.getpid(), queues=tuple(queues), slots=concurrency),
    )
    hooks = PoolHooks(
        heartbeat,
        settings.worker,
        log_level=settings.logs.level,
        prepare=resources.prepare,
        close=resources.close,
    )
    hooks.connect()
    file = settings.worker.heartbeat
    install_heartbeat(app, heartbeat.pulse, *(() if file is None else (partial(beat, file),)))
    return app, hooks


def start_children(settings: WorkerSettings) -> Children:
    """Start what computes for a pool of threads."""
    children = _children(settings)
    children.start()
    return children


def _children(settings: WorkerSettings) -> Children:
    config = settings.worker

    def prepare() -> None:
        logs.configure_logging(level=settings.logs.level)
        become_pool_child(config.most_memory_kib_per_child)

    return Children(
        prepare,
        most_calls=config.max_tasks_per_child,
        most_kib=config.max_memory_kib_per_child,
        order_keeper=None if config.fork_server is None else partial(_order_keeper, config.fork_server),
    )


def _order_keeper(fork_server: int, orders: socket.socket) -> int:
    """Have a keeper forked that is this program with other arguments; returns a descriptor of its process."""
    environment = {**os.environ, "TMPDIR": tempfile.gettempdir()}
    order = {"name": "worker-compute", "argv": ["workers.main", "--compute"], "environment": environment}
    server, (ours, theirs) = socket.socket(fileno=os.dup(fork_server)), socket.socketpair()
    with server, ours, theirs:
        socket.send_fds(server, [b"1"], [theirs.fileno(), sys.stderr.fileno(), orders.fileno()])
        theirs.close()
        ours.settimeout(FORK_SECONDS)
        ours.sendall(f"{json.dumps(order)}\n".encode())
        _, [keeper], _, _ = socket.recv_fds(ours, 64, 1)
    return keeper


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="pointsman worker", description="Work on one or several queues.")
    served = [queue.value for queue in QUEUES]
    parser.add_argument("queues", nargs="*", metavar="QUEUE", help=", ".join(served))
    parser.add_argument("--concurrency", type=int, help="jobs at once (default 2, in a dense pool 50)")
    bound = [name.value for name, queue in QUEUES.items() if queue.is_model_bound]
    parser.add_argument(
        "--pool",
        choices=tuple(_CONCURRENCY),
        help=f"a process for each job, or a thread (dense: only {', '.join(bound)}, and the default there)",
    )
    parser.add_argument(
        "--idle-children", type=int, help="processes that the pool keeps while it has nothing to do (default all)"
    )
    parser.add_argument("--compute", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.compute is None and not (arguments.queues and set(arguments.queues) <= set(served)):
        parser.error(f"name one or several queues of {', '.join(served)}")
    is_bound = set(arguments.queues) <= set(bound)
    arguments.pool = arguments.pool or ("dense" if is_bound else "prefork")
    arguments.concurrency = arguments.concurrency or _CONCURRENCY[arguments.pool]
    if arguments.pool == "dense" and not is_bound:
        parser.error(f"the dense pool serves only {', '.join(bound)}")
    if arguments.pool == "dense" and arguments.idle_children is not None:
        parser.error("--idle-children is for the processes of the prefork pool")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run a worker until it is told to stop."""
    arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
    worker = f"{'+'.join(arguments.queues)}@{socket.gethostname()}.{os.getpid()}"
    try:
        settings = read_settings(WorkerSettings, os.environ)
        if arguments.compute is not None:
            ignore_stops()
            _children(settings).keep(socket.socket(fileno=arguments.compute))
            return 0
        create_scratch()
        children = None
        if arguments.pool == "dense":
            children = start_children(settings)
            allow_files(arguments.concurrency, sockets=MAX_CHUNKS if QueueName.SPEC in arguments.queues else 1)
        traces.start(settings.tracing, program="worker")
        await_schema(settings.ledger.url.get_secret_value(), patience_seconds=settings.ledger.migration_wait_seconds)
        with _frozen_heap():
            app, hooks = build_worker(
                settings,
                worker=worker,
                queues=arguments.queues,
                concurrency=arguments.concurrency,
                children=children,
            )
    except (TooFewFilesError, PolicyError, SchemaMismatchError, TracingUnavailableError) as error:
        print(f"pointsman worker: {error}", file=sys.stderr)
        return 2
    try:
        lists = [list_of(QueueName(queue)) for queue in arguments.queues]
        run_worker(
            app,
            lists,
            concurrency=arguments.concurrency,
            worker=worker,
            idle_children=arguments.idle_children,
        )
    finally:
        hooks.finish()
    return 0


@contextmanager
def _frozen_heap() -> Iterator[None]:
    """Freeze what exists at the end, so that no collection touches it and no child copies it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def run_worker(
    app: Celery, lists: Sequence[str], *, concurrency: int, worker: str, idle_children: int | None = None
) -> None:
    """Run Celery's worker in this process.

    With fewer `idle_children` than `concurrency`, others are forked for work, and end when there has been none for
    half a minute.
    """
    is_fixed = idle_children is None or idle_children >= concurrency
    app.Worker(  # as `app.worker_main` does, without the 8 MiB of Celery's command line
        hostname=worker,
        queues=lists,
        concurrency=concurrency,
        autoscale=None if is_fixed else (concurrency, idle_children),
        without_mingle=True,
        without_gossip=True,
        without_heartbeat=True,
        loglevel="INFO",
    ).start()


if __name__ == "__main__":
    sys.exit(main())
