"""Client of forges and trackers: opens pull requests and comments on tickets, idempotently.

It lives here because producers (tickets) and workers (publishing a run) both need it, and the gateway is the room that
they share for calls to the outside. Only the service calls it, after gates and scan; no agent and no box knows of an
account (S-023, S-029, S-030). A forge is GitHub or GitLab behind one seam; Linear has no maintained Python client, but
two requests do. The clients are loaded with the first call: every worker knows of this module and few make one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from gateway.errors import ForgeError
from gateway.network import authorities
from routing.jobs import visible
from routing.policy.agents import Account

if TYPE_CHECKING:
    import httpx2

TIMEOUT_SECONDS = 4
"""For one request. Opening a pull request takes two."""
MAX_TEXT = 60_000
"""Characters of a comment or a pull request's text; GitHub takes 65,536."""
MANY_COMMENTS = 300
"""Comments among which one's own is looked for."""
SIGN = "<!-- pointsman "
"""How the sign of our own comments begins."""
_REFERENCE = re.compile(r"(?P<repository>[^\s#!]{3,300})(?P<kind>[#!])(?P<number>[0-9]{1,18})", re.ASCII)
_PASSING = frozenset({0, 408, 409, 429})
"""Statuses below 500 worth a retry: no answer, a timeout, a conflict, a rate limit."""


class PullRequest(NamedTuple):
    """An open pull request."""

    number: int
    url: str


class Forge(Protocol):
    """What a run needs of a forge. Each call may be repeated: it comes to the same.

    All raise ForgeError: the account, the project or the forge.
    """

    def open_pull_request(
        self, *, repository: str, branch: str, base: str, title: str, body: str, is_draft: bool = False
    ) -> PullRequest:
        """Open a pull request, or return the one already open for this branch.

        Args:
            repository: `owner/name`.
            branch: the pushed branch to merge.
            base: the branch to merge into.
            title: one line.
            body: Markdown.
            is_draft: whether a person has to mark it as ready before it can be merged.
        """

    def check_open(self, *, repository: str, number: int) -> None:
        """Check that a pull request takes further commits; one that is merged or closed is refused."""

    def comment(self, *, reference: str, text: str, sign: str) -> None:
        """Comment on an issue or pull request, once per sign, which readers do not see.

        Args:
            reference: as `ForgeSettings.reference_of`, or an issue's: `owner/name#12`.
            text: Markdown.
            sign: stands at the comment's end.
        """


def forge_of(account: Account) -> Forge:
    """Return the forge of an account.

    Raises:
        ForgeError: the account is at none (the operator's fault).
    """
    if account.kind == "github":
        from gateway.forges.github import GitHubForge

        return GitHubForge(account)
    if account.kind == "gitlab":
        from gateway.forges.gitlab import GitLabForge

        return GitLabForge(account)
    raise ForgeError("pull requests need an account of kind github or gitlab", is_passing=False)


def check_covered(account: Account, repository: str) -> None:
    """Refuse a repository that does not lie below the account's `git_url`, as git does: its project's admin names it.

    Raises:
        ForgeError: the project's fault, or the operator's.
    """
    parts = urlsplit(account.git_url)
    root = urlsplit(account.address).path.rstrip("/") if account.kind == "gitlab" and parts.scheme != "ssh" else ""
    is_plain = {".", ".."}.isdisjoint(repository.split("/"))
    if not account.git_url or not is_plain or not f"{root}/{repository}".startswith(parts.path):
        raise ForgeError(f"the account is for what lies below its GIT_URL: not for {repository!r}", is_passing=False)


def write_to_ticket(account: Account, *, reference: str, text: str, mark: UUID, team: str = "") -> None:
    """Comment on a ticket, once per mark.

    Args:
        account: at the ticket's tracker.
        reference: the tracker's id of the ticket: `owner/name#12` at a forge, a UUID at Linear.
        text: Markdown.
        mark: identifies this comment.
        team: the key of the team at Linear whose issue it must be; whoever submits a job chooses the reference.

    Raises:
        ForgeError: the account, the ticket or the tracker.
    """
    if account.kind == "linear":
        _comment_at_linear(account, reference, text=text, mark=mark, team=team)
    else:
        forge_of(account).comment(reference=reference, text=text[:MAX_TEXT], sign=f"{SIGN}{mark} -->")


def read_reference(reference: str) -> tuple[str, str, int]:
    """Return repository, kind (`#` or `!`) and number of a reference.

    Raises:
        ForgeError: it names no issue and no merge request (nobody's fault: another tracker's ticket).
    """
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        raise ForgeError(f"{reference!r} is no issue of a forge", is_passing=False)
    return found["repository"], found["kind"], int(found["number"])


_COMMENT = (
    "mutation Comment($id: String!, $issue: String!, $body: String!) "
    "{ commentCreate(input: {id: $id, issueId: $issue, body: $body}) { success } }"
)


_TEAM = "query Team($issue: String!) { issue(id: $issue) { team { key } } }"


def _comment_at_linear(account: Account, reference: str, *, text: str, mark: UUID, team: str) -> None:
    """Comment with an id of our own, so that Linear keeps a comment sent twice once."""
    found = _ask_linear(account, _TEAM, {"issue": reference})
    _refuse_errors(found)
    if not team or found.get("data") != {"issue": {"team": {"key": team}}}:
        raise ForgeError("the ticket is not of the project's team", is_passing=False)
    variables = {"id": str(uuid5(mark, reference)), "issue": reference, "body": text[:MAX_TEXT]}
    _refuse_errors(_ask_linear(account, _COMMENT, variables), but="already exists")


def _refuse_errors(said: Mapping[str, Any], *, but: str | None = None) -> None:
    errors = said.get("errors")
    if errors and (but is None or but not in str(errors)):
        raise ForgeError(f"the tracker refused: {str(errors)[:300]}", is_passing=False)


def _ask_linear(account: Account, query: str, variables: Mapping[str, str]) -> Mapping[str, Any]:
    asked = {"query": query, "variables": variables}
    headers = {"Authorization": account.token.get_secret_value()}
    answer, said = ask("POST", account.address, headers=headers, whom="tracker", json=asked)
    if not answer.is_success:
        raise ForgeError(f"the tracker answered {answer.status_code}", is_passing=is_passing_status(answer.status_code))
    return said if isinstance(said, dict) else {}


def ask(
    method: str, url: str, *, headers: Mapping[str, str], whom: str = "forge", **options: Any
) -> tuple[httpx2.Response, Any]:
    """Make one request and return its answer and the JSON of that; `{}` for none.

    Raises:
        ForgeError: it cannot be reached, or speaks something else (its fault); `whom` names it.
    """
    import httpx2

    try:
        answer = httpx2.request(
            method,
            url,
            headers=headers,
            timeout=TIMEOUT_SECONDS,
            trust_env=False,
            verify=authorities(),
            **options,
        )
    except httpx2.HTTPError as error:
        raise ForgeError(f"the {whom} cannot be reached ({type(error).__name__})", is_passing=True) from None
    try:
        return answer, answer.json() if answer.content else {}
    except ValueError:
        if answer.is_success:
            raise ForgeError(f"the {whom} cannot be reached: its answer is no JSON", is_passing=True) from None
        return answer, {}


def is_passing_status(status: int) -> bool:
    """Whether a request that was answered with this status may be worth repeating."""
    return status in _PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR


_ACTIVE = re.compile(
    r"(?<![\w`])@(?=\w)|!(?=\[)|<(?=[a-zA-Z/!?])|(?<=\w)#(?=\d)|(?<![\w&])#(?=\d)"
    r"|(?<=/issues/)(?=\d)|(?<=/work_items/)(?=\d)|(?m:^[ \t]*/(?=[a-zA-Z]))"
    r"|(?i:\bG[HL]-)(?=\d)|(?i:\[(?:issue|epic|work_item|merge_request):)(?=\S)"
)
"""A mention, an image, markup, another ticket's number or address, or a command to GitLab at a line's beginning."""


def neutralise(text: str) -> str:
    """Return text that reads the same but mentions nobody, loads no image, closes no ticket and holds no markup."""
    return _ACTIVE.sub(lambda found: f"{found.group()}\u2060" if found.group() != "<" else "&lt;", visible(text))


def quoted(text: str) -> str:
    """Return an agent's words as a Markdown quotation that triggers nothing."""
    return "\n".join(f"> {line}".rstrip() for line in neutralise(text).splitlines())
