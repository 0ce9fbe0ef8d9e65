"""Where the servers are that both sides of a race share, and what is sent over them; peers can import it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from atexit import register
from collections.abc import Callable

LEDGER = "BENCH_LEDGER_URL"
PEER_DATABASE = "BENCH_PEER_DATABASE_URL"
BROKER = "BENCH_BROKER_URL"
PEER_BROKER = "BENCH_PEER_BROKER_URL"

DIFFERENT = "BENCH_DIFFERENT_PROMPTS"
"""Set where every job has a prompt of its own."""

PROMPT = "Change the headline on the home page to 'Spring sale'"
AT_ONCE = 1_000
"""Jobs of one bulk submit."""
BATCH = 100
"""Jobs that are worked off together: with few of them it would be the waking up that is measured."""


def place(name: str) -> str:
    """Return where a server is."""
    return os.environ[name]


def body(number: int) -> dict[str, str]:
    """Return an edit of one of many sites: two of one site would wait for each other."""
    prompt = f"Change the headline on page {number} to 'Sale {number}'" if os.environ.get(DIFFERENT) else PROMPT
    return {"prompt": prompt, "site": f"site-{number % AT_ONCE}"}


def beside(*arguments: str) -> None:
    """Run a module in this interpreter until this process ends."""
    process = subprocess.Popen([sys.executable, "-m", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    register(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()


def until(is_so: Callable[[], object], *, seconds: float = 120.0, every: float = 0.01) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "bench: it did not become so"
        time.sleep(every)
