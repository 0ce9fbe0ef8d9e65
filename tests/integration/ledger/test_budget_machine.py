"""Any order of reserves, settlements, losses, cuts and changed limits keeps the books: a seeded walk on PostgreSQL.

The statements are those of `ledger.money`; the model beside them is a few lines of arithmetic.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import Bundle, initialize, invariant, multiple, rule

from ledger import money
from ledger.attempts import find_lapsed_attempts, recover
from ledger.money import Bearer, BearerGone, CallStart, CapLimit, Reserved
from routing.policy.platform import platform_policy
from routing.policy.prices import BudgetExceeded, Usage
from tests.factories import Shop, make_call
from tests.integration.ledger.machines import Machine, bounded

DAYS = ("2026-01-01", "2026-01-02")
SCOPES = ("tier", "job", "tenant_day", "key_day", "fleet_day")
LARGE = 10**12
Key = tuple[str, str]


@dataclass
class Account:
    """A cap as the model keeps it."""

    spent: int = 0
    reserved: int = 0


@dataclass(frozen=True)
class Open:
    """A call as the model keeps it."""

    id: UUID
    keys: tuple[Key, ...]
    reserved: int


class BudgetMachine(Machine):
    """Two tenants, two days, jobs that share a bill or do not, and limits that are raised and lowered at any time."""

    parallel: ClassVar[Counter[tuple[int, int]]] = Counter()
    """How many of how many calls that were asked for at once were admitted."""
    holders = Bundle("holders")

    @initialize(target=holders)
    def start(self) -> Any:
        self.shop.clear()
        self.policy = platform_policy()
        self.accounts: dict[Key, Account] = defaultdict(Account)
        self.limits = dict.fromkeys(SCOPES, 1000)
        self.open: dict[UUID, Open] = {}
        self.closed: list[UUID] = []
        self.gone: set[UUID] = set()
        self.roots: list[tuple[str, UUID]] = []
        holders = [self.new_holder(tenant, on_a_bill=True) for tenant in ("acme", "acme", "zulu")]
        self.reserve_in_parallel(holders[0], 5, DAYS[0], 200)  # every example meets a limit by calls at once
        for _ in range(len(self.open)):
            self.settle(0, 0.0, "settled")
        return multiple(*holders)

    # -------------------------------------------------------------------------------------------------- who calls

    @rule(target=holders, tenant=st.sampled_from(["acme", "zulu"]), on_a_bill=st.booleans())
    def claim(self, tenant: str, on_a_bill: bool) -> Bearer:
        return self.new_holder(tenant, on_a_bill=on_a_bill)

    def new_holder(self, tenant: str, *, on_a_bill: bool) -> Bearer:
        roots = [root for owner, root in self.roots if owner == tenant] if on_a_bill else []
        more = {"root_id": roots[0]} if roots else {}
        claimed = self.shop.running(tenant=tenant, tier=None, **more)
        self.roots.append((tenant, claimed.job.root_id))
        return self.shop.bearer(claimed.token)

    @rule(target=holders, holder=holders, way=st.sampled_from(["fenced", "cancelled", "lost"]))
    def lose_the_job(self, holder: Bearer, way: str) -> Bearer:
        self.gone.add(holder.job_id)
        if way == "fenced":
            self.shop.execute("UPDATE job SET fence = fence + 1 WHERE id = :id", id=holder.job_id)
        elif way == "cancelled":
            self.shop.execute("UPDATE job SET cancel_requested_at = now() WHERE id = :id", id=holder.job_id)
        else:
            lapse = "UPDATE attempt SET lease_until = now() - interval '1 s' WHERE id = :id AND ended_at IS NULL"
            self.shop.execute(lapse, id=holder.attempt_id)
            with self.shop.ledger.begin() as session:
                for attempt in find_lapsed_attempts(session):
                    recover(session, attempt, max_lost=9)
        return self.new_holder(holder.tenant, on_a_bill=True)

    @rule(scope=st.sampled_from(SCOPES), limit=st.integers(0, 2500))
    def change_a_limit(self, scope: str, limit: int) -> None:
        self.limits[scope] = limit

    # ------------------------------------------------------------------------------------------------------ calls

    def caps(self, holder: Bearer, day: str) -> tuple[CapLimit, ...]:
        made = money.caps_of(replace(holder, today=day, provider="own"), policy=self.policy, key_day_usd=1.0)
        assert tuple(cap.scope for cap in made) == SCOPES
        return tuple(cap._replace(limit_nanousd=self.limits[cap.scope]) for cap in made)

    def expected(self, caps: Iterable[CapLimit], call: CallStart) -> Reserved | None:
        """What the model admits: as many tokens as fit under every limit, if they are enough."""
        room = min(
            cap.limit_nanousd - self.accounts[cap.scope, cap.key].spent - self.accounts[cap.scope, cap.key].reserved
            for cap in caps
        )
        fits = (min(room, call.call_limit_nanousd) - call.input_nanousd) // call.token_nanousd
        tokens = min(call.max_tokens, fits)
        if tokens < call.least_tokens:
            return None
        return Reserved(tokens, call.input_nanousd + tokens * call.token_nanousd)

    def ask(self, holder: Bearer, call: CallStart, caps: tuple[CapLimit, ...]) -> object:
        with self.shop.ledger.begin() as session:
            return money.read_reserve(money.reserve(holder, call, caps).all(session)[0], call)

    @rule(
        holder=holders,
        day=st.sampled_from(DAYS),
        input_nanousd=st.integers(0, 300),
        token=st.integers(1, 3),
        wanted=st.integers(1, 200),
        least=st.integers(1, 200),
        call_limit=st.sampled_from([LARGE, 400]),
    )
    def reserve(
        self, holder: Bearer, day: str, input_nanousd: int, token: int, wanted: int, least: int, call_limit: int
    ) -> None:
        call = make_call(
            input_nanousd=input_nanousd,
            token_nanousd=token,
            max_tokens=wanted,
            least_tokens=min(least, wanted),
            call_limit_nanousd=call_limit,
        )
        caps = self.caps(holder, day)
        self.book(holder, call, caps, self.ask(holder, call, caps))

    def book(self, holder: Bearer, call: CallStart, caps: tuple[CapLimit, ...], answer: object) -> None:
        """Hold the ledger's answer against the model's, and book it there."""
        if holder.job_id in self.gone:
            assert isinstance(answer, BearerGone)
            return
        expected = self.expected(caps, call)
        if expected is None:
            assert isinstance(answer, BudgetExceeded)
            return
        assert answer == expected
        keys = tuple((cap.scope, cap.key) for cap in caps)
        for key, cap in zip(keys, caps, strict=True):
            account = self.accounts[key]
            account.reserved += expected.nanousd
            assert account.spent + account.reserved <= cap.limit_nanousd, "no admitted call passes a limit"
        self.open[call.id] = Open(call.id, keys, expected.nanousd)

    def close(self, call: Open, cost: int) -> None:
        """Book a call in the model."""
        for key in call.keys:
            self.accounts[key].reserved -= call.reserved
            self.accounts[key].spent += cost
        del self.open[call.id]
        self.closed.append(call.id)

    @rule(holder=holders, calls=st.integers(2, 5), day=st.sampled_from(DAYS), least=st.integers(1, 200))
    def reserve_in_parallel(self, holder: Bearer, calls: int, day: str, least: int) -> None:
        """What an agent does that asks for several things at once: alike, so that their order makes no difference."""
        caps = self.caps(holder, day)
        with self.shop.ledger.begin() as session:
            money.open_caps(caps).all(session)
        asked = [make_call(input_nanousd=100, max_tokens=200, least_tokens=least) for _ in range(calls)]
        together = threading.Barrier(calls)

        def ask(call: CallStart) -> object:
            together.wait(10)
            return self.ask(holder, call, caps)

        with ThreadPoolExecutor(calls) as pool:
            answers = list(pool.map(ask, asked))
        # Who got most is who came first; the others found what was left.
        order = sorted(zip(asked, answers, strict=True), key=lambda one: -getattr(one[1], "nanousd", 0))
        for call, answer in order:
            self.book(holder, call, caps, answer)
        self.parallel[sum(isinstance(answer, Reserved) for answer in answers), calls] += 1

    def pick(self, which: int) -> Open | None:
        return list(self.open.values())[which % len(self.open)] if self.open else None

    def settle_for_real(self, call_id: UUID, cost: int, *, state: str) -> bool:
        booked = money.settle(call_id, usage=Usage(), cost_nanousd=cost, finish="completed", status=200, state=state)
        with self.shop.ledger.begin() as session:
            return bool(booked.all(session))

    @rule(which=st.integers(0, 50), share=st.floats(0, 1), state=st.sampled_from(["settled", "presumed"]))
    def settle(self, which: int, share: float, state: str) -> None:
        """As used, or as counted when the stream was cut; also for a job that is lost: what was used is owed."""
        if (call := self.pick(which)) is not None:
            cost = int(call.reserved * share)
            assert self.settle_for_real(call.id, cost, state=state)
            self.close(call, cost)

    @rule(which=st.integers(0, 50), over=st.integers(1, 300))
    def settle_above_its_reserve(self, which: int, over: int) -> None:
        """A provider that bills more than the worst case: it is booked, and the next call sees it."""
        if (call := self.pick(which)) is not None:
            assert self.settle_for_real(call.id, call.reserved + over, state="settled")
            self.close(call, call.reserved + over)

    @rule(which=st.integers(0, 50), cost=st.integers(0, 500))
    def settle_once_more(self, which: int, cost: int) -> None:
        if self.closed:
            assert not self.settle_for_real(self.closed[which % len(self.closed)], cost, state="settled")

    @rule(lost=st.sets(st.integers(0, 50), max_size=3), renewed=st.booleans())
    def a_gateway_dies(self, lost: set[int], renewed: bool) -> None:
        calls = {call.id: call for call in map(self.pick, lost) if call is not None}
        self.shop.execute("UPDATE call SET lease_until = now() - interval '1 s' WHERE id = ANY(:ids)", ids=list(calls))
        if renewed:  # it was only slow
            with self.shop.ledger.begin() as session:
                money.renew_calls(list(calls)).all(session)
            calls = {}
        with self.shop.ledger.begin() as session:
            assert money.presume_lost_calls(session) == len(calls)
        for call in calls.values():
            self.close(call, call.reserved)

    # ------------------------------------------------------------------------------------------------- invariants

    @invariant()
    def the_ledger_s_caps_are_the_model_s(self) -> None:
        rows = self.shop.rows("SELECT scope, key, spent_nanousd, reserved_nanousd FROM cap")
        for scope, key, spent, reserved in rows:
            assert (spent, reserved) == (self.accounts[scope, key].spent, self.accounts[scope, key].reserved)

    @invariant()
    def what_is_reserved_is_what_is_open(self) -> None:
        held = self.shop.scalar("SELECT coalesce(sum(reserved_nanousd), 0) FROM cap WHERE scope = 'fleet_day'")
        assert held == sum(call.reserved for call in self.open.values())
        ids = {row.id for row in self.shop.rows("SELECT id FROM call WHERE state = 'reserved'")}
        assert ids == set(self.open)

    def teardown(self) -> None:
        for call in list(self.open.values()):
            self.settle(0, 0.5, "settled")
            assert call.id in self.closed or self.open
        assert not self.shop.scalar("SELECT sum(reserved_nanousd) FROM cap"), "reserves return to zero"
        spent = "SELECT coalesce(sum(spent_nanousd), 0) FROM cap WHERE scope = 'fleet_day'"
        assert self.shop.scalar(spent) == self.shop.scalar("SELECT coalesce(sum(cost_nanousd), 0) FROM call")
        told = "SELECT coalesce(sum((data->>'cost_nanousd')::bigint), 0) FROM event WHERE kind = 'call'"
        assert self.shop.scalar(told) == self.shop.scalar(spent), "every dollar is told once"


@pytest.mark.slow
@bounded
def test_no_order_of_calls_breaks_the_books(shop: Shop) -> None:
    BudgetMachine.parallel.clear()
    BudgetMachine.walk(shop, times=5)
    hits = BudgetMachine.parallel
    assert any(0 < admitted < calls for admitted, calls in hits), f"no limit was reached by calls at once: {hits}"
