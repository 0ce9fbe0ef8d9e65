"""The caller behind a token: its attempt, whether it may still call, its address, and whose key pays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from gateway.config import ProviderConfig
from gateway.messages import Code, RefusedError
from ledger.money import Bearer
from routing.queues import Limits

_MAX_TOKEN_CHARS = 256
_MAX_LOGGED_CHARS = 80
_LIKE_A_TOKEN = re.compile(r"[A-Za-z0-9_-]{20,}")


def token_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the attempt token of a request: a Bearer token or `x-api-key`.

    Raises:
        RefusedError: the caller's fault: there is none.
    """
    scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
    token = bearer.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"").strip()
    if not token or len(token) > _MAX_TOKEN_CHARS:
        raise RefusedError(Code.UNKNOWN_TOKEN, "an attempt token is required, as a Bearer token or as x-api-key")
    return token.decode("latin-1")


def logged_path(path: str) -> str:
    """Return a path fit for a log: a box chooses it, and may put its token into it."""
    return _LIKE_A_TOKEN.sub("[long]", path[: 4 * _MAX_LOGGED_CHARS])[:_MAX_LOGGED_CHARS]


def check_bearer(bearer: Bearer | None) -> Bearer:
    """Return the bearer if its attempt still holds its job.

    Raises:
        RefusedError: the caller's fault, or nobody's: the job moved on.
    """
    if bearer is None:
        raise RefusedError(Code.UNKNOWN_TOKEN, "this token belongs to no attempt")
    if bearer.has_ended:
        raise RefusedError(Code.ATTEMPT_ENDED, "the attempt of this token has ended")
    if bearer.is_late:
        raise RefusedError(Code.DEADLINE_PASSED, "the time limit of this token's attempt has passed")
    if bearer.is_fenced:
        raise RefusedError(Code.FENCED, "the attempt of this token no longer holds its job")
    if bearer.is_cancelled:
        raise RefusedError(Code.CANCELLED, "the job was cancelled: it makes no more model calls")
    return bearer


@lru_cache(maxsize=1024)
def address_of(peer: str | None) -> str | None:
    """Return a peer's address in canonical form; None where it has none, as over a Unix socket."""
    try:
        address = ip_address(peer or "")
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def check_address(bearer: Bearer, *, address: str | None, limits: Limits) -> None:
    """Accept a token only from the address it is bound to; a token for work in a box must be bound.

    Raises:
        RefusedError: the caller's fault, or that of a worker that did not bind the token.
    """
    if bearer.egress_address is not None and bearer.egress_address != address:
        raise RefusedError(Code.WRONG_ADDRESS, "this token is not taken from this address")
    if bearer.egress_address is None and limits.container == "required":
        raise RefusedError(Code.WRONG_ADDRESS, "this token is for a box, and is bound to none")


def account_of(bearer: Bearer, providers: Mapping[str, ProviderConfig]) -> ProviderConfig:
    """Return the account that pays for a bearer's calls: always the tenant's own (S-065, S-068).

    The operator assigns a provider to a tenant. A project file is untrusted: it may name only a provider whose key
    lists this tenant, or any project could spend a stranger's money.

    Raises:
        RefusedError: the tenant's fault: its provider is missing, not configured here, or not its own.
    """
    if bearer.provider is None:
        raise RefusedError(
            Code.NO_PROVIDER, f"tenant {bearer.tenant} has no model provider: add its API key; there is no shared one"
        )
    provider = providers.get(bearer.provider)
    if provider is None:
        raise RefusedError(
            Code.NO_PROVIDER, f"provider {bearer.provider} of tenant {bearer.tenant} is not configured in this gateway"
        )
    is_own = not provider.tenants and bearer.provider == bearer.tenant_provider
    if not is_own and bearer.tenant not in provider.tenants:
        raise RefusedError(Code.NO_PROVIDER, f"the key of provider {bearer.provider} is not tenant {bearer.tenant}'s")
    return provider


def check_key(bearer: Bearer, provider: ProviderConfig, *, limits: Limits) -> None:
    """Require a key with a spending limit for work in a box (H-115), at a provider of Claude.

    Raises:
        RefusedError: the fault of the key's owner.
    """
    if provider.day_usd is None and limits.container == "required":
        raise RefusedError(
            Code.NO_PROVIDER,
            f"provider {bearer.provider} states no spending limit: work in a box needs its day_usd",
        )
    if provider.api == "openai" and limits.container == "required":
        raise RefusedError(
            Code.NO_PROVIDER, f"provider {bearer.provider} has no Claude: work in a box needs one that has (api openai)"
        )
