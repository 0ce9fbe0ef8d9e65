"""What a running installation holds at a moment: handles, memory, threads, keys, rows, files, series."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import httpx2
import psutil
from redis import Redis
from sqlalchemy import text

from ledger.store import Ledger
from producers.local.embedded import Embedded

Sample = dict[str, float]
"""By name: what is counted, a slash, of whom."""
_MIB = 1024 * 1024


def processes_of(embedded: Embedded) -> Mapping[str, list[psutil.Process]]:
    """Return each program's processes, pool children included."""
    assert embedded.supervisor is not None
    found = {}
    for name, pid in embedded.supervisor.pids().items():
        with suppress(psutil.Error):
            leader = psutil.Process(pid)
            found[name] = [leader, *leader.children(recursive=True)]
    return found


def pss_bytes(pid: int) -> int:
    """Return a process's share of memory: what it shares with others is divided among them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _of_processes(embedded: Embedded) -> Sample:
    sample: Counter[str] = Counter()
    for name, processes in processes_of(embedded).items():
        for process in processes:
            with suppress(psutil.Error, OSError):
                sample[f"handles/{name}"] += process.num_fds()
                sample[f"memory MiB/{name}"] += pss_bytes(process.pid) / _MIB  # type: ignore[assignment]
                sample[f"threads/{name}"] += process.num_threads()
    return dict(sample)


def _of_broker(broker: Redis) -> Sample:
    memory = broker.info("memory")
    clients = broker.info("clients")
    return {
        "keys/broker": float(broker.dbsize()),
        "memory MiB/broker data": memory["used_memory_dataset"] / _MIB,
        "connections/broker": float(clients["connected_clients"]),
    }


_TABLES = text("""
    SELECT relname, n_live_tup, pg_total_relation_size(relid) FROM pg_stat_user_tables
""")


def _of_ledger(ledger: Ledger) -> Sample:
    with ledger.begin() as session:
        tables = session.connection().execute(_TABLES).all()
        connections = session.connection().execute(text("SELECT count(*) FROM pg_stat_activity")).scalar_one()
    sample: Sample = {"connections/ledger": float(connections)}
    for name, rows, size in tables:
        sample[f"rows/{name}"] = float(rows)
        sample[f"size MiB/{name}"] = size / _MIB
    return sample


def count_files(root: Path) -> int:
    """Return how many files and links are below a directory; what goes meanwhile is left out."""
    return sum(len(files) for _, _, files in os.walk(root))


def _of_disk(places: Mapping[str, Path]) -> Sample:
    return {f"files/{name}": float(count_files(path)) for name, path in places.items()}


def _of_exporter(url: str) -> Sample:
    said = httpx2.get(f"{url}/metrics", timeout=20, trust_env=False, verify=False).text
    return {"series/exporter": float(sum(1 for line in said.splitlines() if line and not line.startswith("#")))}


def take(embedded: Embedded, *, ledger: Ledger, broker: Redis, places: Mapping[str, Path]) -> Sample:
    """Look at everything once."""
    parts: Iterable[Sample] = (
        _of_processes(embedded),
        _of_broker(broker),
        _of_ledger(ledger),
        _of_disk(places),
        _of_exporter(embedded.exporter_url),
    )
    return {name: value for part in parts for name, value in part.items()}
