"""Where a project's repository is, for whom it is opened, and with what account: layers 1 and 2 put together."""

from __future__ import annotations

from routing.project import ProjectConfig
from routing.run_rules import RunRules
from workers.config import ForgeConfig, RunsConfig
from workers.runs.packs import PackLimits
from workers.runs.transport import Credentials, Remote, RemoteRules
from workers.runs.trees import TreeLimits


def remote_of(project: ProjectConfig, config: RunsConfig, *, tenant: str) -> Remote:
    """Return a project's remote.

    The account that it names goes along only where the operator lets this tenant use it, and only to repositories that
    lie where the account belongs: a project cannot send somebody's token elsewhere.
    """

    def credentials() -> Credentials | None:
        forge = _forge_of(project, config)
        if forge is None or (forge.tenants and tenant not in forge.tenants):
            return None
        if not project.repo.url.startswith(forge.git_url):
            return None
        return Credentials(forge.username, forge.token.get_secret_value())

    return Remote(url=project.repo.url, branch=project.repo.branch, credentials=credentials)


def remote_rules(config: RunsConfig, rules: RunRules, *, seconds: float) -> RemoteRules:
    """Return where remotes may be in this installation, and how long one exchange may take."""
    return RemoteRules(
        schemes=rules.remotes, private_addresses=config.private_remotes, files_below=config.files_below, seconds=seconds
    )


def tree_limits(rules: RunRules) -> TreeLimits:
    """Return how much of a repository agents are shown."""
    return TreeLimits(max_entries=2 * rules.workspace_files, max_bytes=rules.workspace_bytes)


def pack_limits(rules: RunRules) -> PackLimits:
    """Return what a repository may bring: what is not shown may be larger, but not without end."""
    return PackLimits(total_bytes=10 * rules.workspace_bytes, pack_bytes=5 * rules.workspace_bytes)


def _forge_of(project: ProjectConfig, config: RunsConfig) -> ForgeConfig | None:
    github = project.integrations.github
    return config.forges.get(github.token) if github is not None else None
