"""Any order of edits on the same sites leaves each site one writer at most, and none waits for a free one for ever."""

from collections import Counter
from contextlib import suppress
from typing import Any, ClassVar
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import Bundle, consumes, initialize, invariant, multiple, rule

from ledger.attempts import escalate, find_lapsed_attempts, lock_owned_job, recover
from ledger.dispatch_window import release_due, release_sites, top_up
from ledger.errors import FencedError, LedgerError, PublishConflictError, WrongStateError
from ledger.start_attempt import Claim
from producers.intake.submit import Requester
from producers.use_cases.rounds import ReviseOrder, Rounds
from routing.errors import RoutingError
from routing.jobs import ENDS, JobMessage, Reason, Source, State
from routing.policy.platform import DispatchWindow
from routing.queues import QUEUE_OF_TIER, QueueName, Tier
from tests.factories import Shop
from tests.integration.ledger.machines import Machine, bounded

SITES = ("one", "two")
CLOSED = (FencedError, WrongStateError, PublishConflictError)
WRITING = ("spec", "patch", "agent")
RUNWAY = DispatchWindow(per_queue=4, per_tenant=3)
"""Short, so that jobs wait for room as well as for sites."""
STEPS = (
    "a second writer turned away",
    "taken from a dead worker",
    "escalated with its site",
    "handed on to a revision",
    "cancelled while it held its site",
    "published",
)
ASKER = Requester(tenant="acme", source=Source.PYTHON, actor="ann")


class LockMachine(Machine):
    """Two sites, edits on all tiers, revisions, cancellations, deaths, publishes, and the dispatcher's rounds."""

    hits: ClassVar[Counter[str]] = Counter()
    """How often the steps that matter were really taken: a walk past them would break no rule either."""
    jobs = Bundle("jobs")
    claims = Bundle("claims")

    @initialize(target=jobs)
    def start(self) -> Any:
        self.shop.clear()
        self.shop.tenant()
        self.sites = [self.shop.site(name) for name in SITES]
        self.rounds = Rounds(self.shop.ledger, self.shop.policy)
        self.dispatch_window: dict[UUID, tuple[QueueName, int]] = {}
        """The broker: where a job's message stands, and with which fence."""
        return multiple(*(self.shop.accept(site_id=site) for site in self.sites for _ in range(2)))

    @rule(target=jobs, site=st.integers(0, 1), tier=st.sampled_from(list(Tier)), priority=st.sampled_from(["P0", "P2"]))
    def accept(self, site: int, tier: Tier, priority: str) -> UUID:
        return self.shop.accept(site_id=self.sites[site], tier=tier, priority=priority)

    @rule()
    def dispatch(self) -> None:
        """A round of the dispatcher."""
        with self.shop.ledger.begin() as session:
            lapsed = find_lapsed_attempts(session)
        for attempt in lapsed:
            with self.shop.ledger.begin() as session:
                recover(session, attempt, max_lost=3)
            self.hits["taken from a dead worker"] += 1
        with self.shop.ledger.begin() as session:
            release_due(session)
            release_sites(session)
        for queue in (*QUEUE_OF_TIER.values(), QueueName.CONTROL):
            with self.shop.ledger.begin() as session:
                pushes = top_up(session, queue, dispatch_window=RUNWAY, admission=self.shop.policy.admission)
            self.dispatch_window |= {push.job_id: (queue, push.fence) for push in pushes}

    @rule(target=claims, first=jobs, second=jobs)
    def work_at_once(self, first: UUID, second: UUID) -> Any:
        """Two workers take up work, perhaps on one site."""
        return self.claims_of(self.claim(first), self.claim(second))

    def claims_of(self, *found: Claim | None) -> Any:
        return multiple(*(claimed for claimed in found if claimed is not None))

    def claim(self, job_id: UUID) -> Claim | None:
        job = self.shop.job(job_id)
        writer = self.writer_of(job.site_id)
        claimed = self.shop.try_claim(self.shop.message(job_id))
        if job.state == State.QUEUED and job.queue in WRITING and writer not in (None, job_id):
            assert claimed is None
            self.hits["a second writer turned away"] += 1
        return claimed

    @rule(target=claims, which=st.integers(0, 20))
    def work(self, which: int) -> Any:
        """A worker takes a message."""
        if not self.dispatch_window:
            return multiple()
        job_id = list(self.dispatch_window)[which % len(self.dispatch_window)]
        queue, fence = self.dispatch_window.pop(job_id)
        return self.claims_of(self.shop.try_claim(JobMessage(job_id=job_id, fence=fence), queue=queue))

    @rule(target=claims, site=st.integers(0, 1), steps=st.integers(1, 4))
    def go_on(self, site: int, steps: int) -> Any:
        """What a site's writer needs next is done, undisturbed: by chance alone a walk seldom gets to a publish."""
        made: list[Claim | None] = []
        for _ in range(steps):
            waiting = "SELECT id FROM job WHERE site_id = :id AND state = 'queued' ORDER BY created_at, id LIMIT 1"
            job_id = self.writer_of(self.sites[site]) or self.shop.scalar(waiting, id=self.sites[site])
            if job_id is None:
                break
            state = self.shop.job(job_id).state
            if state == State.AWAITING_APPROVAL:
                self.approve(job_id)
            elif (claimed := self.claim(job_id)) is not None:
                made.append(claimed)
                self.publish(claimed) if state == State.PUBLISHING else self.offer(claimed)
        return self.claims_of(*made)

    @rule(target=claims, job=jobs)
    def work_out_of_order(self, job: UUID) -> Any:
        """A message that nobody expected any more reaches a worker."""
        return self.claims_of(self.claim(job))

    @rule(claimed=claims)
    def offer(self, claimed: Claim) -> None:
        if self.shop.job(claimed.job.id).state == State.RUNNING:
            with suppress(*CLOSED):
                self.shop.offer(claimed)

    @rule(claimed=consumes(claims), state=st.sampled_from([State.FAILED, State.TIMED_OUT, State.BUDGET_EXCEEDED]))
    def fail(self, claimed: Claim, state: State) -> None:
        if self.shop.job(claimed.job.id).state == State.RUNNING:
            with suppress(*CLOSED):
                self.shop.end(claimed, state)

    @rule(claimed=claims)
    def escalate(self, claimed: Claim) -> None:
        with suppress(*CLOSED), self.shop.ledger.begin() as session:
            job = lock_owned_job(session, claimed.attempt)
            if job.state == State.RUNNING and job.tier == Tier.SPEC:
                escalate(session, job, to=Tier.PATCH, reason=Reason.SPEC_INVALID, detail="")
                self.hits["escalated with its site"] += self.writer_of(job.site_id) == job.id

    @rule(target=jobs, site=st.integers(0, 1))
    def give_up_tier_1(self, site: int) -> UUID:
        """An edit is begun on tier 1, if its site is free, and handed on with it."""
        job = self.accept(site, Tier.SPEC, "P0")
        if (claimed := self.claim(job)) is not None:
            self.escalate(claimed)
        return job

    @rule(which=st.integers(0, 5))
    def die(self, which: int) -> None:
        """A worker dies, if one works."""
        live = self.shop.rows("SELECT id FROM attempt WHERE ended_at IS NULL ORDER BY started_at, id")
        if live:
            self.shop.execute(
                "UPDATE attempt SET lease_until = now() - interval '1 s' WHERE id = :id", id=live[which % len(live)].id
            )

    @rule(job=jobs)
    def approve(self, job: UUID) -> None:
        with suppress(*CLOSED):
            self.shop.approve(job)

    @rule(job=jobs)
    def reject(self, job: UUID) -> None:
        with suppress(*CLOSED):
            self.shop.reject(job)

    @rule(target=jobs, job=jobs)
    def revise(self, job: UUID) -> UUID:
        """Send a preview back, or go on from what ended: nobody else's edit gets between two rounds of a preview."""
        job = next(iter(self.waiting()), job)
        before = self.shop.job(job)
        held = before.state == State.AWAITING_APPROVAL and self.writer_of(before.site_id) == job
        try:
            new = self.rounds.revise(job, ReviseOrder(text="Change the hero heading to 'Cake'"), requester=ASKER).job
        except (LedgerError, RoutingError):
            return job
        if held:
            assert self.writer_of(before.site_id) == new.id, "the lock was handed on"
            self.hits["handed on to a revision"] += 1
        return new.id

    def waiting(self) -> list[UUID]:
        rows = self.shop.rows("SELECT id FROM job WHERE state = 'awaiting_approval' ORDER BY created_at, id")
        return [job_id for (job_id,) in rows]

    @rule(job=jobs, site=st.integers(0, 1), is_writer=st.booleans())
    def cancel(self, job: UUID, site: int, is_writer: bool) -> None:
        if is_writer:
            job = self.writer_of(self.sites[site]) or job
        with suppress(*CLOSED):
            holds = self.writer_of(self.shop.job(job).site_id) == job
            self.shop.cancel(job)
            self.hits["cancelled while it held its site"] += holds

    @rule(claimed=claims)
    def publish(self, claimed: Claim) -> None:
        if claimed.attempt.queue != QueueName.CONTROL.value:
            return
        with suppress(*CLOSED):
            self.shop.publish(claimed)
            self.hits["published"] += 1

    def writer_of(self, site_id: UUID | None) -> UUID | None:
        found: UUID | None = self.shop.scalar("SELECT lock_job_id FROM site WHERE id = :id", id=site_id)
        return found

    # ------------------------------------------------------------------------------------------------- invariants

    @invariant()
    def a_site_has_one_writer_at_most(self) -> None:
        live = self.shop.rows(
            "SELECT job.site_id, job.id, site.lock_job_id FROM attempt JOIN job ON job.id = attempt.job_id"
            " JOIN site ON site.id = job.site_id WHERE attempt.ended_at IS NULL AND attempt.queue = ANY(:writing)",
            writing=list(WRITING),
        )
        assert len({row.site_id for row in live}) == len(live)
        assert all(row.lock_job_id == row.id for row in live)

    @invariant()
    def whoever_changes_a_site_or_is_about_to_holds_it(self) -> None:
        rows = self.shop.rows(
            "SELECT job.id, site.lock_job_id FROM job JOIN site ON site.id = job.site_id"
            " WHERE job.state IN ('running', 'scanning', 'awaiting_approval', 'publishing')"
        )
        assert all(row.lock_job_id == row.id for row in rows)

    @invariant()
    def no_ended_job_holds_a_site(self) -> None:
        for row in self.shop.rows("SELECT job.state FROM site JOIN job ON job.id = site.lock_job_id"):
            assert row.state not in ENDS

    @invariant()
    def an_active_release_follows_the_one_that_it_was_made_from(self) -> None:
        """Two writers at once would publish two releases with the same base."""
        of_one_base = "SELECT 1 FROM release WHERE published_at IS NOT NULL GROUP BY base_release_id, site_id"
        assert self.shop.rows(f"{of_one_base} HAVING count(*) > 1") == []

    def teardown(self) -> None:
        """Undisturbed, everything that waits gets its turn: nobody waits for a free site for ever."""
        for _ in range(200):
            self.shop.execute("UPDATE attempt SET lease_until = now() - interval '1 s' WHERE ended_at IS NULL")
            self.dispatch()
            for job_id in list(self.dispatch_window):
                queue, fence = self.dispatch_window.pop(job_id)
                claimed = self.shop.try_claim(JobMessage(job_id=job_id, fence=fence), queue=queue)
                if claimed is not None and queue == QueueName.CONTROL:
                    self.publish(claimed)
                elif claimed is not None:
                    self.fail(claimed, State.BUDGET_EXCEEDED)
            self.shop.execute("UPDATE job SET expires_at = now() - interval '1 s' WHERE expires_at IS NOT NULL")
            if not self.hits["handed on to a revision"] and (previews := self.waiting()):
                self.revise(previews[0])  # few orders of so many steps come to it by themselves
            for (job_id,) in self.shop.rows("SELECT id FROM job WHERE state = 'awaiting_approval'"):
                self.reject(job_id)
            if not self.shop.rows("SELECT 1 FROM job WHERE ended_at IS NULL LIMIT 1"):
                break
        left = self.shop.rows("SELECT id, state, held_for, waiting_since, pushed_at FROM job WHERE ended_at IS NULL")
        assert left == []
        assert self.shop.rows("SELECT 1 FROM site WHERE lock_job_id IS NOT NULL") == []


@pytest.mark.slow
@pytest.mark.req("H-073", "H-085")
@bounded
def test_no_order_of_edits_gives_a_site_two_writers(shop: Shop) -> None:
    LockMachine.hits.clear()
    LockMachine.walk(shop, times=7)
    assert {name for name in STEPS if not LockMachine.hits[name]} == set(), LockMachine.hits
