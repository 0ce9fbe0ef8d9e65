"""GitLab as a forge: merge requests and notes, by version 4 of its REST API.

Six requests are all that is needed of it, so it is spoken to directly.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from gateway.errors import ForgeError
from gateway.forges.forge import (
    MANY_COMMENTS,
    MAX_TEXT,
    PullRequest,
    ask,
    check_covered,
    is_passing_status,
    read_reference,
)
from routing.policy.agents import Account

_DEVELOPER = 30
"""The least access level that may push to branches."""
_PAGE = 100
_PLACES = {"#": "issues", "!": "merge_requests"}


@dataclass(frozen=True)
class GitLabForge:
    """gitlab.com, or a server of one's own."""

    account: Account

    def open_pull_request(
        self, *, repository: str, branch: str, base: str, title: str, body: str, is_draft: bool = False
    ) -> PullRequest:
        """Open a merge request, or return the open one; its title says that it is a draft."""
        place = f"{self._project(repository)}/merge_requests"
        wanted = {"source_branch": branch, "target_branch": base}
        listed = self._ask("GET", place, params={**wanted, "state": "opened"})
        found = [
            each
            for each in (listed if isinstance(listed, list) else [])
            if isinstance(each, dict) and each.get("source_project_id") == each.get("target_project_id")
        ]  # without those of forks, whose branches may be called alike
        if not found:
            head = f"Draft: {title}" if is_draft else title
            told = {"title": head[:250], "description": body[:MAX_TEXT], "remove_source_branch": True}
            found = [self._ask("POST", place, json={**wanted, **told})]
        try:
            return PullRequest(int(found[0]["iid"]), str(found[0]["web_url"]))
        except (LookupError, TypeError, ValueError):
            raise ForgeError("the forge answers with something else than a merge request", is_passing=False) from None

    def check_open(self, *, repository: str, number: int) -> None:
        """Refuse a merge request that is merged or closed."""
        found = self._ask("GET", f"{self._project(repository)}/merge_requests/{number}")
        if not isinstance(found, dict) or found.get("state") != "opened":
            raise ForgeError(f"merge request !{number} is merged or closed: submit a ticket", is_passing=False)

    def comment(self, *, reference: str, text: str, sign: str) -> None:
        """Write a note on an issue or a merge request."""
        repository, kind, number = read_reference(reference)
        place = f"{self._project(repository)}/{_PLACES[kind]}/{number}/notes"
        for page in range(1, MANY_COMMENTS // _PAGE + 1):
            notes = self._ask("GET", place, params={"per_page": _PAGE, "page": page, "sort": "desc"})
            if not isinstance(notes, list):
                raise ForgeError("the forge answers with something else than notes", is_passing=False)
            if any(isinstance(note, dict) and sign in str(note.get("body")) for note in notes):
                return
            if len(notes) < _PAGE:
                break
        self._ask("POST", place, json={"body": f"{text}\n\n{sign}"})

    def may_write(self, *, repository: str, user_id: int) -> bool:
        """Whether a user may push to the repository, by itself or one of its groups.

        Raises:
            ForgeError: the account, the project or the forge.
        """
        found = self._ask("GET", f"{self._project(repository)}/members/all/{user_id}", absent={})
        level = found.get("access_level") if isinstance(found, dict) else None
        return isinstance(level, int) and level >= _DEVELOPER and found.get("state", "active") == "active"

    def _project(self, repository: str) -> str:
        check_covered(self.account, repository)
        return f"projects/{quote(repository, safe='')}"

    def _ask(self, method: str, path: str, *, absent: Any = None, **options: Any) -> Any:
        """Make one request; `absent` is returned where what it asks for is not there."""
        headers = {"PRIVATE-TOKEN": self.account.token.get_secret_value()}
        answer, said = ask(method, f"{self.account.address}/api/v4/{path}", headers=headers, **options)
        if answer.status_code == HTTPStatus.NOT_FOUND and absent is not None:
            return absent
        if not answer.is_success:
            why = said.get("message") or said.get("error") if isinstance(said, dict) else None
            message = f"the forge answered {answer.status_code}: {str(why or 'no reason')[:300]}"
            raise ForgeError(message, is_passing=is_passing_status(answer.status_code))
        return said
