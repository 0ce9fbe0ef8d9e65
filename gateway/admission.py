"""Admits a call: who makes it, whether it is allowed, and whether budgets and circuit permit its worst case.

After the call, `CircuitReporter` tells the fleet's provider circuit how the provider took it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from pydantic import ValidationError

from gateway.bearers import account_of, address_of, check_address, check_bearer, check_key, token_of
from gateway.config import GatewayConfig, ProviderConfig, create_provider
from gateway.errors import GatewayError, LedgerUnreachableError
from gateway.fleet_budget import FLEET_DAY, FleetBudget
from gateway.ledger_client import Ledger
from gateway.messages import Code, ModelRequest, RefusedError, parse_request
from gateway.providers.provider import Provider, Settlement, UpstreamRequest, WorstInput
from ledger import money, provider_circuits
from ledger.attempts import hash_token
from ledger.money import Bearer, CallStart, CapLimit, CircuitRefusal, Reserved
from ledger.provider_circuits import CircuitUse
from ledger.store import Statement
from routing.config import key_fingerprint
from routing.errors import PolicyError
from routing.ids import new_id
from routing.policy.platform import Policy, ProjectOverrides, lower
from routing.policy.prices import NANOUSD_PER_USD, BudgetExceeded, Price, Usage, nanousd_per_token
from routing.provider_circuit import Trouble, pauses
from routing.queues import Limits

logger = logging.getLogger(__name__)

CountTokens = Callable[["Caller", ModelRequest], Awaitable[int | None]]
"""Asks the provider for a request's input tokens; None when it does not say, and a refusal when it may not be asked."""
SettleLater = Callable[[UUID, Settlement], None]

_NEVER_MADE = Settlement(Usage(), 0, "settled", "refused", 0)
_KEPT_SECONDS = 5.0
_MAX_KEPT = 10_000
_MAX_LOOKUPS = 3
"""How often a call begins anew because what its bearer may do changed while it was admitted."""


@dataclass(frozen=True)
class Caller:
    """An attempt that may call, its policy and the account that pays."""

    bearer: Bearer
    policy: Policy
    """The platform's policy with the tenant's overrides."""
    limits: Limits
    """Of its queue."""
    account: ProviderConfig
    provider: Provider
    caps: tuple[CapLimit, ...]
    """What its calls count against."""
    headers: Mapping[bytes, bytes]
    peer: str | None
    """The source address of its request."""
    is_kept: bool
    """Whether the bearer was looked up some seconds ago: only the reserve knows whether it may still call."""


@dataclass(frozen=True)
class Admitted:
    """A call whose worst-case cost is reserved."""

    id: UUID
    caller: Caller
    request: ModelRequest
    sent: UpstreamRequest
    reserved: Reserved
    price: Price
    circuit: CircuitUse


class _Kept(NamedTuple):
    """A caller that was looked up."""

    caller: Caller
    until: float
    """Monotonic time."""


class _BearerGoneError(GatewayError):
    """What a bearer's lookup found has to be looked up again."""


class Admission:
    """Decides on each call before anything is forwarded."""

    def __init__(
        self,
        ledger: Ledger,
        config: GatewayConfig,
        policy: Policy,
        *,
        instance: str,
        count_tokens: CountTokens,
        settle_later: SettleLater,
        fleet: FleetBudget,
    ) -> None:
        self._ledger = ledger
        self._config = config
        self._instance = instance
        self._count_tokens = count_tokens
        self._settle_later = settle_later
        self._fleet = fleet
        self._circuits = policy.circuits
        self._policy_of = lru_cache(maxsize=256)(lambda overrides: _lowered(policy, overrides))
        pepper = config.pepper.get_secret_value()
        self._key_hashes = {
            account.label: key_fingerprint(account.api_key.get_secret_value(), pepper=pepper)
            for account in config.providers.values()
        }
        self._kept: dict[str, _Kept] = {}
        """Callers by the hash of their token."""
        self._providers = {name: create_provider(account) for name, account in config.providers.items()}

    async def caller(self, headers: Mapping[bytes, bytes], *, peer: str | None, reserves: bool = False) -> Caller:
        """Authenticate a request.

        Args:
            headers: of the request.
            peer: its source address; None where the transport has none.
            reserves: whether it will be admitted. Then an earlier request's lookup serves, for some seconds: what it
                found is checked again with the reserve, and looked up again before it refuses anybody.

        Raises:
            RefusedError: the caller may not call.
            LedgerUnreachableError: nothing may be forwarded.
        """
        token_hash = hash_token(token_of(headers))
        kept = self._kept.get(token_hash) if reserves else None
        if kept is not None and kept.until > time.monotonic() and kept.caller.bearer.today == _today():
            with suppress(RefusedError):
                check_address(kept.caller.bearer, address=address_of(peer), limits=kept.caller.limits)
                return replace(kept.caller, headers=headers, peer=peer, is_kept=True)
        self._kept.pop(token_hash, None)
        caller = self._caller(check_bearer(await self._ledger.bearer(token_hash)), headers, peer=peer)
        if len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
        self._kept[token_hash] = _Kept(caller, time.monotonic() + _KEPT_SECONDS)
        return caller

    def _caller(self, bearer: Bearer, headers: Mapping[bytes, bytes], *, peer: str | None) -> Caller:
        policy = self._policy_of(bearer.overrides)
        limits = policy.limits_for(bearer.queue, bearer.agent)
        check_address(bearer, address=address_of(peer), limits=limits)
        account = account_of(bearer, self._config.providers)
        check_key(bearer, account, limits=limits)
        caps = money.caps_of(bearer, policy=policy, key_day_usd=account.day_usd)
        provider = self._providers[bearer.provider or ""]
        return Caller(bearer, policy, limits, account, provider, caps, headers, peer, is_kept=False)

    def request(self, caller: Caller, raw: bytes, *, is_count: bool = False) -> ModelRequest:
        """Parse and check the body of a request.

        Raises:
            RefusedError: the caller's fault; names the field and the rule.
        """
        most_tokens = caller.policy.gateway.max_output_tokens
        request = parse_request(
            raw, models=_models_of(caller), most_tokens=most_tokens, names=caller.account.models, is_count=is_count
        )
        caller.provider.check(request, allows_references=caller.policy.gateway.media_references)
        return request

    async def take_count(self, caller: Caller) -> None:
        """Take one request to count tokens from the account's bucket.

        Raises:
            RefusedError: the bucket is empty.
            LedgerUnreachableError: nothing may be forwarded.
        """
        per_minute = caller.policy.gateway.counts_per_minute
        taken = provider_circuits.take_count(caller.bearer.provider or "", per_minute=per_minute)
        if not await self._ledger.query(taken):
            text = f"more than {per_minute:g} requests a minute to count tokens"
            raise RefusedError(Code.RATE_LIMITED, text, retry_after=60 / per_minute)

    async def admit(self, caller: Caller, request: ModelRequest) -> Admitted:
        """Reserve a call's worst case, lowered to fit the budgets if necessary.

        Raises:
            RefusedError: a budget cannot cover it, the circuit is open, or the attempt has just lost its job.
            LedgerUnreachableError: nothing may be forwarded.
        """
        for _ in range(_MAX_LOOKUPS):
            try:
                return await self._admit(caller, request)
            except _BearerGoneError:
                fresh = await self.caller(caller.headers, peer=caller.peer)
            if fresh.bearer == caller.bearer and not caller.is_kept:
                break
            caller, request = fresh, self.request(fresh, request.received)
        raise RefusedError(Code.FENCED, "the attempt of this token no longer holds its job")

    async def _admit(self, caller: Caller, request: ModelRequest) -> Admitted:
        price = caller.account.price_of(caller.policy.prices, request.model)
        call = self._start(caller, request, price, await self._bound(caller, request, price))
        outcome = await self._reserve(caller, call)
        if isinstance(outcome, BudgetExceeded):
            call = replace(call, least_tokens=_least_tokens(caller.policy, request))
            if outcome.left_nanousd > call.least_tokens * call.token_nanousd:
                for worst in await self._tight_bounds(caller, request, price):
                    call = _bounded(call, worst)
                    outcome = await self._reserve(caller, call)
                    if not isinstance(outcome, BudgetExceeded):
                        break
        if isinstance(outcome, BudgetExceeded):
            raise await self._refuse_budget(caller, call, outcome)
        sent = caller.provider.call(request, max_tokens=outcome.max_tokens, headers=caller.headers, call_id=call.id)
        return Admitted(call.id, caller, request, sent, outcome, price, call.circuit)

    async def _bound(self, caller: Caller, request: ModelRequest, price: Price) -> WorstInput:
        worst = caller.provider.worst_input(request, price, headers=caller.headers)
        if worst is None:
            if caller.is_kept:  # its right may have ended: look it up before asking the provider
                raise _BearerGoneError
            counted = await self._count_tokens(caller, request)
            worst = caller.provider.worst_input(request, price, headers=caller.headers, counted=counted)
        if worst is None:
            raise RefusedError(Code.FEATURE_REFUSED, "messages: a document whose pages cannot be counted")
        return worst

    async def _tight_bounds(self, caller: Caller, request: ModelRequest, price: Price) -> list[WorstInput]:
        """Return lower bounds for where a budget has no room for the first: by the provider's count, then its cache."""
        counted = None
        with suppress(RefusedError):
            counted = await self._count_tokens(caller, request)
        bounds = [
            caller.provider.worst_input(
                request, price, headers=caller.headers, counted=counted, trusts_cache=trusts_cache
            )
            for trusts_cache in (False, True)
        ]
        return list(dict.fromkeys(bound for bound in bounds if bound is not None))

    def _start(self, caller: Caller, request: ModelRequest, price: Price, worst: WorstInput) -> CallStart:
        policy = caller.policy
        account = caller.bearer.provider or ""
        return CallStart(
            id=new_id(),
            provider=caller.account.label,
            model=request.model,
            key_hash=self._key_hashes[caller.account.label],
            gateway=self._instance,
            prices_as_of=policy.prices_as_of,
            input_nanousd=worst.nanousd,
            token_nanousd=max(1, nanousd_per_token(price.output)),
            max_tokens=request.max_tokens,
            least_tokens=request.max_tokens,
            call_limit_nanousd=round(policy.budgets.call_usd * NANOUSD_PER_USD),
            circuit=CircuitUse(
                account=account, rules=self._circuits.of(account, request.model), input_tokens=worst.tokens
            ),
        )

    async def _reserve(self, caller: Caller, call: CallStart) -> Reserved | BudgetExceeded:
        caps = self._fleet.within(caller.caps)
        try:
            outcome = await self._ledger.reserve(caller.bearer, call, caps)
        except LedgerUnreachableError:
            self._settle_later(call.id, _NEVER_MADE)
            if caller.is_kept:  # a dead connection, perhaps: the lookup finds out, and replaces it
                raise _BearerGoneError from None
            raise
        if isinstance(outcome, BudgetExceeded) and outcome.scope == FLEET_DAY:
            needed = call.input_nanousd + call.max_tokens * call.token_nanousd
            if await self._fleet.extend(caller.caps, caps, needed_nanousd=needed):
                return await self._reserve(caller, call)
        if isinstance(outcome, Reserved | BudgetExceeded):
            return outcome
        if isinstance(outcome, CircuitRefusal):
            raise _refuse_circuit(call, outcome)
        raise _BearerGoneError

    async def _refuse_budget(self, caller: Caller, call: CallStart, exceeded: BudgetExceeded) -> RefusedError:
        await self._ledger.run(money.limit_hit(caller.bearer, scope=exceeded.scope, phase="admit"))
        least = call.input_nanousd + call.least_tokens * call.token_nanousd
        return RefusedError(Code.BUDGET_EXCEEDED, str(exceeded._replace(needed_nanousd=least)))


def _bounded(call: CallStart, worst: WorstInput) -> CallStart:
    """Return a call with another bound of its input."""
    return replace(call, input_nanousd=worst.nanousd, circuit=replace(call.circuit, input_tokens=worst.tokens))


def _refuse_circuit(call: CallStart, refusal: CircuitRefusal) -> RefusedError:
    if refusal.reason is None:
        text = f"the fleet's own limit for {call.model} is reached"
        return RefusedError(Code.RATE_LIMITED, text, retry_after=refusal.seconds)
    text = f"the circuit of {call.model} is open for the whole fleet ({refusal.reason})"
    return RefusedError(Code.CIRCUIT_OPEN, text, retry_after=refusal.seconds)


def _models_of(caller: Caller) -> frozenset[str]:
    """Return the models that a caller may use; a run's step has exactly the one configured for it."""
    own = caller.bearer.step_model
    return caller.policy.models_of(caller.bearer.queue) if own is None else frozenset({own})


def _least_tokens(policy: Policy, request: ModelRequest) -> int:
    """Return the least output tokens of a call: with fewer, the provider refuses it or the input is wasted."""
    return min(request.max_tokens, max(policy.gateway.min_output_tokens, request.thinking_tokens + 1))


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _lowered(policy: Policy, overrides: str) -> Policy:
    if overrides == "{}":
        return policy
    try:
        return lower(policy, ProjectOverrides.model_validate_json(overrides))
    except (PolicyError, ValidationError):
        raise RefusedError(Code.OVERRIDES_INVALID, "the tenant's overrides do not fit the platform's policy") from None


class CircuitReporter:
    """Reports one call to the circuit of its account and model.

    A successful call through a closed circuit without rate limits reports nothing, so it costs nothing extra. A ledger
    that is away does not fail a finished call: the next call reports again.
    """

    def __init__(self, admitted: Admitted, ledger: Ledger) -> None:
        self._ledger = ledger
        self._model = admitted.request.model
        self._circuit = admitted.circuit
        self._taken_tokens = admitted.circuit.input_tokens + admitted.reserved.max_tokens
        self._is_test = admitted.reserved.is_circuit_test
        self.is_awaited = self._is_test or admitted.reserved.circuit_failures > 0
        """Whether the fleet is waiting to learn that the provider takes calls."""

    async def report_success(self) -> None:
        """Report that the provider takes calls; called as soon as it begins to reply, so that others need not wait."""
        if self.is_awaited:
            self.is_awaited = False
            await self._run(provider_circuits.succeed(self._circuit.account, self._model, is_test=self._is_test))
            self._is_test = False

    async def report_unknown(self) -> None:
        """Report that the call ended before it could test the provider."""
        if self._is_test:
            await self._run(provider_circuits.give_up_test(self._circuit.account, self._model))

    async def report_end(self, trouble: Trouble | None, *, retry_after: float | None) -> float:
        """Report how the call ended, and return for how many seconds that opens its circuit.

        `trouble` is None when the provider is healthy; `retry_after` are the seconds that it asked callers to wait.
        """
        if trouble is None:
            await self.report_success()
            return 0.0
        pause_steps = pauses(trouble, self._circuit.rules, retry_after=retry_after, is_probe=self._is_test)
        statement = provider_circuits.fail(
            self._circuit.account,
            self._model,
            trouble=trouble,
            pauses=pause_steps,
            asked=retry_after,
            is_test=self._is_test,
        )
        rows = await self._run(statement)
        failure = provider_circuits.read_failure(rows[0]) if rows else provider_circuits.Failure(0, 0.0)
        logger.warning(
            "circuit_failure",
            extra={
                "model": self._model,
                "trouble": trouble.value,
                "failures": failure.failures,
                "open_seconds": round(failure.open_seconds, 3),
            },
        )
        return failure.open_seconds

    async def return_tokens(self, settlement: Settlement) -> None:
        """Return the tokens that the call took from the rate limit's bucket but did not use."""
        if self._circuit.rules.tokens_per_minute is None or settlement.state != "settled":
            return
        usage = settlement.usage
        used = usage.input_tokens + usage.cache_write_tokens + usage.output_tokens
        if (left := self._taken_tokens - used) > 0:
            await self._run(provider_circuits.give_back(self._circuit.account, self._model, tokens=left))

    async def _run(self, statement: Statement) -> list[tuple[object, ...]]:
        try:
            return list(await self._ledger.run(statement))
        except LedgerUnreachableError:
            logger.warning("circuit_not_reported", extra={"model": self._model})
            return []
