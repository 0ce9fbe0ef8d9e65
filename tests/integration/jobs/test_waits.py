"""What a job waits for is decided in one place, and is never another than what keeps it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

import pytest

from ledger.dispatch_window import hold_back, pause_queue
from ledger.jobs import lock_job
from ledger.operations.leaders import DISPATCHER, lead
from ledger.operations.workers import WorkerStatus, record_heartbeat
from ledger.tables import Job
from producers.use_cases.jobs import describe
from producers.use_cases.waits import cause_of
from routing.queues import QueueName
from routing.scheduling import WaitReason
from tests.factories import Shop

SPEC, ANSWER = QueueName.SPEC, QueueName.ANSWER


def waits_for(shop: Shop, job_id: UUID) -> str | None:
    with shop.ledger.begin() as session:
        job = session.get_one(Job, job_id)
        return describe(session, job, cause=cause_of(session, job, policy=shop.policy)).waits_for


def serve(shop: Shop, *, slots: int = 1) -> None:
    with shop.ledger.begin() as session:
        status = WorkerStatus(id="w1", host="h", pid=1, queues=("spec", "answer"), slots=slots)
        record_heartbeat(session, status)
        lead(session, DISPATCHER, "d1", seconds=60)


def hold(shop: Shop, job_id: UUID, reason: WaitReason, *, seconds: float | None = None) -> None:
    with shop.ledger.begin() as session:
        hold_back(session, lock_job(session, job_id), reason, seconds=seconds)


def a_queue_is_paused(shop: Shop, job_id: UUID) -> None:
    with shop.ledger.begin() as session:
        pause_queue(session, SPEC, is_paused=True)


def its_tenant_is_at_its_limit(shop: Shop, job_id: UUID) -> None:
    shop.tenant(max_running=1)
    shop.running(tier=None)


def all_are_at_the_platform_s_limit(shop: Shop, job_id: UUID) -> None:
    shop.policy = shop.policy.model_copy(
        update={"admission": shop.policy.admission.model_copy(update={"running_per_tenant": 1})}
    )
    shop.running(tier=None)


CAUSES: dict[str, tuple[Callable[[Shop, UUID], object], str]] = {
    "tenant acme, which is paused": (lambda shop, _: shop.tenant(paused_at=datetime.now(UTC)), "is paused"),
    "queue spec, which is paused": (a_queue_is_paused, ""),
    "its time (until ": (lambda shop, one: hold(shop, one, WaitReason.TIME, seconds=60), " UTC)"),
    "its provider: ": (lambda shop, one: hold(shop, one, WaitReason.PROVIDER, seconds=60), " UTC)"),
    "its turn at its site": (lambda shop, one: hold(shop, one, WaitReason.SITE), ""),
    "another job of tenant acme to end: it may have 1 at work, and has": (its_tenant_is_at_its_limit, ""),
    "another job of tenant acme to end: it may have 1": (all_are_at_the_platform_s_limit, ""),
    "a free worker of queue spec": (lambda shop, _: shop.running(tier=None), ""),
    "a dispatcher; none runs": (lambda shop, _: shop.execute("DELETE FROM leader"), ""),
    "a worker of queue spec; none serves it": (lambda shop, _: shop.execute("DELETE FROM worker"), ""),
}


@pytest.mark.parametrize("text", CAUSES)
def test_each_cause_that_keeps_a_job_is_told(shop: Shop, text: str) -> None:
    serve(shop)
    job_id = shop.accept()
    assert waits_for(shop, job_id) is None, "its turn alone"
    bring_about, rest = CAUSES[text]
    bring_about(shop, job_id)
    told = waits_for(shop, job_id)
    assert told is not None
    assert told.startswith(text)
    assert told.endswith(rest)


def test_the_holder_of_a_site_is_told_to_those_alone_that_are_held_for_it(shop: Shop) -> None:
    serve(shop, slots=9)
    site = shop.site("bakery")
    offered = shop.running(site_id=site)
    shop.offer(offered)
    writer, reader = shop.accept(site_id=site), shop.accept(tier=None, site_id=site)
    hold(shop, writer, WaitReason.SITE)
    held = f"the site bakery, which is held by job {offered.job.id} (awaiting_approval)"
    assert (waits_for(shop, writer), waits_for(shop, reader)) == (held, None)
    shop.execute("DELETE FROM worker")
    assert (waits_for(shop, writer), waits_for(shop, reader)) == (held, "a worker of queue answer; none serves it")


def test_what_holds_a_job_is_told_before_what_stops_its_line(shop: Shop) -> None:
    job_id = shop.accept()
    told = [waits_for(shop, job_id)]
    a_queue_is_paused(shop, job_id)
    told.append(waits_for(shop, job_id))
    shop.tenant(paused_at=datetime.now(UTC))
    told.append(waits_for(shop, job_id))
    hold(shop, job_id, WaitReason.SITE)
    told.append(waits_for(shop, job_id))
    assert told == [
        "a dispatcher; none runs",
        "queue spec, which is paused",
        "tenant acme, which is paused",
        "its turn at its site",
    ]


def test_whoever_is_at_work_or_at_its_end_waits_for_nothing(shop: Shop) -> None:
    claimed = shop.running(tier=None)
    assert waits_for(shop, claimed.job.id) is None
    shop.end(claimed)
    assert waits_for(shop, claimed.job.id) is None
