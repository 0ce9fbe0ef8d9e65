"""Accounts at forges and trackers: wiring and secrets, which projects name and never hold."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from routing.config import Section

GITHUB_API = "https://api.github.com"
LINEAR_API = "https://api.linear.app/graphql"


class Account(Section):
    """One account."""

    kind: Literal["github", "linear"]
    api_url: str = Field(default="", pattern=r"^$|^https?://[^\s/]+(/\S*)?$")
    """Where its interface is; empty for the service's own public address."""
    token: SecretStr = SecretStr("")
    """Lets us push branches, open pull requests and write to tickets. Agents never see it."""
    webhook_secret: SecretStr = SecretStr("")
    """Signs what the service sends us; without one nothing is taken from it."""
    git_url: str = Field(default="", pattern=r"^$|^https?://[^\s@?#]+/$")
    """What the URLs of repositories that this account is used for begin with, such as https://forge.example/acme/;
    empty for none: a project cannot send the token elsewhere."""
    username: str = "x-access-token"
    """Goes with the token where git wants a name; forges that know a token by itself take any."""
    tenants: tuple[str, ...] = ()
    """Whose projects may name this account, as JSON, such as ["acme"]; empty for nobody's."""

    @property
    def address(self) -> str:
        """Where its interface is."""
        return self.api_url.rstrip("/") or (GITHUB_API if self.kind == "github" else LINEAR_API)


class AccountsConfig(Section):
    """Accounts at forges and trackers, by the names that project files use."""

    by_name: dict[str, Account] = Field(default_factory=dict)
    """`POINTSMAN_ACCOUNTS__BY_NAME__ACME__TOKEN` and so on; names are lower case."""

    def find(self, name: str, *, tenant: str) -> Account | None:
        """Return a tenant's account; None where there is none of this name, or it is somebody else's."""
        account = self.by_name.get(name.lower())
        return account if account is not None and tenant in account.tenants else None
