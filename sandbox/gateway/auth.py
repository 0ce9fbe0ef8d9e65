"""Who may call: the rules between a token and a model call, in the order in which they are asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address

from monitoring.ledger.money import Bearer
from routing.queues import Limits
from sandbox.gateway.config import ProviderConfig
from sandbox.gateway.messages import Code, RefusedError

_MAX_TOKEN_CHARS = 256
_MAX_LOGGED_CHARS = 80
_LIKE_A_TOKEN = re.compile(r"[A-Za-z0-9_-]{20,}")


def token_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the attempt token that a request carries as a Bearer token or as `x-api-key`.

    Raises:
        RefusedError: the caller's fault: it carries none.
    """
    scheme, _, bearer = headers.get(b"authorization", b"").partition(b" ")
    found = bearer.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"").strip()
    if not found or len(found) > _MAX_TOKEN_CHARS:
        raise RefusedError(Code.UNKNOWN_TOKEN, "an attempt token is required, as a Bearer token or as x-api-key")
    return found.decode("latin-1")


def logged_path(path: str) -> str:
    """Return a path as it may stand in a log: a box writes it, and may write its token there."""
    return _LIKE_A_TOKEN.sub("[long]", path[: 4 * _MAX_LOGGED_CHARS])[:_MAX_LOGGED_CHARS]


def check_bearer(bearer: Bearer | None) -> Bearer:
    """Return the bearer when it holds its job and may go on.

    Raises:
        RefusedError: the attempt's fault, or nobody's: the job moved on.
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


def address_of(peer: str | None) -> str | None:
    """Return a peer's address in its one form; None where it has none, as over a Unix socket."""
    try:
        address = ip_address(peer or "")
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def check_address(bearer: Bearer, *, address: str | None, limits: Limits) -> None:
    """Accept a token only from the address that it is bound to, and one for work in a box only once it is bound.

    Args:
        bearer: whose token it is.
        address: where the call comes from, see `address_of`.
        limits: those of the bearer's queue.

    Raises:
        RefusedError: the caller's fault, or a worker's that bound nothing.
    """
    if bearer.door is not None and bearer.door != address:
        raise RefusedError(Code.WRONG_ADDRESS, "this token is not taken from this address")
    if bearer.door is None and limits.container == "required":
        raise RefusedError(Code.WRONG_ADDRESS, "this token is for a box, and is bound to none")


def account_of(bearer: Bearer, providers: Mapping[str, ProviderConfig]) -> ProviderConfig:
    """Return the account that pays for a bearer's calls: the tenant's own, and never another (S-065, S-068).

    Which provider is a tenant's own the operator says. A project's file is written by anybody: it may only name one
    whose key says itself that it is this tenant's, or every project could let a stranger's key pay.

    Raises:
        RefusedError: the tenant's fault: it has none, or one this gateway does not know or that is not its own.
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
    """Let only a key with a declared spending limit pay for what runs in a box (H-115).

    Raises:
        RefusedError: the fault of the key's owner.
    """
    if provider.day_usd is None and limits.container == "required":
        raise RefusedError(
            Code.NO_PROVIDER,
            f"provider {bearer.provider} states no spending limit: work in a box needs its day_usd",
        )
