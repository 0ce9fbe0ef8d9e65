"""Short-lived tokens of a GitHub App: for one repository, with no more rights than a run's end needs.

The App's key is a file of the operator's, read when a token is asked for. A token lives for an hour and is kept in this
process's memory until it has few minutes left.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gateway.errors import ForgeError
from gateway.forges.deploy_keys import problem_of_key
from gateway.forges.forge import ask, is_passing_status
from routing.policy.agents import Account

_LEAST_SECONDS = 300.0
"""A token with less time left is replaced: a push or a note must not outlive it."""
_PERMISSIONS = {"contents": "write", "pull_requests": "write", "issues": "write"}


@dataclass
class _Tokens:
    """Of this process."""

    known: dict[tuple[str, str, str], tuple[str, float]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_TOKENS = _Tokens()


def token_of(account: Account, repository: str) -> str:
    """Return what an account shows at GitHub for a repository: its own token, or a new one of its App.

    Raises:
        ForgeError: the App's key cannot be used, or the App is not installed there (the operator's fault); GitHub is
            away.
    """
    if not account.app_id or account.app_key is None:
        return account.token.get_secret_value()
    owner = urlsplit(account.git_url).path.strip("/")
    if not owner or not repository.startswith(f"{owner}/"):
        raise ForgeError(
            f"the App's tokens are for what lies below the account's GIT_URL, which must name its owner "
            f"(https://github.com/OWNER/): not for {repository!r}",
            is_passing=False,
        )
    about = (account.address, account.app_id, repository)
    with _TOKENS.lock:
        token, ends = _TOKENS.known.get(about, ("", 0.0))
        if ends - time.time() < _LEAST_SECONDS:
            token, ends = _ask(account, account.app_key, repository)
            _TOKENS.known[about] = token, ends
        return token


def _ask(account: Account, key: Path, repository: str) -> tuple[str, float]:
    proof = _proof(account.app_id, key)
    found = _request("GET", account, f"/repos/{repository}/installation", proof)
    body = {"repositories": [repository.partition("/")[2]], "permissions": _PERMISSIONS}
    try:
        place = f"/app/installations/{int(found['id'])}/access_tokens"
        made = _request("POST", account, place, proof, json=body)
        return str(made["token"]), datetime.fromisoformat(made["expires_at"]).timestamp()
    except (KeyError, TypeError, ValueError):
        raise ForgeError("the forge answers with something else than a token", is_passing=False) from None


def _proof(app_id: str, path: Path) -> str:
    """Return the App's signed word, which GitHub takes for five minutes."""
    from github import Auth
    from jwt.exceptions import PyJWTError

    if problem := problem_of_key(path):
        raise ForgeError(f"the key of the GitHub App {app_id}: {problem}", is_passing=False)
    try:
        return Auth.AppAuth(app_id, path.read_text(encoding="ascii")).token
    except (OSError, ValueError, TypeError, AssertionError, PyJWTError):
        raise ForgeError(f"{path}: is no private key of a GitHub App", is_passing=False) from None


def _request(method: str, account: Account, path: str, proof: str, **options: Any) -> Any:
    headers = {"Authorization": f"Bearer {proof}", "Accept": "application/vnd.github+json"}
    answer, said = ask(method, f"{account.address}{path}", headers=headers, **options)
    if answer.is_success:
        return said
    why = str(said.get("message") if isinstance(said, dict) else "no reason")[:300]
    status = answer.status_code
    where = "the GitHub App is not installed there" if status == HTTPStatus.NOT_FOUND else why
    raise ForgeError(f"the forge gives the App no token ({status}): {where}", is_passing=is_passing_status(status))
