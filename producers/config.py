"""Settings of the producers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, model_validator

from routing.config import OptionalPath, Section

MAIL_PATTERN = r"^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$"
"""Addresses that need no quoting, in a header or a list."""


class ApiConfig(Section):
    """The HTTP API and console."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    public_url: str = "http://127.0.0.1:8080"
    """Public URL. No page of a site is ever served there."""
    session_idle_minutes: float = Field(default=120.0, gt=0)
    """A session of the console that nobody uses for so long is over; after twelve hours it is anyway."""


class OidcConfig(Section):
    """People who sign in to the console by an identity provider (OpenID Connect). Needs the extra `oidc`."""

    issuer: Annotated[str, Field(pattern=r"^(https://.+|http://(127\.0\.0\.1|localhost)(:\d+)?.*)?$")] = ""
    """The provider's issuer, exactly as its ID tokens say. Empty: keys alone open the console."""
    client_id: str = ""
    """The client that the provider knows this installation as. Its redirect URI is
    `POINTSMAN_API__PUBLIC_URL/console/login/oidc/callback`."""
    client_secret: SecretStr = SecretStr("")
    """The client's secret; empty for a public client, which PKCE protects."""
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    """Scopes to ask for. Some providers put groups into the ID token only with one more."""
    groups_claim: str = "groups"
    """The claim of the ID token with what somebody belongs to: a text or a list of texts."""
    grants: Mapping[str, str] = Field(default_factory=dict)
    """What each group may do, as `TENANT:ROLE`, such as `{"web-editors": "acme:editor"}`. Roles are `viewer`, `editor`,
    `approver`, `admin` and `operator`, each with what those before it may. Whoever has none does not get in."""


class PagesConfig(Section):
    """Previews and live pages: a listener of `pointsman api` with its own origin."""

    host: str = "127.0.0.1"
    port: int = Field(default=8081, ge=0, le=65535)
    public_url: str = "http://127.0.0.1:8081"
    """Public URL, with which preview links start. Its origin must differ from the API's; best use a separate domain,
    since cookies ignore ports."""
    site_url: Annotated[str, Field(pattern=r"^(https?://\{site\}\.[a-z0-9.:-]+)?$")] = ""
    """Origins of single sites and previews, such as `https://{site}.pages.example.org`: browsers are sent there, and
    scripts have a storage of their own. All such host names lead to this listener (a wildcard in DNS and certificate),
    and serve nothing else. Empty for none: every page is alone in a sandbox, where `localStorage` throws."""


class DispatcherConfig(Section):
    """How the dispatcher fills the queues."""

    tick_seconds: float = Field(default=1.0, gt=0, le=10)
    """Longest time between two rounds; news from the ledger starts one at once."""
    lease_seconds: float = Field(default=5.0, gt=1)
    """A dead dispatcher is replaced after this."""
    missing_after_seconds: float = Field(default=3.0, gt=0)
    """A message that is missing from the broker's list this long after its push is pushed again."""
    sweep_seconds: float = Field(default=60.0, gt=0)
    """Time between two deletions of expired rows of the ledger."""
    housekeeping_hours: float = Field(default=6.0, gt=0)
    """Time between two removals of unused files of releases, drafts and runs."""
    chromium: str = ""
    """Program that takes a picture of each published release for the console, by path or name; empty for none: it
    opens what others wrote on the dispatcher's host, so an operator decides. It runs in its own sandbox, as `nobody`
    where the dispatcher is root; where that is not possible, there are no pictures."""
    heartbeat: OptionalPath = None
    """File that the dispatcher writes after each round, for `python -m monitoring.heartbeat`; empty for none."""


class RunsPlace(Section, extra="ignore"):
    """Workspaces of runs; workers/config.py has the rest of the section."""

    root: Path = Path(".pointsman/runs")
    """Directory that the workers of `steps` and `control` share with the dispatcher."""
    private_remotes: bool = False
    """Whether a project's remote may have a non-public address, such as a forge in the operator's network."""


class GatewayPlace(Section, extra="ignore"):
    """The gateway for workers; workers/config.py has the rest of the section."""

    gateway_url: str = "http://127.0.0.1:8090"
    """URL of the model gateway."""


class MailConfig(Section):
    """E-mail to the people that jobs wait for. Tenants choose it and their addresses (`pointsman tenant notify`)."""

    host: str = ""
    """The SMTP server; empty for none: no e-mail is sent then."""
    port: int = Field(default=587, ge=1, le=65535)
    security: Literal["starttls", "tls", "none"] = "starttls"
    """`starttls` and `tls` check the server's certificate; `none` is for a relay on this machine."""
    authorities: OptionalPath = None
    """PEM file of the authorities to trust; empty for the usual ones."""
    username: str = ""
    password: SecretStr = SecretStr("")
    sender: Annotated[str, Field(pattern=MAIL_PATTERN)] = "pointsman@localhost.invalid"
    """The address that messages come from."""

    @model_validator(mode="after")
    def _hides_password(self) -> Self:
        if self.username and self.security == "none":
            raise ValueError("username needs security starttls or tls: it would go over the network as it is")
        return self


class WebhookConfig(Section):
    """Signed callbacks."""

    secret: SecretStr = SecretStr("")
    """Each tenant's own secret is derived from this (`pointsman webhook secret`). Without it no callback is sent."""
    old_secrets: tuple[SecretStr, ...] = ()
    """Previous secrets, which also sign callbacks until every receiver has its new one."""
    allow_private: bool = False
    """Allow callbacks to loopback and private addresses (for a single machine and for tests)."""
