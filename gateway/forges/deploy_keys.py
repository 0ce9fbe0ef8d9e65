"""The operator's keys for forges and repositories, and the servers by ssh that are pinned: whether they can be used.

Workers that clone and push need to know it, and so does `pointsman doctor`. Only paths are handled here: the content of
a deploy key is read by OpenSSH's own programs alone.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from routing.policy.agents import Account, AccountsConfig

CLIENT = "ssh"
SSH_PORT = 22
_KEYGEN = "ssh-keygen"
_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class DeployKey:
    """How an account of the operator's proves itself to a server, and which servers it knows."""

    account: str
    """Its name, for errors."""
    key: Path
    known_hosts: Path
    username: str = ""
    """Empty for git."""


def deploy_key(name: str, account: Account) -> DeployKey | None:
    """Return an account's key; None if it has none."""
    if account.ssh_key is None or account.known_hosts is None:
        return None
    return DeployKey(account=name, key=account.ssh_key, known_hosts=account.known_hosts, username=account.username)


def problem_of_key(path: Path) -> str:
    """Return why a private key cannot be used, by its permissions; empty if it can."""
    try:
        held = path.stat()
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror})"
    if not stat.S_ISREG(held.st_mode) or held.st_uid not in (0, os.geteuid()):
        return f"{path}: must be a file of this process's own user"
    if held.st_mode & 0o077:
        return f"{path}: others on this machine may read it: run chmod 600 on it"
    return "" if os.access(path, os.R_OK) else f"{path}: cannot be read by this process's user"


def problem_of(key: DeployKey) -> str:
    """Return why a deploy key or its pinned servers cannot be used, by their permissions; empty if they can."""
    if problem := problem_of_key(key.key):
        return problem
    try:
        pinned = key.known_hosts.stat()
    except OSError as error:
        return f"{key.known_hosts}: cannot be read ({error.strerror})"
    if pinned.st_mode & 0o022:
        return f"{key.known_hosts}: others on this machine may write to it: run chmod 644 on it"
    readable = os.access(key.known_hosts, os.R_OK)
    return "" if readable else f"{key.known_hosts}: cannot be read by this process's user"


def known_as(host: str, port: int) -> str:
    """Return the name of a server in `known_hosts`."""
    return host if port == SSH_PORT else f"[{host}]:{port}"


def how_to_pin(host: str, port: int, known_hosts: Path) -> str:
    """Return what an operator does about a server that is not pinned."""
    where, option = (host, "") if port == SSH_PORT else (f"{host} (port {port})", f"-p {port} ")
    return (
        f"{where} is not pinned: {known_hosts} has no key of it. Run `ssh-keyscan {option}{host}`, compare the"
        " fingerprint (ssh-keygen -lf) with the one that its owner publishes, and add the line there"
    )


def check_keys(accounts: AccountsConfig) -> Iterator[tuple[str, str]]:
    """Yield each key of an installation's accounts: what it is, and what to do about it, if anything."""
    for name, account in sorted(accounts.by_name.items()):
        if account.app_id or account.app_key is not None:
            yield f"GitHub App of account {name}", _advice_on_app(account)
        if account.ssh_key is not None or account.known_hosts is not None or account.git_url.startswith("ssh:"):
            yield f"deploy key of account {name}", _advice(name, account)


def _advice_on_app(account: Account) -> str:
    if not account.app_id or account.app_key is None or account.kind != "github":
        return "app_id, app_key and the kind github belong together"
    return problem_of_key(account.app_key)


def _advice(name: str, account: Account) -> str:
    key = deploy_key(name, account)
    if key is None:
        return "both ssh_key and known_hosts must be given: no server is trusted unseen"
    if problem := problem_of(key):
        return problem
    parts = urlsplit(account.git_url)
    if parts.scheme != "ssh" or not parts.hostname:
        return "git_url must say which repositories it is for, such as ssh://forge.example/acme/"
    try:
        if _run(_KEYGEN, "-y", "-P", "", "-f", str(key.key)):
            return f"{key.key}: is no private key, or has a passphrase, which nobody is there to type"
        port = parts.port or SSH_PORT
        if _run(_KEYGEN, "-F", known_as(parts.hostname, port), "-f", str(key.known_hosts)):
            return how_to_pin(parts.hostname, port, key.known_hosts)
    except (OSError, subprocess.TimeoutExpired):
        return f"this machine has no {_KEYGEN}: install openssh-client where workers of steps and control run"
    return ""


def _run(*argv: str) -> int:
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_SECONDS,
        env={"PATH": os.defpath},
    )
    return done.returncode
