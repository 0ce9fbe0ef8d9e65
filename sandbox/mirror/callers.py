"""Who may fetch packages: a live attempt, known by its token or by the door that its box stands behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from monitoring.ledger import money
from monitoring.ledger.attempts import hash_token
from routing.policy import Policy
from sandbox.gateway.auth import address_of, check_address, check_bearer, token_of
from sandbox.gateway.ledger import Ledger, LedgerUnreachableError
from sandbox.gateway.messages import RefusedError
from sandbox.mirror.errors import MirrorRefusedError

_MAX_KNOWN = 4096


class Callers:
    """Asks the ledger, and believes it for a moment: an install makes hundreds of requests."""

    def __init__(
        self,
        ledger: Ledger,
        policy: Policy,
        *,
        believed_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._policy = policy
        self._believed_seconds = believed_seconds
        self._clock = clock
        self._known: dict[tuple[str, str | None], float] = {}

    async def check(self, headers: Mapping[bytes, bytes], *, peer: str | None) -> str:
        """Return the door that a request comes through.

        Raises:
            MirrorRefusedError: the caller's fault; 503 when the ledger does not answer.
        """
        address = address_of(peer)
        if address is None:
            raise MirrorRefusedError(401, "packages are for boxes: this request has no address")
        token_hash = hash_token(token_of(headers)) if b"authorization" in headers else None
        now = self._clock()
        if self._known.get((address, token_hash), 0.0) > now:
            return address
        try:
            await self._ask(address, token_hash)
        except RefusedError as refusal:
            raise MirrorRefusedError(refusal.status, refusal.message) from None
        except LedgerUnreachableError:
            raise MirrorRefusedError(503, "the ledger is unreachable: nobody can be told from anybody") from None
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[address, token_hash] = now + self._believed_seconds
        return address

    async def _ask(self, address: str, token_hash: str | None) -> None:
        if token_hash is not None:
            bearer = check_bearer(await self._ledger.bearer(token_hash))
            check_address(bearer, address=address, limits=self._policy.queues[bearer.queue])
            return
        [[is_open]] = await self._ledger.ask(money.is_live_address(address))
        if not is_open:
            raise MirrorRefusedError(401, "packages are for boxes: no live attempt is bound to this address")
