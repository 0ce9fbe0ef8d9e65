"""Settings of the gateway. Provider keys appear nowhere else; limits, models and prices are in the policy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo

from gateway.providers.anthropic import AnthropicProvider
from gateway.providers.clouds import BedrockProvider, VertexProvider
from gateway.providers.openai import OpenAIProvider
from gateway.providers.provider import Provider
from routing.config import Section
from routing.policy.prices import Price, price_of

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_KEY = re.compile(r"[\x21-\x7e]+")
"""Printable ASCII without spaces, which is what a header can carry."""
_MAX_DOCUMENT_CHARACTERS = 16_384


def _as_text(key: object) -> object:
    """Return a key file in JSON, which settings come parsed as, as text again."""
    return json.dumps(key) if isinstance(key, dict) else key


def _check_key(key: SecretStr, info: ValidationInfo) -> SecretStr:
    text = key.get_secret_value()
    if info.data.get("api") == "vertex" and text.startswith("{"):
        if len(text) > _MAX_DOCUMENT_CHARACTERS:
            raise ValueError(f"a service account's key has at most {_MAX_DOCUMENT_CHARACTERS} characters")
    elif not _KEY.fullmatch(text):
        raise ValueError("must be one line of printable ASCII without spaces")
    return key


class ProviderConfig(Section):
    """An account at a model provider, and the key that pays for it."""

    api: Literal["anthropic", "bedrock", "vertex", "openai"] = "anthropic"
    """The API that it speaks: Anthropic's own; Claude on Amazon Bedrock or on Google Vertex AI (extras `bedrock` and
    `vertex`); or OpenAI's chat completions, as vLLM, Ollama, llama.cpp and OpenRouter do, which is for everything but
    work in a box: Claude Code speaks to Claude."""
    base_url: Annotated[str, Field(pattern=r"^https?://[^\s/]+(/[^\s]*)?$")]
    """`https://api.anthropic.com`; `https://bedrock-runtime.REGION.amazonaws.com`;
    `https://LOCATION-aiplatform.googleapis.com/v1/projects/PROJECT/locations/LOCATION`; for `openai` what stands before
    `/chat/completions`."""
    region: Annotated[str, Field(pattern=r"^[a-z0-9-]*$")] = ""
    """Bedrock: the region that requests are signed for; empty for the one in `base_url`."""
    label: Annotated[str, Field(min_length=1, max_length=64)]
    """Name of the provider in the ledger's `provider` column."""
    api_key: Annotated[SecretStr, BeforeValidator(_as_text), AfterValidator(_check_key)]
    """The key. Prefer a file (`..._API_KEY_FILE`), which is read once, at start. Bedrock: an API key, or
    `ACCESS_KEY_ID:SECRET_ACCESS_KEY[:SESSION_TOKEN]`. Vertex: a service account's key file. A server without keys: any
    word."""
    models: dict[str, str] = Field(default_factory=dict)
    """The provider's names of the policy's models, as JSON: {"claude-sonnet-4-6": "us.anthropic.claude-sonnet-4-6"}.
    A call costs what the policy's prices say of the provider's name; of one they do not list, the dearest of each."""
    price_factor: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """What this account pays for the same model, as a multiple of the policy's prices: 1.1 where an endpoint of one
    region costs a tenth more."""
    tenants: tuple[str, ...] = ()
    """The only tenants that may use this key, whatever the ledger says; empty for every tenant the operator assigned it
    to. A project may name only a key that lists its tenant here."""
    day_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """The owner's spending limit per day (UTC), in each cell. Without one, work in a box is refused."""

    def price_of(self, prices: Mapping[str, Price], model: str) -> Price:
        """Return what this account pays for a model by the provider's name."""
        return price_of(prices, model).times(self.price_factor)


def create_provider(config: ProviderConfig) -> Provider:
    """Return the provider client of an account.

    Raises:
        PolicyError: the operator's fault: the account's settings do not fit its API.
    """
    key = config.api_key.get_secret_value()
    if config.api == "bedrock":
        return BedrockProvider(config.base_url, key, region=config.region)
    return _PROVIDERS[config.api](config.base_url, key)


_PROVIDERS: dict[str, Callable[[str, str], Provider]] = {
    "anthropic": AnthropicProvider,
    "vertex": VertexProvider,
    "openai": OpenAIProvider,
}


class GatewayConfig(Section):
    """Settings of `serve`."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8090
    box_host: Annotated[str, Field(pattern=r"^([0-9.]{7,15})?$")] = ""
    """A second IPv4 address to listen on, at the same port, for boxes on this machine's engine. It may appear after the
    gateway has started. Empty for none."""
    providers: dict[str, ProviderConfig] = Field(default_factory=dict)
    """Accounts by the name in a tenant's row. A tenant whose provider is missing here makes no model calls."""
    pepper: Annotated[SecretStr, Field(min_length=16)]
    """Secret of the fingerprint that stands for a provider's key in the ledger."""
    journal: Path = Path(".pointsman/journal")
    """A directory on the gateway's own disk, where it notes each served call. Gateways of one host may share it; it has
    to outlive the process."""
    journal_days: Annotated[float, Field(gt=0, le=30)] = 7
    """How long it keeps them: as long as a promotion or a restore may reach back. At most `retention.job_days`."""
    reconcile_seconds: Seconds = 15
    """How often the ledger is compared with the journal."""
    ledger_connections: Annotated[int, Field(ge=1, le=64)] = 6
    upstream_connections: Annotated[int, Field(ge=1)] = 512
    connect_seconds: Seconds = 10
    silence_seconds: Seconds = 290
    """A provider that stays silent this long is gone; the CLI gives up after 300 s."""
    watch_seconds: Seconds = 0.5
    """How often the jobs of open calls are checked for a lost claim or a cancellation."""
    renew_seconds: Seconds = 5
    """How often the leases of open calls are renewed; they last 30 s."""
    start_seconds: Seconds = 5
    """How long to keep reading a call that is stopped before its first event, to learn what its input cost."""
    grace_seconds: Seconds = 20
    """How long open calls may continue after SIGTERM."""
