"""What this process may use of its machine: as its affinity and its control groups say, not as the machine has it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def usable_cpus(root: Path = Path("/")) -> float:
    """Return how many CPUs this process may keep busy; a container's quota may be a part of one."""
    quotas = [
        *(each.split() for each in _limits(root, "", "cpu.max")),
        *zip(_limits(root, "cpu", "cpu.cfs_quota_us"), _limits(root, "cpu", "cpu.cfs_period_us"), strict=True),
    ]
    bound = [int(quota) / int(period) for quota, period in quotas if quota not in ("max", "-1")]
    return min([float(len(os.sched_getaffinity(0))), *bound])


def usable_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes of memory that this process and its children may take; None without a limit."""
    limits = [*_limits(root, "", "memory.max"), *_limits(root, "memory", "memory.limit_in_bytes")]
    return min((int(limit) for limit in limits if limit != "max"), default=None)


def _limits(root: Path, controller: str, name: str) -> Iterator[str]:
    """Yield a limit of this process's group and of those around it; version 2 has one tree for all controllers."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                group = Path(path.lstrip("/"))
                for each in (group, *group.parents):  # a container sees its own group at the root
                    with suppress(OSError):
                        yield (root / "sys/fs/cgroup" / controller / each / name).read_text().strip()
