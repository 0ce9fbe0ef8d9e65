"""Drive a real ledger through jobs that cost money: what the tests of everything that is read from it stand on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from ledger import money
from ledger.start_attempt import Claim
from ledger.store import Ledger
from routing.decision.triggers import Confidence
from routing.jobs import Source
from routing.policy.prices import Usage, cost_nanousd, nanousd_per_token
from routing.queues import Tier
from tests.factories import Shop, make_call

MODEL = "claude-haiku-4-5-20251001"


@dataclass
class Fleet(Shop):
    """One tenant with one site, and what its jobs cost."""

    site_id: UUID = field(kw_only=True)

    def accept(self, *, tier: Tier | None = Tier.SPEC, **fields: Any) -> UUID:
        usual = {
            "id": uuid4(),  # as ids that begin with the time would put all jobs into one bucket of a move
            "prompt": "make the header blue",
            "source": Source.HTTP,
            "route": {"confidence": Confidence.STRONG.value},
            "site_id": self.site_id if tier else None,
            "cap_nanousd": 10**9,
        }
        return super().accept(tier=tier, **(usual | fields))

    def open_call(self, claimed: Claim) -> UUID:
        price = self.policy.prices[MODEL]
        call = make_call(
            provider="fake",
            model=MODEL,
            prices_as_of=self.policy.prices_as_of,
            input_nanousd=1_000_000,
            token_nanousd=nanousd_per_token(price.output),
            max_tokens=1000,
            least_tokens=1000,
        )
        bearer = self.bearer(claimed.token)
        caps = money.caps_of(bearer, policy=self.policy)
        with self.ledger.begin() as session:
            answer = money.read_reserve(money.reserve(bearer, call, caps).all(session)[0], call)
        assert isinstance(answer, money.Reserved), answer
        return call.id

    def settle(self, call_id: UUID, *, input_tokens: int = 400, output_tokens: int = 90) -> None:
        usage = Usage(input_tokens, output_tokens, 7, 3)
        cost = cost_nanousd(self.policy.prices[MODEL], usage)
        settled = money.settle(call_id, usage=usage, cost_nanousd=cost, finish="completed", status=200, state="settled")
        with self.ledger.begin() as session:
            settled.all(session)

    def call(self, claimed: Claim) -> None:
        self.settle(self.open_call(claimed))

    def execute_scalars(self, sql: str) -> list[Any]:
        return [value for (value,) in self.rows(sql)]


def create_fleet(ledger: Ledger, url: str) -> Fleet:
    shop = Shop(ledger, url)
    shop.tenant(provider="fake")
    return Fleet(ledger, url, site_id=shop.site())
