"""Where a project's code is, and the forge and tracker that it is connected to.

The operator's accounts hold addresses and secrets; a project names them. So no project can send a token elsewhere.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self
from urllib.parse import unquote

from pydantic import AfterValidator, StringConstraints, model_validator

from routing.config import Section

SecretName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
"""The name of a secret in the operator's configuration."""
_REMOTE = re.compile(r"(?P<scheme>https|http|ssh|file)://(?:(?P<user>[^/@\s]*)@)?[^\s@\\]{1,400}")
_DOTS = re.compile(r"[/:\\]\.{1,2}(?:[/\\]|$)")
_SCP = re.compile(r"git@[A-Za-z0-9.-]{1,253}:[A-Za-z0-9._/~-]{1,200}")


def _check_remote(url: str) -> str:
    if _DOTS.search(unquote(url)):
        raise ValueError("must not hold . or .. as a part of its path")
    if _SCP.fullmatch(url):
        return url
    found = _REMOTE.fullmatch(url)
    if found is None:
        raise ValueError("must be a URL such as https://forge.example/owner/name.git or git@forge.example:owner/name")
    if found["user"] not in (None, "git"):
        raise ValueError("must not hold a user name or password: the operator's configuration has the credentials")
    return url


class Repository(Section):
    """Where the project's code is."""

    url: Annotated[str, AfterValidator(_check_remote)]
    branch: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,99}$")] = "main"
    """Base of runs and target of pull requests."""
    account: SecretName | None = None
    """The operator's account whose token or deploy key reaches it; without one, that of the forge's integration."""

    @property
    def scheme(self) -> str:
        """The URL's scheme."""
        return "ssh" if _SCP.fullmatch(self.url) else self.url.partition("://")[0]

    @property
    def place(self) -> str:
        """The URL without a user, also where it has ssh's short form: what an account's `git_url` is a prefix of."""
        scheme, _, rest = self.url.rpartition("://")
        rest = rest.removeprefix("git@")
        return f"{scheme}://{rest}" if scheme else f"ssh://{rest.replace(':', '/', 1)}"


class ForgeSettings(Section):
    """Issues in, pull requests out. The API's URL is kept with the secret, so that no project can redirect it."""

    token: SecretName
    webhook: SecretName | None = None
    """Secret that signs its webhooks; without one they are refused."""
    label: Annotated[str, StringConstraints(min_length=1, max_length=50)] | None = None
    """Only issues with this label become tickets, and comments that mention it become orders."""
    reviews: bool = True
    """Whether reviews and failed checks of a run's pull request start further rounds of it."""
    mentions: bool = True
    """Whether a mention on an issue starts a run, or a further round of its last one."""
    draft: bool = False
    """Whether pull requests are opened as drafts, which a person has to mark as ready."""


class GitHub(ForgeSettings):
    """GitHub, or a server with its API."""

    repository: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}$")]

    @property
    def kind(self) -> Literal["github"]:
        """The kind of its accounts."""
        return "github"

    def reference_of(self, number: int) -> str:
        """Return how a pull request is referred to."""
        return f"{self.repository}#{number}"


_GROUP = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}"


class GitLab(ForgeSettings):
    """GitLab, gitlab.com or one's own."""

    repository: Annotated[str, StringConstraints(pattern=rf"^{_GROUP}(/{_GROUP}){{1,20}}$", max_length=300)]
    """`group/name`, with all groups that it lies in."""

    @property
    def kind(self) -> Literal["gitlab"]:
        """The kind of its accounts."""
        return "gitlab"

    def reference_of(self, number: int) -> str:
        """Return how a merge request is referred to."""
        return f"{self.repository}!{number}"


class Linear(Section):
    """A team's issues in, their state and comments out."""

    team: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9]{0,9}$")]
    token: SecretName
    webhook: SecretName | None = None
    label: Annotated[str, StringConstraints(min_length=1, max_length=50)] | None = None


class Integrations(Section):
    """Connected services."""

    github: GitHub | None = None
    gitlab: GitLab | None = None
    linear: Linear | None = None

    @model_validator(mode="after")
    def _has_one_forge(self) -> Self:
        if self.github is not None and self.gitlab is not None:
            raise ValueError("must name one forge, github or gitlab: its pull requests lead to one repository")
        return self

    @property
    def forge(self) -> GitHub | GitLab | None:
        """The forge that takes the project's pull requests."""
        return self.github or self.gitlab
