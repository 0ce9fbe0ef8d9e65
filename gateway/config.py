"""What one gateway is started with, and which providers it knows: keys stand nowhere but here.

Limits, models and prices are the policy's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from gateway.anthropic import AnthropicProvider
from gateway.providers import Provider
from routing.config import Section

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_KEY = re.compile(r"[\x21-\x7e]+")
"""What a header can carry: printable ASCII without spaces."""


def _check_key(key: SecretStr) -> SecretStr:
    if not _KEY.fullmatch(key.get_secret_value()):
        raise ValueError("must be one line of printable ASCII without spaces")
    return key


class ProviderConfig(Section):
    """An account at a model provider, and the key that pays for it."""

    api: Literal["anthropic"] = "anthropic"
    """Whose API it speaks."""
    base_url: Annotated[str, Field(pattern=r"^https?://[^\s/]+(/[^\s]*)?$")]
    label: Annotated[str, Field(min_length=1, max_length=64)]
    """What a call's `provider` column says."""
    api_key: Annotated[SecretStr, AfterValidator(_check_key)]
    """The key itself; it had better stand in a file (`..._API_KEY_FILE`), which is read once, at start."""
    tenants: tuple[str, ...] = ()
    """The only tenants that this key pays for, whatever the ledger says; empty for every tenant that the operator gave
    it to. A project can only name a key that lists its tenant here."""
    day_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """What its owner allows it to spend in a day (UTC). Work in a box is refused without one."""


def create_provider(config: ProviderConfig) -> Provider:
    """Return what speaks to an account's provider."""
    return _PROVIDERS[config.api](config.base_url, config.api_key.get_secret_value())


_PROVIDERS: dict[str, Callable[[str, str], Provider]] = {"anthropic": AnthropicProvider}


class GatewayConfig(Section):
    """Settings of `serve`."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8090
    box_host: Annotated[str, Field(pattern=r"^([0-9.]{7,15})?$")] = ""
    """A second IPv4 address to listen on, at the same port: the one by which boxes on this machine's engine reach it.
    It need not be there when the gateway starts. Empty for none."""
    providers: dict[str, ProviderConfig] = Field(default_factory=dict)
    """By the name that a tenant's row holds. A tenant whose provider is not here makes no model call."""
    pepper: Annotated[SecretStr, Field(min_length=16)]
    """Keys the fingerprint by which the ledger names a provider's key."""
    ledger_connections: Annotated[int, Field(ge=1, le=64)] = 6
    upstream_connections: Annotated[int, Field(ge=1)] = 512
    connect_seconds: Seconds = 10
    silence_seconds: Seconds = 290
    """A provider that says nothing for so long is gone; the CLI gives up after 300 s."""
    watch_seconds: Seconds = 0.5
    """How often open calls are checked against the ledger for a lost job or a cancelled one."""
    renew_seconds: Seconds = 5
    """How often the leases of open calls are renewed; they last 30 s."""
    start_seconds: Seconds = 5
    """How long a call that is stopped before its first event is read on, to learn what its input cost."""
    grace_seconds: Seconds = 20
    """How long open calls may go on after SIGTERM."""
