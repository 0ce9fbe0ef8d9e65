"""Any order of what can happen to jobs keeps the ledger's promises: a seeded walk over the real tables."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import Bundle, consumes, initialize, invariant, rule

from ledger.attempts import escalate, find_lapsed_attempts, lock_owned_job, recover, report_loss
from ledger.errors import FencedError, NotUndoableError, PublishConflictError, WrongStateError
from ledger.job_control import expire, undo_approval
from ledger.jobs import end
from ledger.start_attempt import Claim
from ledger.tables import Job
from routing.jobs import ENDS, MOVES, JobMessage, Reason, State
from routing.queues import QueueName, Tier
from tests.factories import Shop
from tests.integration.ledger.machines import Machine, bounded

CLOSED = (FencedError, WrongStateError, PublishConflictError, NotUndoableError)
"""How the ledger says that somebody else was faster."""


class LedgerMachine(Machine):
    """Two sites, any number of jobs, and everything that workers, owners, reviewers and the dispatcher do."""

    jobs = Bundle("jobs")
    messages = Bundle("messages")
    claims = Bundle("claims")

    @initialize()
    def start(self) -> None:
        self.shop.clear()
        self.shop.tenant()
        self.sites = [self.shop.site("one"), self.shop.site("two")]

    @contextmanager
    def held(self, claimed: Claim) -> Iterator[tuple[Any, Job]]:
        with self.shop.ledger.begin() as session:
            yield session, lock_owned_job(session, claimed.attempt)

    @rule(target=jobs, site=st.integers(0, 1), is_question=st.booleans())
    def accept(self, site: int, is_question: bool) -> UUID:
        return self.shop.accept(tier=None if is_question else Tier.SPEC, site_id=self.sites[site])

    @rule(target=messages, job=jobs)
    def push(self, job: UUID) -> JobMessage:
        return self.shop.message(job)

    @rule(target=claims, job=jobs)
    def claim(self, job: UUID) -> Claim | None:
        return self.shop.try_claim(self.shop.message(job))

    @rule(target=claims, message=messages)
    def claim_by_an_old_message(self, message: JobMessage) -> Claim | None:
        return self.shop.try_claim(message)

    @rule(job=jobs, steps=st.integers(1, 4))
    def go_on(self, job: UUID, steps: int) -> None:
        """Do what a job needs next, undisturbed."""
        for _ in range(steps):
            state = State(self.shop.job(job).state)
            if state == State.AWAITING_APPROVAL:
                self.shop.approve(job)
            elif claimed := self.shop.try_claim(self.shop.message(job)):
                self.publish(claimed) if state == State.PUBLISHING else self.offer(claimed)

    @rule(claimed=claims)
    def renew(self, claimed: Claim | None) -> None:
        if claimed is not None:
            self.shop.renews(claimed)

    @rule(claimed=claims, past_deadline=st.booleans())
    def lapse(self, claimed: Claim | None, past_deadline: bool) -> None:
        if claimed is not None:
            self.shop.lapse(claimed, past_deadline=past_deadline)

    @rule(message=messages, cause=st.sampled_from([Reason.TIME_LIMIT, Reason.WORKER_LOST]))
    def child_dies(self, message: JobMessage, cause: Reason) -> None:
        with self.shop.ledger.begin() as session:
            report_loss(session, message, worker="w1", cause=cause)

    @rule()
    def dispatch(self) -> None:
        with self.shop.ledger.begin() as session:
            lapsed = find_lapsed_attempts(session)
        for attempt in lapsed:
            with self.shop.ledger.begin() as session:
                recover(session, attempt, max_lost=2)

    @rule(claimed=consumes(claims), state=st.sampled_from([State.ANSWERED, State.FAILED, State.BUDGET_EXCEEDED]))
    def end(self, claimed: Claim | None, state: State) -> None:
        if claimed is None:
            return
        with suppress(*CLOSED), self.held(claimed) as (session, job):
            if state in MOVES[State(job.state)]:
                end(session, job, state, reason=Reason.DONE)

    @rule(claimed=claims)
    def escalate(self, claimed: Claim | None) -> None:
        if claimed is None:
            return
        with suppress(*CLOSED), self.held(claimed) as (session, job):
            if job.state == State.RUNNING and job.tier == Tier.SPEC:
                escalate(session, job, to=Tier.PATCH, reason=Reason.SPEC_INVALID, detail="")

    @rule(claimed=claims)
    def offer(self, claimed: Claim | None) -> None:
        if claimed is not None and claimed.job.site_id and self.shop.job(claimed.job.id).state == State.RUNNING:
            with suppress(*CLOSED):
                self.shop.offer(claimed)

    @rule(job=jobs, undo_seconds=st.sampled_from([0, 60]))
    def approve(self, job: UUID, undo_seconds: int) -> None:
        with suppress(*CLOSED):
            self.shop.approve(job, undo_seconds=undo_seconds)

    @rule(job=jobs, approves=st.booleans())
    def undo(self, job: UUID, approves: bool) -> None:
        """Undo an approval, if there is one: by chance alone a walk seldom gets to one."""
        offered = "SELECT id FROM job WHERE state IN ('awaiting_approval', 'publishing') ORDER BY created_at LIMIT 1"
        job = self.shop.scalar(offered) or job
        if approves:
            self.approve(job, 60)
        with suppress(*CLOSED), self.shop.ledger.begin() as session:
            undo_approval(session, job, actor="ann")

    @rule()
    def hold_ends(self) -> None:
        self.shop.let_time_pass()

    @rule(job=jobs)
    def reject(self, job: UUID) -> None:
        with suppress(*CLOSED):
            self.shop.reject(job)

    @rule(job=jobs)
    def overdue(self, job: UUID) -> None:
        self.shop.execute("UPDATE job SET expires_at = now() - interval '1 s' WHERE expires_at IS NOT NULL")
        with self.shop.ledger.begin() as session:
            expire(session, job)

    @rule(job=jobs)
    def cancel(self, job: UUID) -> None:
        with suppress(*CLOSED):
            self.shop.cancel(job)

    @rule(claimed=claims)
    def publish(self, claimed: Claim | None) -> None:
        if claimed is None or claimed.attempt.queue != QueueName.CONTROL.value:
            return
        with suppress(*CLOSED):
            self.shop.publish(claimed)

    @rule(site=st.integers(0, 1))
    def import_site(self, site: int) -> None:
        self.shop.show(self.sites[site])

    # ------------------------------------------------------------------------------------------------ invariants

    @invariant()
    def every_state_was_reached_by_legal_moves(self) -> None:
        for row in self.shop.rows("SELECT job_id, data FROM event WHERE kind = 'state' ORDER BY id"):
            assert State(row.data["target"]) in MOVES[State(row.data["origin"])]

    @invariant()
    def a_job_has_at_most_one_live_attempt_and_only_while_it_has_not_ended(self) -> None:
        live = self.shop.rows(
            "SELECT attempt.job_id, job.state, attempt.fence = job.fence AS fits, job.waiting_since FROM attempt"
            " JOIN job ON job.id = attempt.job_id WHERE attempt.ended_at IS NULL"
        )
        assert len({row.job_id for row in live}) == len(live)
        assert all(row.state not in ENDS and row.fits and row.waiting_since is None for row in live)

    @invariant()
    def a_site_is_locked_only_by_a_job_that_has_not_ended(self) -> None:
        for row in self.shop.rows("SELECT job.state FROM site JOIN job ON job.id = site.lock_job_id"):
            assert row.state not in ENDS

    @invariant()
    def an_ended_job_waits_for_nothing_and_has_one_notification_one_end_and_one_audit_row(self) -> None:
        rows = self.shop.rows(
            "SELECT state, waiting_since, expires_at, ended_at,"
            " (SELECT count(*) FROM notification WHERE job_id = job.id) AS notes,"
            " (SELECT count(*) FROM event WHERE job_id = job.id AND kind = 'ended') AS ends,"
            " (SELECT count(*) FROM audit WHERE job_id = job.id AND action = 'job_ended') AS audits FROM job"
        )
        for row in rows:
            is_end = row.state in ENDS
            assert (row.notes, row.ends, row.audits) == ((1, 1, 1) if is_end else (0, 0, 0))
            assert (row.ended_at is not None) is is_end
            assert not (is_end and (row.waiting_since or row.expires_at))

    @invariant()
    def a_job_that_has_not_ended_is_in_somebody_s_hands(self) -> None:
        stranded = self.shop.rows(
            "SELECT id, state FROM job WHERE ended_at IS NULL AND waiting_since IS NULL AND expires_at IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM attempt WHERE job_id = job.id AND ended_at IS NULL)"
        )
        assert stranded == []

    @invariant()
    def what_is_approved_is_what_is_about_to_be_published_or_was(self) -> None:
        """An undo takes the approval with it, and no publish goes on without one."""
        for row in self.shop.rows(
            "SELECT job.state, job.held_for, approval.decision FROM job LEFT JOIN approval ON approval.job_id = job.id"
        ):
            assert (row.decision == "approved") >= (row.state in ("publishing", "published"))
            assert (row.decision is None) >= (row.state == "awaiting_approval")

    @invariant()
    def an_active_release_was_imported_or_approved(self) -> None:
        for row in self.shop.rows(
            "SELECT release.job_id, release.scan_passed, approval.decision, job.state FROM site"
            " JOIN release ON release.id = site.active_release_id LEFT JOIN job ON job.id = release.job_id"
            " LEFT JOIN approval ON approval.job_id = release.job_id"
        ):
            assert row.scan_passed
            assert row.job_id is None or (row.decision, row.state) == ("approved", "published")


@pytest.mark.slow
@bounded
def test_no_order_of_events_breaks_a_promise(shop: Shop) -> None:
    LedgerMachine.walk(shop, times=8)
