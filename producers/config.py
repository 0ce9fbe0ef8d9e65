"""Wiring of the producing side."""

from __future__ import annotations

from pathlib import Path

from pydantic import ConfigDict, Field, SecretStr

from routing.config import OptionalPath, Section


class ApiConfig(Section):
    """Where the HTTP door is."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    public_url: str = "http://127.0.0.1:8080"
    """How callers reach it. No page of a site is ever served there."""


class PagesConfig(Section):
    """Where previews and live pages are: a listener of `pointsman api` with an origin of its own."""

    host: str = "127.0.0.1"
    port: int = Field(default=8081, ge=0, le=65535)
    public_url: str = "http://127.0.0.1:8081"
    """How people reach it: preview links begin with this. It must be another origin than the API's; best is a domain
    on which nothing else is, since cookies know no ports."""


class DispatcherConfig(Section):
    """How the dispatcher keeps the runway full."""

    tick_seconds: float = Field(default=1.0, gt=0, le=10)
    """It looks at least this often; news from the ledger wake it at once."""
    lease_seconds: float = Field(default=5.0, gt=1)
    """A dispatcher that died is replaced after this."""
    missing_after_seconds: float = Field(default=3.0, gt=0)
    """A message that is not on the broker's list this long after its push is pushed again."""
    sweep_seconds: float = Field(default=60.0, gt=0)
    """Between two passes over rows of the ledger that retention gives up."""
    housekeeping_hours: float = Field(default=6.0, gt=0)
    """Between two looks for files that nothing on record needs: of releases, drafts and the workspaces of runs."""
    heartbeat: OptionalPath = None
    """A file that the dispatcher writes after each round, for `python -m monitoring.heartbeat`; empty for none."""


class RunsPlace(Section):
    """Where the workspaces of runs are; what else the section holds is the workers' (workers/config.py)."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    root: Path = Path(".pointsman/runs")
    """A directory that the workers of `steps` and `control` share with the dispatcher."""


class GatewayPlace(Section):
    """Where workers find the gateway; what else the section holds is the workers' (workers/config.py)."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    gateway_url: str = "http://127.0.0.1:8090"
    """The gateway: the only way to a model."""


class WebhookConfig(Section):
    """How callbacks are signed and where they may go."""

    secret: SecretStr = SecretStr("")
    """What each tenant's own secret is derived from (`pointsman webhook secret`). Without it no callback is sent."""
    old_secrets: tuple[SecretStr, ...] = ()
    """Earlier ones. Callbacks are signed with these, too, until every receiver has its new secret."""
    allow_private: bool = False
    """Allow callbacks to loopback and private addresses (for one machine and for tests)."""
