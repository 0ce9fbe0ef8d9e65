"""A thousand jobs wait for a slow model in one worker, which is killed; each ends once.

The model streams: it greets a call at once and finishes its reply when it is told to, so that all calls are open at
the same time, through the real gateway. Counted are the worker's memory (proportional set size of all its processes),
and the time from an attempt's start to the first byte of its model.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil

from ledger.operations.history_reader import examine
from producers.local.embedded import Account, Embedded, Options
from routing.policy.platform import load_policy, platform_policy
from tests.chaos.options import Options as Scale
from tests.chaos.report import Report
from tests.chaos.samples import pss_bytes
from tests.policies import impatient_policy, write_policy
from tests.services import memory, wait_until

IN_FLIGHT = 1_000
MOST_MIB = 0.15
"""Of a waiting job, everything counted, where a thousand wait; the goal, 0.1, stands in `bench`."""
_WORKER = "worker-edits"
_PATIENCE_SECONDS = 240
_NUMBER = re.compile(rb"question (\d+)\b")
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def _event(kind: str, **data: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


class SlowModel:
    """A provider whose replies begin at once and end when it is told to let them."""

    def __init__(self, *, ping_seconds: float) -> None:
        self._ping_seconds = ping_seconds
        """By a ping that it passes on the gateway sees that a caller has gone."""
        self.first_bytes: dict[int, list[float]] = defaultdict(list)
        """By the question's number: when each of its calls was sent its first byte, in seconds since the epoch."""
        self.waiting = 0
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._may_end = asyncio.Event()

    def finish(self) -> None:
        """Let every reply end, now and later."""
        self._loop.call_soon_threadsafe(self._may_end.set)

    @contextmanager
    def serving(self) -> Iterator[SlowModel]:
        """Serve in a thread."""
        server = self._loop.run_until_complete(asyncio.start_server(self._reply, "127.0.0.1", 0, backlog=2048))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.run_until_complete(self._close(server))
            self._loop.close()

    async def _close(self, server: asyncio.Server) -> None:
        server.close()
        replies = asyncio.all_tasks() - {asyncio.current_task()}
        for reply in replies:
            reply.cancel()
        await asyncio.gather(*replies, return_exceptions=True)

    async def _reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            body = await reader.readexactly(int(length[1]) if length else 0)
            await self._stream(int(_NUMBER.findall(body)[-1]), writer)
        writer.close()

    async def _stream(self, number: int, writer: asyncio.StreamWriter) -> None:
        usage = {"input_tokens": 100, "output_tokens": 1}
        message = {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "claude-haiku-4-5-20251001",
            "usage": usage,
        }
        writer.write(_HEAD + _event("message_start", message={**message, "content": [], "stop_reason": None}))
        writer.write(_event("content_block_start", index=0, content_block={"type": "text", "text": ""}))
        await writer.drain()
        self.first_bytes[number].append(time.time())
        self.waiting += 1
        try:
            while not self._may_end.is_set():
                writer.write(_event("ping"))
                await writer.drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._may_end.wait(), self._ping_seconds)
        finally:
            self.waiting -= 1
        writer.write(_event("content_block_delta", index=0, delta={"type": "text_delta", "text": f"Answer {number}."}))
        writer.write(_event("content_block_stop", index=0))
        writer.write(_event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 9}))
        writer.write(_event("message_stop"))
        await writer.drain()


def run(scale: Scale, say: Callable[[str], None]) -> Report:
    """Let them wait, kill the worker, and see each of them to its one end."""
    jobs = min(scale.jobs, IN_FLIGHT)
    report = Report(f"{jobs} jobs wait for a slow model in one worker, which is killed")
    with (
        tempfile.TemporaryDirectory(prefix="pointsman-dense-", dir=memory(), ignore_cleanup_errors=True) as home,
        SlowModel(ping_seconds=0.5 if scale.is_short else 5).serving() as model,
    ):
        options = Options(
            home=Path(home) / "home",
            policy=_roomy_policy(Path(home), is_short=scale.is_short),
            api_port=0,
            account=Account("anthropic", {"API_KEY": "sk-chaos", "BASE_URL": model.url}),
            waiting=jobs,
            environment={"POINTSMAN_GATEWAY__UPSTREAM_CONNECTIONS": str(2 * jobs)},
            idle_children=0,
        )
        with Embedded(options, base_environment=os.environ) as fleet:
            _run(fleet, model, jobs, report, say)
    return report


def _run(fleet: Embedded, model: SlowModel, jobs: int, report: Report, say: Callable[[str], None]) -> None:
    assert fleet.supervisor is not None
    bodies = [{"prompt": f"Explain how bread rises, question {number}"} for number in range(jobs)]
    with httpx2.Client(base_url=fleet.api_url, timeout=120, trust_env=False) as client:
        client.headers["authorization"] = f"Bearer {fleet.api_key}"
        client.post("/v1/jobs/batch", json={"jobs": bodies}).raise_for_status()
    wait_until(lambda: model.waiting >= jobs, seconds=_PATIENCE_SECONDS, what="all jobs wait for the model")
    worker = psutil.Process(fleet.supervisor.pids()[_WORKER])
    weight = sum(pss_bytes(each.pid) for each in (worker, *worker.children(recursive=True))) / 2**20
    say(f"all {jobs} wait, in {weight:.0f} MiB; the worker is killed")
    fleet.supervisor.kill(_WORKER)
    wait_until(lambda: model.waiting == 0, seconds=60, what="the gateway has let go of the calls of the dead")
    fleet.supervisor.restart(_WORKER)
    wait_until(lambda: model.waiting >= jobs, seconds=_PATIENCE_SECONDS, what="all jobs wait for the model again")
    model.finish()
    ledger = fleet.open_ledger()
    try:
        with ledger.engine.connect() as connection:

            def rows(query: str) -> list[tuple[Any, ...]]:
                with connection.begin():
                    return [tuple(row) for row in connection.exec_driver_sql(query)]

            wait_until(
                lambda: rows("SELECT count(*) FROM job WHERE ended_at IS NULL") == [(0,)],
                seconds=_PATIENCE_SECONDS,
                what="every job has ended",
            )
            say("all have ended")
            _judge(report, rows, model, jobs, weight)
        verdict = examine(ledger.engine, load_policy(fleet.options.policy).retention)
    finally:
        ledger.close()
    broken = [f"{one.rule.value}: {one.subject} {one.detail}" for one in verdict.violations]
    report.promise("the history breaks no rule", broken)


def _judge(
    report: Report, rows: Callable[[str], list[tuple[Any, ...]]], model: SlowModel, jobs: int, weight: float
) -> None:
    states = dict(rows("SELECT state, count(*) FROM job GROUP BY state"))
    report.promise("each job is answered", [] if states == {"answered": jobs} else [str(states)])
    attempts = dict(
        rows(
            "SELECT tried, count(*) FROM (SELECT string_agg(outcome || ' ' || reason, ', ' ORDER BY number) AS tried"
            " FROM attempt GROUP BY job_id) AS each GROUP BY tried"
        )
    )
    once_more = {"lost worker_lost, answered done": jobs}
    report.promise("each was tried once more, and once", [] if attempts == once_more else [str(attempts)])
    ends = rows("SELECT job_id, count(*) FROM event WHERE kind = 'ended' GROUP BY job_id HAVING count(*) <> 1")
    report.promise("each ended once", [f"{job_id} ended {times} times" for job_id, times in ends])
    held = rows("SELECT id FROM call WHERE state = 'reserved'")
    report.promise("no money is held", [str(call) for call in held])
    started = {
        int(prompt.rpartition(" ")[2]): at
        for prompt, at in rows(
            "SELECT prompt, extract(epoch FROM min(attempt.started_at))"
            " FROM job JOIN attempt ON job_id = job.id GROUP BY job.id"
        )
    }
    waits = sorted(model.first_bytes[number][0] - float(at) for number, at in started.items())
    report.figures |= {
        "MiB of the worker": weight,
        "MiB of a waiting job": weight / jobs,
        "seconds to the first byte, p50": statistics.median(waits),
        "seconds to the first byte, p95": waits[int(0.95 * (len(waits) - 1))],
    }
    if jobs == IN_FLIGHT:
        is_light = weight / jobs <= MOST_MIB
        report.promise(f"a waiting job takes {MOST_MIB} MiB at most", [] if is_light else [f"{weight / jobs:.3f} MiB"])


def _roomy_policy(home: Path, *, is_short: bool) -> Path:
    """Write the shipped policy with room for one tenant's jobs at once, and time for all of them to wait."""
    values = impatient_policy() if is_short else platform_policy().model_dump(mode="json")
    values["admission"]["running_per_tenant"] = values["dispatch_window"]["per_tenant"] = 2 * IN_FLIGHT
    values["queues"]["answer"] |= {"soft_seconds": 280, "hard_seconds": 300}
    return write_policy(home / "policy.yaml", values)
