"""Settings of the workers."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from routing.config import OptionalPath, Section


class RunsConfig(Section):
    """Workspaces of ticket runs, and the way to their projects."""

    root: Path = Path(".pointsman/runs")
    """A directory that all workers of `steps` and `control` share: one git repository per run."""
    private_remotes: bool = False
    """Whether a project's remote may have a non-public address, such as a forge in the operator's network."""
    files_below: OptionalPath = None
    """The directory that `file:` remotes must lie in, where the policy allows them."""
    codex_tenant: str = ""
    """The one tenant of this installation, if agents of runtime `codex_local` may run: they run on the worker's own
    machine, without a box. Empty for nobody.
    """
    codex_command: str = "codex"
    """The Codex CLI."""


class WorkerConfig(Section):
    """How a worker works."""

    gateway_url: str = "http://127.0.0.1:8090"
    """The gateway: the only way to a model."""
    max_tasks_per_child: int = Field(default=1_000, ge=1)
    """A pool child is replaced after this many tasks. A new one costs as much as dozens of small jobs; one that grows
    too large is replaced earlier, see `max_memory_kib_per_child`.
    """
    max_memory_kib_per_child: int = Field(default=524_288, ge=1024)
    """A pool child above this resident size, in KiB, is replaced after its task."""
    most_memory_kib_per_child: int = Field(default=4_194_304, ge=262_144)
    """A pool child cannot allocate more memory than this, in KiB: a runaway job fails and its worker continues."""
    stop_seconds: float = Field(default=65, ge=0, le=3600)
    """How long running jobs may continue once their worker is told to stop; the rest are handed back and started over
    by another worker. Whoever stops workers must wait 20 s longer before killing them (docs/pitfalls.md, 6).
    """
    heartbeat: OptionalPath = None
    """A file that the worker writes while it consumes, for `pointsman worker --check`; empty for none."""
    fork_server: int | None = None
    """The descriptor of a socket to a process that forks for this one; `pointsman up` sets it."""
