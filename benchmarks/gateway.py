"""What does the gateway add to a call, how many does it carry, and what does it weigh? Beside LiteLLM's proxy.

Ours reserves and settles each call in a PostgreSQL that waits for its disk. LiteLLM runs as lean as it can: no
database, no Redis, no log of what was spent. Behind each is the same model, which answers at once.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil
from sqlalchemy import text

from benchmarks.answer import OURS, Answer, Comparison, Unit
from benchmarks.environments import ROOT, python_with
from benchmarks.jobs import accepted, claimed
from benchmarks.load import Callers
from benchmarks.question import Survey, say
from benchmarks.race import EndedError, Peer, Race, Turn
from ledger.operations.migrate import migrate
from ledger.store import Ledger, create_ledger_engine
from ledger.tables import Tenant
from producers.local.preparation import start_postgres
from producers.local.supervisor import free_port
from tests.services import wait_until

AT_ONCE = 32
_LITELLM = ("litellm[proxy]==1.106.2", "fastapi==0.165.0")
_NAME = "LiteLLM's proxy 1.106.2, one worker"
_FLOOR = "an aiohttp pass-through that counts nothing"
_PATIENCE_SECONDS = 180
_KEY = "sk-bench"
_SERVE = """
import sys
from routing.policy.platform import platform_policy
from gateway.config import GatewayConfig
from gateway.server import serve
serve(GatewayConfig.model_validate_json(sys.argv[1]), sys.argv[2], platform_policy())
"""


@dataclass(frozen=True)
class Way:
    """A way to the model."""

    url: str
    tokens: Sequence[str]
    pid: int


Open = Callable[[str], AbstractContextManager[Way]]
"""Starts a way to the model at a URL."""


@contextmanager
def ours(model_url: str) -> Iterator[Way]:
    """Run a gateway of ours, and let as many jobs hold a token as calls are made at once."""
    port = free_port()
    provider = {"base_url": model_url, "api_key": _KEY, "label": "bench"}
    # Not below a directory of root's own: as root the server runs as another user, who has no way in there.
    with tempfile.TemporaryDirectory(prefix="pointsman-bench-", ignore_cleanup_errors=True) as home:
        Path(home).chmod(0o755)
        journal = str(Path(home) / "journal")
        config = {"port": port, "pepper": "p" * 20, "providers": {"bench": provider}, "journal": journal}
        server = start_postgres(Path(home) / "data")
        try:
            url = server.get_uri(database="postgres")
            tokens = _tokens(url)
            with _running([sys.executable, "-c", _SERVE, json.dumps(config), url], port, path="/healthz") as process:
                yield Way(f"http://127.0.0.1:{port}", tokens, process.pid)
        finally:
            server.cleanup()


@contextmanager
def litellm(model_url: str) -> Iterator[Way]:
    """Run LiteLLM's proxy."""
    model = {"model": "anthropic/claude-haiku-4-5-20251001", "api_base": model_url, "api_key": _KEY}
    config = {
        "model_list": [{"model_name": "claude-haiku-4-5-20251001", "litellm_params": model}],
        "general_settings": {"master_key": _KEY},
    }
    python, port = python_with(_LITELLM), free_port()
    with tempfile.TemporaryDirectory(prefix="pointsman-bench-") as home:
        path = Path(home) / "config.yaml"
        path.write_text(json.dumps(config))
        options = f"--port {port} --num_workers 1 --host 127.0.0.1 --telemetry False".split()
        argv = [str(python.parent / "litellm"), "--config", str(path), *options]
        more = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION"}
        with _running(argv, port, path="/health/liveliness", environment=more) as process:
            yield Way(f"http://127.0.0.1:{port}", [_KEY] * AT_ONCE, process.pid)


@contextmanager
def pass_through(model_url: str) -> Iterator[Way]:
    """Run what hands on calls and does nothing else."""
    port = free_port()
    argv = [sys.executable, "-m", "benchmarks.peers.pass_through", str(port), model_url]
    with _running(argv, port, path="/v1/messages") as process:
        yield Way(f"http://127.0.0.1:{port}", [_KEY] * AT_ONCE, process.pid)


@contextmanager
def model() -> Iterator[str]:
    """Run the model."""
    port = free_port()
    with _running([sys.executable, "-m", "benchmarks.peers.model", str(port)], port, path="/"):
        yield f"http://127.0.0.1:{port}"


def added(open_way: Open) -> Callable[[], AbstractContextManager[Turn]]:
    """Return a side whose operation costs what a way adds to a call, at the median, beside direct ones."""

    @contextmanager
    def start() -> Iterator[Turn]:
        with model() as url, open_way(url) as way, _calling(way) as via, _calling(Way(url, [_KEY], 0)) as direct:

            def turn(times: int) -> float:
                pairs = [(via.each(1)[0], direct.each(1)[0]) for _ in range(times)]
                through, straight = map(statistics.median, zip(*pairs, strict=True))
                return times * (through - straight)

            yield turn

    return start


def capacity(open_way: Open) -> Callable[[], AbstractContextManager[Turn]]:
    """Return a side whose operation is a call, with many at once under way."""

    @contextmanager
    def start() -> Iterator[Turn]:
        with model() as url, open_way(url) as way, _calling(way) as callers:
            yield callers.together

    return start


def weigh(repetitions: int) -> Answer:
    """Return what each process weighs, after every few hundred calls at once that it carries."""
    own, theirs, floor = (_weights(name, open_way, repetitions) for name, open_way in _WAYS.items())
    return Answer(
        question=f"Memory of the gateway's process, after every {_CALLS} calls",
        comparisons=(
            Comparison(_NAME, own, theirs, target=3, unit=Unit.BYTES),
            Comparison(_FLOOR, own, floor, unit=Unit.BYTES),
        ),
    )


_CALLS = 320


_WAYS: Mapping[str, Open] = {OURS: ours, _NAME: litellm, _FLOOR: pass_through}


def _weights(name: str, open_way: Open, times: int) -> tuple[float, ...]:
    """Start a way once: its weight differs from start to start by less than a hundredth."""
    say(f"gateway-memory: {name}")
    with model() as url, open_way(url) as way, _calling(way) as callers:
        return tuple(_weight(way, callers) for _ in range(times))


def _weight(way: Way, callers: Callers) -> float:
    callers.together(_CALLS)
    process = psutil.Process(way.pid)
    return float(sum(each.memory_full_info().pss for each in (process, *process.children(recursive=True))))


@contextmanager
def _calling(way: Way) -> Iterator[Callers]:
    callers = Callers(way.url, way.tokens)
    try:
        yield callers
    finally:
        callers.close()


@contextmanager
def _running(
    argv: Sequence[str], port: int, *, path: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until it is no longer wanted; gives it once it answers."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        argv, cwd=ROOT, env=os.environ | (environment or {}), stdin=quiet, stdout=quiet, stderr=quiet
    ) as process:
        try:
            _await(process, port, path)
            yield process
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _await(process: subprocess.Popen[bytes], port: int, path: str) -> None:
    name = Path(process.args[0]).name  # type: ignore[index,arg-type]
    try:
        wait_until(lambda: _answers(process, port, path), seconds=_PATIENCE_SECONDS, what=f"{name} answers")
    except AssertionError as late:
        raise EndedError(str(late)) from None
    if process.poll() is not None:
        raise EndedError(f"{name} ended with status {process.returncode}")


def _answers(process: subprocess.Popen[bytes], port: int, path: str) -> bool:
    """Tell whether there is something to wait for no longer: it answers, or it ended."""
    if process.poll() is not None:
        return True
    try:
        httpx2.post(f"http://127.0.0.1:{port}{path}", content=b"{}", timeout=5, trust_env=False)
    except httpx2.HTTPError:
        return False
    return True


def _tokens(ledger_url: str) -> list[str]:
    """Make a ledger in which as many jobs run as calls are made at once; return their tokens."""
    engine = create_ledger_engine(ledger_url, pool_size=1)
    migrate(engine)
    ledger = Ledger(engine)
    with ledger.begin() as session:
        session.add(Tenant(name="bench", provider="bench"))
    tokens = [claimed(ledger, accepted(ledger)).token for _ in range(AT_ONCE)]
    with ledger.begin() as session:  # the benchmark takes longer than the job may
        session.execute(
            text("UPDATE attempt SET deadline = now() + interval '1 h', lease_until = now() + interval '1 h'")
        )
    ledger.close()
    return tokens


ADDED = Race(
    name="gateway",
    asks="What a gateway adds to one call, at the median",
    ours=added(ours),
    peers=(Peer(_NAME, added(litellm), target=6.5), Peer(_FLOOR, added(pass_through))),
)
CAPACITY = Race(
    name="gateway-capacity",
    asks=f"One call through a gateway with {AT_ONCE} at once under way",
    ours=capacity(ours),
    peers=(Peer(_NAME, capacity(litellm), target=12), Peer(_FLOOR, capacity(pass_through))),
    pairs=9,
    turn_seconds=1.0,
)
MEMORY = Survey("gateway-memory", weigh, repetitions=3)
