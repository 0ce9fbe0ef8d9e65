"""What does a job weigh that waits for its model? Our worker as it is, beside Celery's pools with a bare task.

The model never answers, so that all jobs wait at once. A figure is the proportional set size of the worker's processes,
by the jobs that wait: what is shared counts once.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import httpx2
import psutil
import yaml
from celery import Celery

from benchmarks.answer import Answer, Comparison, Unit
from benchmarks.environments import ROOT, python_with
from benchmarks.question import Survey, say
from gateway.fake_provider.config import FakeProviderConfig
from producers.local.embedded import Account, Embedded, Options
from routing.policy.platform import platform_policy
from tests.services import Valkey, wait_until

_PROCESSES = 6
"""Our jobs, and Celery's under prefork: each waits in a process of its own."""
_THREADS = 100
_DENSE = {50: 1.0, 200: 0.25, 1000: 0.1}
"""Our jobs at once in the pool of threads, and the MiB that each may take (issue 19)."""
_MIB = 2**20
_CELERY = ("celery[redis]==5.7.0", "anthropic==2.12.0", "gevent==26.9.0")
_PATIENCE_SECONDS = 120
_QUIET = subprocess.DEVNULL


class Silence:
    """A model that takes calls and says nothing."""

    def __enter__(self) -> Self:
        self._server = socket.create_server(("127.0.0.1", 0), backlog=max(_THREADS, *_DENSE))
        self._calls: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        for call in self._calls:
            call.close()

    def _accept(self) -> None:
        try:
            while True:
                self._calls.append(self._server.accept()[0])
        except OSError:
            return

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.getsockname()[1]}"

    @property
    def calls(self) -> int:
        """How many have come in."""
        return len(self._calls)


def measure(repetitions: int) -> Answer:
    """Measure one pool after the other."""
    weights = {
        "celery's prefork, a bare task": _celery("prefork", jobs=_PROCESSES, times=repetitions),
        "celery's threads, a bare task": _celery("threads", jobs=_THREADS, times=repetitions),
        "celery's gevent, a bare task": _celery("gevent", jobs=_THREADS, times=repetitions),
    }
    own = _ours("prefork", jobs=_PROCESSES, times=repetitions)
    dense = [_ours("dense", jobs=jobs, times=repetitions) for jobs in _DENSE]
    return Answer(
        question="Memory of a job that waits for its model",
        comparisons=tuple(
            Comparison(name[0].upper() + name[1:], own, theirs, unit=Unit.BYTES) for name, theirs in weights.items()
        )
        + tuple(
            Comparison(
                f"{limit:g} MiB, {jobs} jobs of `pointsman up` in threads",
                weight,
                (limit * _MIB,) * repetitions,
                target=1,
                unit=Unit.BYTES,
            )
            for (jobs, limit), weight in zip(_DENSE.items(), dense, strict=True)
        ),
        notes=(
            f"{_PROCESSES} jobs in processes, {_THREADS} in threads and greenlets; the parent process counts",
            "a worker of `pointsman up` shares pages with its other programs, and pays its part of them",
        ),
    )


def _ours(pool: str, *, jobs: int, times: int) -> tuple[float, ...]:
    say(f"memory: ours, {pool}, {jobs} jobs")
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-bench-", ignore_cleanup_errors=True))
        model = stack.enter_context(Silence())
        options = Options(
            home=Path(home),
            policy=_roomy_policy(Path(home)),
            fake_provider=FakeProviderConfig(speed="max"),
            api_port=0,
            account=Account("anthropic", {"API_KEY": "sk-bench", "BASE_URL": model.url}),
            waiting=jobs,
            environment={"POINTSMAN_GATEWAY__UPSTREAM_CONNECTIONS": str(2 * jobs)},
            idle_children=0,
        )
        fleet = stack.enter_context(Embedded(options, base_environment=os.environ))
        assert fleet.supervisor is not None
        if pool == "dense":
            worker = psutil.Process(fleet.supervisor.pids()["worker-edits"])
        else:
            fleet.supervisor.kill("worker-edits")
            argv = [sys.executable, "-m", "workers.main", "answer", "--pool", pool, "--concurrency", str(jobs)]
            worker = stack.enter_context(_running(argv, fleet.environment))
        headers = {"authorization": f"Bearer {fleet.api_key}"}
        bodies = {"jobs": [{"prompt": f"Explain how bread number {number} rises"} for number in range(jobs)]}
        url = f"{fleet.api_url}/v1/jobs/batch"
        httpx2.post(url, json=bodies, headers=headers, timeout=60, trust_env=False).raise_for_status()
        return _weighed(worker, model, jobs=jobs, times=times)


def _roomy_policy(home: Path) -> Path:
    """Write the shipped policy with room for one tenant's jobs at once, and time for all of them to wait."""
    values = platform_policy().model_dump(mode="json")
    values["admission"]["running_per_tenant"] = values["dispatch_window"]["per_tenant"] = 2000
    values["queues"]["answer"] |= {"soft_seconds": 280, "hard_seconds": 300}
    path = home / "policy.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def _celery(pool: str, *, jobs: int, times: int) -> tuple[float, ...]:
    say(f"memory: Celery's {pool}")
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="pointsman-bench-"))
        broker, model = stack.enter_context(Valkey(Path(home))), stack.enter_context(Silence())
        options = f"--pool {pool} --concurrency {jobs} --without-mingle --without-gossip".split()
        argv = [str(python_with(_CELERY)), "-m", "celery", "-A", "benchmarks.peers.waiting", "worker", *options]
        worker = stack.enter_context(_running(argv, {"BENCH_BROKER": broker.url, "BENCH_MODEL": model.url}))
        app = Celery(broker=broker.url, set_as_current=False)
        stack.callback(app.close)
        for number in range(jobs):
            app.send_task("ask", args=[number])
        return _weighed(worker, model, jobs=jobs, times=times)


def _weighed(worker: psutil.Process, model: Silence, *, jobs: int, times: int) -> tuple[float, ...]:
    wait_until(lambda: model.calls >= jobs, seconds=_PATIENCE_SECONDS, what=f"{jobs} jobs wait for the model")
    weights = []
    for _ in range(times):
        time.sleep(0.5)
        processes = [worker, *worker.children(recursive=True)]
        weights.append(sum(process.memory_full_info().pss for process in processes) / jobs)
    return tuple(weights)


@contextmanager
def _running(argv: Sequence[str], environment: Mapping[str, str]) -> Iterator[psutil.Process]:
    """Run a worker, and leave nothing of it: its jobs would wait for ever."""
    process = subprocess.Popen(
        argv, cwd=ROOT, env=os.environ | dict(environment), stdin=_QUIET, stdout=_QUIET, stderr=_QUIET
    )
    worker = psutil.Process(process.pid)
    try:
        yield worker
    finally:
        for each in [worker, *worker.children(recursive=True)]:
            each.kill()
        process.wait(10)


QUESTION = Survey("memory", measure, repetitions=3)
