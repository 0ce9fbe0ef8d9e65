"""Drive a real ledger through real jobs: what the tests of everything that is read from it stand on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import RowMapping, text

from ledger import money
from ledger.attempts import hash_token, lock_owned_job
from ledger.job_control import approve, approved_release, await_approval
from ledger.jobs import close_attempt, end, move
from ledger.releases import NewRelease, activate, add_release, ensure_site
from ledger.start_attempt import Claim, claim
from ledger.store import Ledger
from ledger.submission import accept
from ledger.tables import Job, NewJob, Release, Tenant
from routing.decision.router import Mode
from routing.decision.triggers import Confidence
from routing.jobs import JobMessage, JobRequest, Reason, Source, State
from routing.policy.platform import Policy, platform_policy
from routing.policy.prices import Usage, cost_nanousd, nanousd_per_token
from routing.queues import QUEUE_OF_TIER, QueueName, Tier

MODEL = "claude-haiku-4-5-20251001"


@dataclass
class Fleet:
    """One tenant with one site, and everything that can happen to its jobs."""

    ledger: Ledger
    url: str
    policy: Policy
    site_id: UUID

    def accept(self, *, tier: Tier | None = Tier.SPEC, source: Source = Source.HTTP, **fields: Any) -> UUID:
        queue = QUEUE_OF_TIER[tier] if tier else QueueName.ANSWER
        new = NewJob(
            id=uuid4(),
            tenant="acme",
            source=source,
            request=JobRequest(prompt="make the header blue"),
            state=State.QUEUED,
            queue=queue,
            mode=(Mode.ACTION if tier else Mode.ANSWER).value,
            tier=tier.value if tier else None,
            route={"confidence": Confidence.STRONG.value},
            site_id=self.site_id if tier else None,
            cap_nanousd=10**9,
        )
        with self.ledger.begin() as session:
            return accept(session, NewJob(**{**vars(new), **fields})).job.id

    def job(self, job_id: UUID) -> Job:
        with self.ledger.begin() as session:
            return session.get_one(Job, job_id)

    def claim(self, job_id: UUID) -> Claim:
        job = self.job(job_id)
        message = JobMessage(job_id=job_id, fence=job.fence)
        claimed = claim(self.ledger, message, queue=QueueName(job.queue), worker="w1", policy=self.policy)
        assert claimed is not None
        return claimed

    def claim_stale(self, job_id: UUID) -> None:
        job = self.job(job_id)
        message = JobMessage(job_id=job_id, fence=job.fence + 7)
        assert claim(self.ledger, message, queue=QueueName(job.queue), worker="w2", policy=self.policy) is None

    def open_call(self, claimed: Claim) -> UUID:
        price = self.policy.prices[MODEL]
        call = money.CallStart(
            id=uuid4(),
            provider="fake",
            model=MODEL,
            key_hash="k",
            gateway="g1",
            prices_as_of=self.policy.prices_as_of,
            input_nanousd=1_000_000,
            token_nanousd=nanousd_per_token(price.output),
            max_tokens=1000,
            least_tokens=1000,
            call_limit_nanousd=10**9,
        )
        with self.ledger.begin() as session:
            bearer = money.read_bearer(money.bearer_of(hash_token(claimed.token)).all(session)[0])
            caps = money.caps_of(bearer, policy=self.policy)
        with self.ledger.begin() as session:
            answer = money.read_reserve(money.reserve(bearer, call, caps).all(session)[0], call)
        assert isinstance(answer, money.Reserved), answer
        return call.id

    def settle(self, call_id: UUID, *, input_tokens: int = 400, output_tokens: int = 90) -> None:
        usage = Usage(input_tokens, output_tokens, 7, 3)
        cost = cost_nanousd(self.policy.prices[MODEL], usage)
        with self.ledger.begin() as session:
            money.settle(call_id, usage=usage, cost_nanousd=cost, finish="completed", status=200, state="settled").all(
                session
            )

    def call(self, claimed: Claim) -> None:
        self.settle(self.open_call(claimed))

    def end(self, claimed: Claim, state: State, reason: Reason) -> None:
        with self.ledger.begin() as session:
            end(session, lock_owned_job(session, claimed.attempt), state, reason=reason)

    def to_approval(self, claimed: Claim) -> Release:
        with self.ledger.begin() as session:
            job = lock_owned_job(session, claimed.attempt)
            move(session, job, State.SCANNING)
            release = add_release(
                session,
                NewRelease(
                    site_id=self.site_id,
                    digest="d" * 64,
                    manifest={},
                    total_bytes=1,
                    signals={},
                    scan={},
                    scan_passed=True,
                    scan_digest="s" * 64,
                    job_id=job.id,
                ),
            )
            await_approval(session, job, release, hours=1)
            close_attempt(session, job, outcome=State.AWAITING_APPROVAL.value, reason=Reason.DONE)
            return release

    def publish(self, job_id: UUID) -> None:
        with self.ledger.begin() as session:
            approve(session, job_id, actor="reviewer", policy=platform_policy())
        claimed = self.claim(job_id)
        with self.ledger.begin() as session:
            job = lock_owned_job(session, claimed.attempt)
            release = approved_release(session, job)
            activate(session, self.site_id, release, base_release_id=release.base_release_id)
            end(session, job, State.PUBLISHED, reason=Reason.DONE)

    def scalar(self, sql: str, **values: Any) -> Any:
        with self.ledger.begin() as session:
            return session.scalar(text(sql), values)

    def row(self, sql: str, **values: Any) -> RowMapping:
        with self.ledger.begin() as session:
            return session.execute(text(sql), values).mappings().one()

    def execute_scalars(self, sql: str) -> list[Any]:
        with self.ledger.begin() as session:
            return list(session.scalars(text(sql)))

    def execute(self, sql: str, **values: Any) -> None:
        with self.ledger.begin() as session:
            session.execute(text(sql), values)


def create_fleet(ledger: Ledger, url: str) -> Fleet:
    with ledger.begin() as session:
        session.add(Tenant(name="acme", provider="fake"))
        session.flush()
        site = ensure_site(session, "acme", "shop")
    return Fleet(ledger, url, platform_policy(), site.id)
