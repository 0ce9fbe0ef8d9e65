"""Wiring of the workers."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from routing.config import Section


class WorkerConfig(Section):
    """How a worker works."""

    gateway_url: str = "http://127.0.0.1:8090"
    """The gateway: the only way to a model."""
    max_tasks_per_child: int = Field(default=100, ge=1)
    """A pool child is replaced after so many tasks."""
    max_memory_kib_per_child: int = Field(default=524_288, ge=1024)
    """A pool child above this resident size, in KiB, is replaced after its task."""


class RunsConfig(Section):
    """Where the workspaces of the ticket lane's runs are."""

    root: Path = Path(".pointsman/runs")
    """A directory that the workers of `control` and `steps` share: a git repository for each run."""
