"""Client of forges and trackers: opens pull requests and comments on tickets, idempotently.

It lives here because producers (tickets) and workers (publishing a run) both need it, and the gateway is the room that
they share for calls to the outside. Only the service calls it, after gates and scan; no agent and no box knows of an
account (S-023, S-029, S-030). PyGithub speaks to GitHub; Linear has no maintained Python client, but one request does.
Both clients are loaded with the first call, since every worker knows of this module and few ever make one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid5

from gateway.errors import ForgeError
from gateway.network import authorities
from routing.jobs import visible
from routing.policy.agents import Account

if TYPE_CHECKING:
    from github.Repository import Repository

TIMEOUT_SECONDS = 4
"""For one request. Opening a pull request takes two."""
MAX_TEXT = 60_000
"""Characters of a comment or a pull request's text; GitHub takes 65,536."""
_MANY_COMMENTS = 300
_PASSING = frozenset({0, 408, 409, 429})
"""Statuses below 500 worth a retry: no answer, a timeout, a conflict, a rate limit."""


class PullRequest(NamedTuple):
    """An open pull request."""

    number: int
    url: str


def open_pull_request(
    account: Account, *, repository: str, branch: str, base: str, title: str, body: str
) -> PullRequest:
    """Open a pull request, or return the one already open for this branch.

    Args:
        account: at GitHub, or at a server with its API.
        repository: `owner/name`.
        branch: the pushed branch to merge.
        base: the branch to merge into.
        title: one line.
        body: Markdown.

    Raises:
        ForgeError: the account, the project or the forge.
    """
    with _github(account, repository) as found:
        owner = repository.partition("/")[0]
        for pull in found.get_pulls(state="open", head=f"{owner}:{branch}", base=base):
            return PullRequest(pull.number, pull.html_url)
        made = found.create_pull(base=base, head=branch, title=title[:250], body=body[:MAX_TEXT])
        return PullRequest(made.number, made.html_url)


def check_open(account: Account, *, repository: str, number: int) -> None:
    """Check that a pull request takes further commits.

    Raises:
        ForgeError: it is merged or closed (nobody's fault); or the account, the project or the forge.
    """
    with _github(account, repository) as found:
        if found.get_pull(number).state != "open":
            raise ForgeError(f"pull request #{number} is merged or closed: submit a ticket", is_passing=False)


def write_to_ticket(account: Account, *, reference: str, text: str, mark: UUID) -> None:
    """Comment on a ticket, once per mark.

    Args:
        account: at the ticket's tracker.
        reference: the tracker's id of the ticket: `owner/name#12` at GitHub, a UUID at Linear.
        text: Markdown.
        mark: identifies this comment.

    Raises:
        ForgeError: the account, the ticket or the tracker.
    """
    if account.kind == "linear":
        _comment_at_linear(account, reference, text=text, mark=mark)
        return
    repository, _, number = reference.partition("#")
    if not number.isdigit():
        raise ForgeError(f"{reference!r} is not a GitHub issue", is_passing=False)
    sign = f"<!-- pointsman {mark} -->"
    with _github(account, repository) as found:
        issue = found.get_issue(int(number))
        if not any(sign in (comment.body or "") for comment in islice(issue.get_comments(), _MANY_COMMENTS)):
            issue.create_comment(f"{text[:MAX_TEXT]}\n\n{sign}")


@contextmanager
def _github(account: Account, repository: str) -> Iterator[Repository]:
    import requests
    from github import Auth, Github, GithubException, RateLimitExceededException

    if account.kind != "github":
        raise ForgeError("pull requests need an account of kind github", is_passing=False)
    auth = Auth.Token(account.token.get_secret_value()) if account.token.get_secret_value() else None
    client = Github(auth=auth, base_url=account.address, timeout=TIMEOUT_SECONDS, retry=None, lazy=True)
    try:
        yield client.get_repo(repository)
    except GithubException as error:
        said = error.data.get("message") if isinstance(error.data, dict) else None
        message = f"the forge answered {error.status}: {str(said or 'no reason')[:300]}"
        is_limited = isinstance(error, RateLimitExceededException)
        raise ForgeError(message, is_passing=is_limited or _is_passing(error.status)) from None
    except (requests.RequestException, OSError) as error:
        raise ForgeError(f"the forge cannot be reached ({type(error).__name__})", is_passing=True) from None
    finally:
        client.close()


_COMMENT = (
    "mutation Comment($id: String!, $issue: String!, $body: String!) "
    "{ commentCreate(input: {id: $id, issueId: $issue, body: $body}) { success } }"
)


def _comment_at_linear(account: Account, reference: str, *, text: str, mark: UUID) -> None:
    """Comment with an id of our own, so that Linear keeps a comment sent twice once."""
    import httpx2

    variables = {"id": str(uuid5(mark, reference)), "issue": reference, "body": text[:MAX_TEXT]}
    try:
        answer = httpx2.post(
            account.address,
            json={"query": _COMMENT, "variables": variables},
            headers={"Authorization": account.token.get_secret_value()},
            timeout=TIMEOUT_SECONDS,
            trust_env=False,
            verify=authorities(),
        )
        body = answer.json() if answer.content else {}
    except (httpx2.HTTPError, ValueError) as error:
        raise ForgeError(f"the tracker cannot be reached ({type(error).__name__})", is_passing=True) from None
    if answer.is_error:
        raise ForgeError(f"the tracker answered {answer.status_code}", is_passing=_is_passing(answer.status_code))
    errors = body.get("errors") if isinstance(body, dict) else None
    if errors and "already exists" not in str(errors):
        raise ForgeError(f"the tracker refused: {str(errors)[:300]}", is_passing=False)


def _is_passing(status: int) -> bool:
    return status in _PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR


_ACTIVE = re.compile(r"(?<![\w`])@(?=\w)|!(?=\[)|<(?=[a-zA-Z/!?])|(?<=\w)#(?=\d)|(?<![\w&])#(?=\d)")
"""A mention, an image, markup, or the number of another ticket."""


def neutralise(text: str) -> str:
    """Return text that reads the same but mentions nobody, loads no image, closes no ticket and holds no markup."""
    return _ACTIVE.sub(lambda found: f"{found.group()}\u2060" if found.group() != "<" else "&lt;", visible(text))


def quoted(text: str) -> str:
    """Return an agent's words as a Markdown quotation that triggers nothing."""
    return "\n".join(f"> {line}".rstrip() for line in neutralise(text).splitlines())
