"""Where a project's repository is, for whom it is opened, and with what account: layers 1 and 2 put together."""

from __future__ import annotations

from routing.accounts import AccountsConfig
from routing.project import ProjectConfig
from routing.run_rules import RunRules
from workers.config import RunsConfig
from workers.runs.packs import PackLimits
from workers.runs.transport import Credentials, Remote, RemoteRules
from workers.runs.trees import TreeLimits


def remote_of(project: ProjectConfig, accounts: AccountsConfig, *, tenant: str) -> Remote:
    """Return a project's remote.

    The account that it names goes along only where the operator lets this tenant use it, and only to repositories that
    lie where the account belongs: a project cannot send somebody's token elsewhere.
    """

    def credentials() -> Credentials | None:
        github = project.integrations.github
        account = accounts.find(github.token, tenant=tenant) if github is not None else None
        if account is None or not account.git_url or not project.repo.url.startswith(account.git_url):
            return None
        return Credentials(account.username, account.token.get_secret_value())

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
