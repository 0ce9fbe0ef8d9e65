"""What a process may use of its machine."""

import os
from pathlib import Path

import pytest

from workers.machine import usable_cpus, usable_memory

GIB = 1 << 30


def a_machine(root: Path, group: str, files: dict[str, str]) -> Path:
    limits = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in {"proc/self/cgroup": group, **limits}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("group", "files", "cpus", "memory"),
    [
        ("0::/", {"cpu.max": "150000 100000", "memory.max": str(GIB)}, 1.5, GIB),
        ("0::/", {"cpu.max": "max 100000", "memory.max": "max"}, None, None),
        ("0::/pod/worker", {"pod/cpu.max": "50000 100000", "pod/worker/cpu.max": "max 100000"}, 0.5, None),
        ("0::/pod/worker", {"pod/memory.max": str(GIB), "pod/worker/memory.max": str(2 * GIB)}, None, GIB),
        (
            "4:memory:/docker/1\n1:cpu,cpuacct:/docker/1\n0::/",
            {
                "cpu/cpu.cfs_quota_us": "100000",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": str(GIB),
            },
            1.0,
            GIB,
        ),
        ("1:cpu:/\n0::/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None, None),
    ],
)
def test_the_tightest_limit_counts_and_none_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, files: dict[str, str], cpus: float, memory: int | None
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    root = a_machine(tmp_path, group, files)
    assert usable_cpus(root) == (cpus or 3)
    assert usable_memory(root) == memory


def test_without_control_groups_the_affinity_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert usable_cpus(tmp_path) == 1
    assert usable_memory(tmp_path) is None
