"""`python -m workers.main QUEUE...`: a real Celery prefork worker for one or several queues.

The composition root of the workers: the only module here that reads the environment or has effects when it runs.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

from celery import Celery
from pydantic import BaseModel, ConfigDict

from monitoring.config import LedgerConfig, LogsConfig
from monitoring.ledger.store import Ledger, create_ledger_engine
from routing.accounts import AccountsConfig
from routing.app import create_app
from routing.config import BrokerConfig, PolicyConfig, read_settings, secrets_of, without_settings
from routing.errors import PolicyError
from routing.policy import Policy, load_policy
from routing.tiers import QueueName
from routing.vocabularies import load_vocabularies
from sandbox.config import BoxConfig, DenConfig
from sandbox.den import Den
from workers.boxes import BoxPool, NoBoxes, PoolOnDemand
from workers.config import RunsConfig, WorkerConfig
from workers.lifecycle import Resources
from workers.pool import PoolHooks
from workers.scratch import take_scratch

PROVIDERS = "pointsman.tasks"
"""Entry point group of everything that registers tasks."""

QUEUES_WITH_BOXES = frozenset({QueueName.AGENT, QueueName.PATCH, QueueName.STEPS})
"""Whose workers reach an engine, for builds at least; all others never load its client (H-088, H-119)."""
QUEUES_WITH_SPARES = frozenset({QueueName.AGENT})
"""Whose workers keep boxes ready."""


class WorkerSettings(BaseModel):
    """The sections a worker reads."""

    model_config = ConfigDict(frozen=True)

    ledger: LedgerConfig = LedgerConfig()
    broker: BrokerConfig = BrokerConfig()
    policy: PolicyConfig = PolicyConfig()
    den: DenConfig = DenConfig()
    logs: LogsConfig = LogsConfig()
    worker: WorkerConfig = WorkerConfig()
    box: BoxConfig = BoxConfig()
    accounts: AccountsConfig = AccountsConfig()
    runs: RunsConfig = RunsConfig()


class ProcessResources:
    """Opens the ledger and the Den once in each process: connections must not cross a fork."""

    def __init__(self, settings: WorkerSettings, policy: Policy, *, worker: str, queues: Collection[str]) -> None:
        self._settings = settings
        self._policy = policy
        self._worker = worker
        self._opened: tuple[int, Resources] | None = None
        self._has_spares = not QUEUES_WITH_SPARES.isdisjoint(queues)
        self._boxes = NoBoxes() if QUEUES_WITH_BOXES.isdisjoint(queues) else PoolOnDemand(self._open_pool)

    def __call__(self) -> Resources:
        """Return this process's resources."""
        pid = os.getpid()
        if self._opened is None or self._opened[0] != pid:
            self._opened = (pid, self._open())
        return self._opened[1]

    def ledger(self) -> Ledger:
        """Return this process's ledger."""
        return self().ledger

    def prepare(self) -> None:
        """Begin, right after the fork, what takes long: boxes and the sweeping of what dead workers left."""
        if self._has_spares:
            self._boxes.prepare()

    def close(self) -> None:
        """Leave nothing behind on an engine. Called at the end of a pool child."""
        self._boxes.close()

    def _open_pool(self) -> BoxPool:
        from workers.engine import open_engine_pool

        config = self._settings.box
        return open_engine_pool(config if self._has_spares else config.model_copy(update={"warm": 0}))

    def _open(self) -> Resources:
        return Resources(
            ledger=Ledger(create_ledger_engine(self._settings.ledger.url.get_secret_value(), pool_size=2)),
            den=Den(self._settings.den.root),
            policy=self._policy,
            gateway_url=self._settings.worker.gateway_url,
            worker=self._worker,
            boxes=self._boxes,
            known_keys=secrets_of(self._settings),
            accounts=self._settings.accounts,
            runs=self._settings.runs,
            environment=without_settings(os.environ),
        )


def build_worker(
    settings: WorkerSettings, *, worker: str, queues: Collection[str] = (), overrides: Mapping[str, Any] | None = None
) -> tuple[Celery, PoolHooks]:
    """Return a worker's application with every provider's tasks, and the hooks that must stay alive with it."""
    policy = load_policy(settings.policy.path)
    vocabularies = load_vocabularies(settings.policy.vocabulary)
    app = create_app(
        settings.broker.url,
        worker_max_tasks_per_child=settings.worker.max_tasks_per_child,
        worker_max_memory_per_child=settings.worker.max_memory_kib_per_child,
    )
    resources = ProcessResources(settings, policy, worker=worker, queues=queues)
    for provider in sorted(entry_points(group=PROVIDERS), key=lambda point: point.name):
        register: Callable[..., None] = provider.load()
        register(
            app, resources=resources, ledger=resources.ledger, policy=policy, environment=_environment,
            vocabularies=vocabularies,
            **(overrides or {}),
        )  # fmt: skip
    hooks = PoolHooks(
        _ledger_for_parent(settings), log_level=settings.logs.level, worker=worker,
        prepare=resources.prepare, close=resources.close,
    )  # fmt: skip
    hooks.connect()
    return app, hooks


def _ledger_for_parent(settings: WorkerSettings) -> Callable[[], Ledger]:
    def open_ledger() -> Ledger:
        return Ledger(create_ledger_engine(settings.ledger.url.get_secret_value(), pool_size=0))

    return open_ledger


def _environment() -> Mapping[str, str]:
    return os.environ


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="pointsman worker", description="Work off one or several queues.")
    served = [queue.value for queue in QueueName if queue != QueueName.UNROUTED]
    parser.add_argument("queues", nargs="+", choices=served, metavar="QUEUE", help=", ".join(served))
    parser.add_argument("--concurrency", type=int, default=2, help="processes in the pool (default 2)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a worker until it is told to stop."""
    arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
    take_scratch()
    worker = f"{'+'.join(arguments.queues)}@{socket.gethostname()}.{os.getpid()}"
    try:
        settings = read_settings(WorkerSettings, os.environ)
        app, hooks = build_worker(settings, worker=worker, queues=arguments.queues)
    except PolicyError as error:
        print(f"pointsman worker: {error}", file=sys.stderr)
        return 2
    run_worker(app, arguments.queues, concurrency=arguments.concurrency, worker=worker)
    del hooks
    return 0


def run_worker(app: Celery, queues: Sequence[str], *, concurrency: int, worker: str) -> None:
    """Run Celery's worker in this process."""
    app.worker_main([
        "worker", "--pool", "prefork", "--concurrency", str(concurrency), "--queues", ",".join(queues),
        "--hostname", worker, "--without-mingle", "--without-gossip", "--without-heartbeat", "--loglevel", "INFO",
    ])  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
