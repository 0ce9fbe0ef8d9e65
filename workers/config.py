"""Wiring of the workers."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr

from routing.config import OptionalPath, Section


class ForgeConfig(Section):
    """An account at a forge: a project names it, and never sees its token."""

    git_url: str = Field(pattern=r"^https?://[^\s@?#]+/$")
    """What the URLs of repositories that this account may be used for begin with, such as https://forge.example/acme/."""
    token: SecretStr
    username: str = "x-access-token"
    """Goes with the token where git wants a name; forges that know a token by itself take any."""
    tenants: tuple[str, ...] = ()
    """Whose projects may name it; empty for everybody's."""


class RunsConfig(Section):
    """Runs of the ticket lane: their workspaces, and the way to their projects."""

    root: Path = Path(".pointsman/runs")
    """A directory that all workers of `steps` and `control` share: a git repository for each run."""
    forges: dict[str, ForgeConfig] = Field(default_factory=dict)
    """Accounts by name."""
    private_remotes: bool = False
    """Whether a project's remote may have an address that is not public, such as a forge in the operator's network."""
    files_below: OptionalPath = None
    """The directory in which `file:` remotes have to lie, where the policy lets projects have any."""
    codex_tenant: str = ""
    """The only tenant of this installation, if agents of runtime `codex_local` may run: they run on the worker's own
    machine, without a box. Empty for nobody."""
    codex_command: str = "codex"
    """The Codex CLI."""


class WorkerConfig(Section):
    """How a worker works."""

    gateway_url: str = "http://127.0.0.1:8090"
    """The gateway: the only way to a model."""
    max_tasks_per_child: int = Field(default=100, ge=1)
    """A pool child is replaced after so many tasks."""
    max_memory_kib_per_child: int = Field(default=524_288, ge=1024)
    """A pool child above this resident size, in KiB, is replaced after its task."""
