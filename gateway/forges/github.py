"""GitHub as a forge, by PyGithub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import requests
from github import Auth, Github, GithubException, RateLimitExceededException
from github.Repository import Repository

from gateway.errors import ForgeError
from gateway.forges.forge import (
    MANY_COMMENTS,
    MAX_TEXT,
    TIMEOUT_SECONDS,
    PullRequest,
    check_covered,
    is_passing_status,
    read_reference,
)
from gateway.forges.github_app import token_of
from routing.policy.agents import Account


@dataclass(frozen=True)
class GitHubForge:
    """GitHub, or a server with its API."""

    account: Account

    def open_pull_request(
        self, *, repository: str, branch: str, base: str, title: str, body: str, is_draft: bool = False
    ) -> PullRequest:
        """Open a pull request, or return the open one."""
        with self._repository(repository) as found:
            owner = repository.partition("/")[0]
            for pull in found.get_pulls(state="open", head=f"{owner}:{branch}", base=base):
                return PullRequest(pull.number, pull.html_url)
            made = found.create_pull(base=base, head=branch, title=title[:250], body=body[:MAX_TEXT], draft=is_draft)
            return PullRequest(made.number, made.html_url)

    def check_open(self, *, repository: str, number: int) -> None:
        """Refuse a pull request that is merged or closed."""
        with self._repository(repository) as found:
            if found.get_pull(number).state != "open":
                raise ForgeError(f"pull request #{number} is merged or closed: submit a ticket", is_passing=False)

    def comment(self, *, reference: str, text: str, sign: str) -> None:
        """Comment on an issue or pull request, which have one sequence of numbers."""
        repository, kind, number = read_reference(reference)
        if kind != "#":
            raise ForgeError(f"{reference!r} is not a GitHub issue", is_passing=False)
        with self._repository(repository) as found:
            issue = found.get_issue(number)
            if not any(
                sign in (comment.body or "") for comment in islice(issue.get_comments().reversed, MANY_COMMENTS)
            ):
                issue.create_comment(f"{text}\n\n{sign}")

    @contextmanager
    def _repository(self, name: str) -> Iterator[Repository]:
        check_covered(self.account, name)
        token = token_of(self.account, name)
        client = Github(
            auth=Auth.Token(token) if token else None,
            base_url=self.account.address,
            timeout=TIMEOUT_SECONDS,
            retry=None,
            lazy=True,
        )
        try:
            yield client.get_repo(name)
        except GithubException as error:
            said = error.data.get("message") if isinstance(error.data, dict) else None
            message = f"the forge answered {error.status}: {str(said or 'no reason')[:300]}"
            is_limited = isinstance(error, RateLimitExceededException)
            raise ForgeError(message, is_passing=is_limited or is_passing_status(error.status)) from None
        except (requests.RequestException, OSError) as error:
            raise ForgeError(f"the forge cannot be reached ({type(error).__name__})", is_passing=True) from None
        finally:
            client.close()
