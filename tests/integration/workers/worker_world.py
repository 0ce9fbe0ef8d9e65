"""Real Celery workers as processes of their own, on a real broker and a real ledger, with work that misbehaves."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from redis import Redis
from sqlalchemy.exc import SQLAlchemyError

from ledger.store import Ledger, create_ledger_engine
from producers.config import DispatcherConfig
from producers.dispatch.broker import BrokerLists, Publisher
from producers.dispatch.dispatcher import Dispatcher
from producers.local.supervisor import Forked, ForkServer, Program, python_module
from routing.broker import create_app
from routing.policy.platform import Policy
from routing.queues import QUEUES, QueueName
from sites.content_store import ContentStore
from sites.ownership import adopt
from tests.factories import Shop
from tests.policies import impatient_policy, write_policy
from tests.services import Valkey, wait_until
from workers.lifecycle import install_interrupts

MODULE = "tests.integration.workers.misbehaving_worker"


class Proxy:
    """A TCP proxy to the broker whose connections can fall silent without being closed, as after a lost route."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._flows = threading.Event()
        self._flows.set()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def freeze(self) -> None:
        """Let no byte through any more, on these connections for ever."""
        self._flows.clear()

    def thaw(self) -> None:
        """Let new connections through."""
        self._flows = threading.Event()
        self._flows.set()

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                flows = self._flows
                if not flows.is_set():
                    continue
                if (server := self._reach()) is None:
                    client.close()  # as a port at which nobody listens, and the next one is accepted all the same
                    continue
                self._sockets.append(server)
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(source, sink, flows), daemon=True).start()

    def _reach(self) -> socket.socket | None:
        try:
            return socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            return None

    def _pump(self, source: socket.socket, sink: socket.socket, flows: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not flows.is_set():
                    return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def soft_limit_after(seconds: float) -> Iterator[None]:
    """Send the signal that the pool sends at the soft time limit."""
    before = signal.getsignal(signal.SIGUSR1)
    install_interrupts()
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGUSR1, before)


@cache
def fork_server() -> ForkServer:
    """Start the process from which workers are forked, as `pointsman up` does: their imports take seconds."""
    home = Path(tempfile.mkdtemp(prefix="pointsman-workers-"))
    server = ForkServer(
        ("celery.apps.worker", "celery.worker.consumer", MODULE), database=home, environment=os.environ, logs=home
    )

    def end() -> None:
        server.close()
        shutil.rmtree(home)

    atexit.register(end)
    return server


@dataclass
class Worker:
    """One worker: its process, and what its tasks said."""

    process: subprocess.Popen[bytes] | Forked
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def started(self, prompt: str) -> list[int]:
        """The pool children that began with a job, once for each beginning."""
        return [int(pid) for pid in re.findall(rf"^begin {re.escape(prompt)} (\d+)$", self.said, re.MULTILINE)]

    def send(self, signum: int) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signum)

    def wait(self, seconds: float) -> int:
        return self.process.wait(seconds)


@dataclass
class World:
    """A ledger, a broker, a dispatcher that looks ten times a second, and workers."""

    shop: Shop
    valkey: Valkey
    home: Path
    policy_changes: dict[str, dict[str, Any]] = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        adopt(self.shop.ledger, ContentStore(self.files))  # as a dispatcher does at its start

    @property
    def files(self) -> Path:
        """The content store's directory."""
        return self.home / "content-store"

    @property
    def policy(self) -> Policy:
        values = impatient_policy()
        for queue, limits in self.policy_changes.items():
            values["queues"][queue] |= limits
        return Policy.model_validate(values)

    def start(
        self,
        *queues: str,
        ready: bool = True,
        concurrency: int = 1,
        pool: str = "prefork",
        prefix: Sequence[str] = (),
        **settings: Any,
    ) -> Worker:
        """Start a worker. `settings` become its environment: `worker__stop_seconds=1` and the like."""
        number = len(self.workers)
        log = self.home / f"worker-{number}.log"
        policy = write_policy(self.home / f"policy-{number}.yaml", self.policy.model_dump(mode="json"))
        mine = {"ledger__url": self.shop.url, "broker__url": self.valkey.url, "policy__path": str(policy)}
        mine |= {"content_store__root": str(self.files)}
        own = {f"POINTSMAN_{name.upper()}": str(value) for name, value in (mine | settings).items()}
        environment = os.environ | own
        argv = python_module(MODULE, pool, str(concurrency), *queues)
        process: subprocess.Popen[bytes] | Forked
        with log.open("wb") as out:
            process = (
                subprocess.Popen([*prefix, *argv], env=environment, stdout=out, stderr=out, start_new_session=True)
                if prefix
                else fork_server().fork(Program(log.stem, argv), environment, log=out.fileno())
            )
        worker = Worker(process, log)
        self.workers.append(worker)
        if ready:
            wait_until(lambda: " ready." in worker.said or process.poll(), seconds=90, what="the worker is ready")
            assert process.poll() is None, worker.said
        return worker

    def ask(self, prompt: str, queue: QueueName = QueueName.ANSWER, **fields: Any) -> UUID:
        """Let a job wait on a queue; one that writes a site has a site of its own."""
        tier = QUEUES[queue].tier
        if tier is not None:
            fields = {"site_id": self.shop.site(f"site-{uuid4().hex}"), **fields}
        return self.shop.accept(tier=tier, queue=queue, prompt=prompt, **fields)

    def ended(self, job_id: UUID, *, seconds: float = 30) -> Any:
        return wait_until(
            lambda: (job := self.shop.job(job_id)).ended_at and job, seconds=seconds, what="the job has ended"
        )

    def running(self, worker: Worker, prompt: str, *, seconds: float = 20) -> int:
        """Wait until a job is worked on, and return the pool child that does."""
        wait_until(lambda: worker.started(prompt), seconds=seconds, what=f"{prompt!r} is worked on")
        return worker.started(prompt)[-1]

    def attempts(self, job_id: UUID) -> list[tuple[str | None, str | None]]:
        rows = self.shop.rows("SELECT outcome, reason FROM attempt WHERE job_id = :id ORDER BY number", id=job_id)
        return [tuple(row) for row in rows]

    def broker(self) -> Redis:
        return Redis.from_url(self.valkey.url, decode_responses=True)

    @contextmanager
    def dispatching(self, *, pooler_url: str = "") -> Iterator[None]:
        """Run a dispatcher of this world in a thread."""
        stopping = threading.Event()
        ledger = Ledger(create_ledger_engine(self.shop.url, pooler_url=pooler_url, pool_size=2))
        app, lists = create_app(self.valkey.url), BrokerLists(self.valkey.url)
        dispatcher = Dispatcher(
            ledger,
            Publisher(app),
            lists,
            policy=self.policy,
            config=DispatcherConfig(missing_after_seconds=0.5),
            holder="world",
            signing_key=b"k" * 32,
        )

        def loop() -> None:
            while not stopping.wait(0.1):
                with suppress(SQLAlchemyError):
                    dispatcher.run_once()

        thread = threading.Thread(target=loop)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()
            lists.close()
            app.close()
            ledger.close()

    def stop(self) -> None:
        for worker in self.workers:
            worker.send(signal.SIGKILL)
            worker.process.wait(10)
