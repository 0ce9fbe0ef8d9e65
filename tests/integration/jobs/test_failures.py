"""What becomes of a task that fails again: counted at its jobs' ends, debated in a new job, or handed to a person."""

from typing import Any
from uuid import UUID

import pytest

from gateway.fake_provider.config import billed_nanousd
from ledger.decisions import recorded_decisions
from ledger.events import newest_events
from ledger.job_control import reject, request_cancel
from ledger.jobs import lock_job
from ledger.tables import Job
from monitoring.event_metrics import fold
from monitoring.metrics import series_key
from producers.use_cases.jobs import describe
from routing.failures import INFRASTRUCTURE
from routing.jobs import ENDS, JobRequest, Reason, Source, State
from routing.queues import QueueName
from tests.integration.intake.test_intake import REMOVAL, submit, take_in
from tests.integration.jobs.test_spec_jobs import BY_MODEL, Rig, rig, servers
from workers.attempt import Attempt
from workers.handlers.spec import edit_spec
from workers.lifecycle import Handler
from workers.outcomes import Answered, Ended, Outcome

__all__ = ["rig", "servers"]
HEADING = "Change the hero heading to 'Hi'"
QUESTION = "Tell me about the opening hours"


def failing(
    detail: str = "page 3 is broken", *, state: State = State.FAILED, reason: Reason = Reason.SPEC_INVALID
) -> Handler:
    def fail(attempt: Attempt) -> Outcome:
        return Ended(state, reason, detail)

    return fail


def answered(attempt: Attempt) -> Outcome:
    return Answered("From 8 to 6.")


def fail(rig: Rig, broker_url: str, prompt: str = HEADING, **body: Any) -> Job:
    """Submit a job that fails at its work, whatever its first stage."""
    handler = body.pop("handler", failing())
    return rig.run(submit(rig, broker_url, prompt, **({"site": "bakery"} | body)), handler)


def child_of(rig: Rig, job: Job) -> Job:
    return rig.shop.job(UUID(job.result["continued_as"]))


def debated(rig: Rig, broker_url: str, prompt: str, **body: Any) -> Job:
    """Let a task fail twice, and hold the debate about it; return the job that goes on from there."""
    rig.site()
    fail(rig, broker_url, prompt, **body)
    return take_in(rig, child_of(rig, fail(rig, broker_url, prompt, **body)).id)


def counters(rig: Rig) -> list[Any]:
    return rig.shop.rows("SELECT failures, rejections, is_debated FROM task_failure")


def rejected(rig: Rig, broker_url: str) -> Job:
    job_id = submit(rig, broker_url, HEADING, site="bakery")
    assert rig.run(job_id).state == State.AWAITING_APPROVAL
    with rig.shop.ledger.begin() as session:
        return reject(session, job_id, actor="reviewer", reason="not this one")


def published(rig: Rig, broker_url: str) -> Job:
    job_id = submit(rig, broker_url, HEADING, site="bakery")
    assert rig.run(job_id).state == State.AWAITING_APPROVAL
    rig.shop.approve(job_id)
    rig.shop.end(rig.shop.claim(job_id), State.PUBLISHED, Reason.DONE)
    return rig.shop.job(job_id)


def notes(rig: Rig) -> dict[str, dict[str, Any]]:
    rows = rig.shop.rows("SELECT job_id, payload FROM notification")
    assert len(rows) == len({row.job_id for row in rows})
    return {str(row.job_id): row.payload for row in rows}


# ------------------------------------------------------------------------------------------------------- what counts


@pytest.mark.req("R-061", "R-062")
def test_a_job_that_fails_once_ends_failed_and_nothing_follows(rig: Rig, broker_url: str) -> None:
    rig.site()
    job = fail(rig, broker_url)
    assert (job.state, job.reason, job.result) == (State.FAILED, "spec_invalid", {})
    assert counters(rig) == [(1, 0, False)]
    assert rig.shop.scalar("SELECT count(*) FROM job") == 1


@pytest.mark.req("R-051", "R-062")
def test_a_task_that_fails_twice_is_debated_in_a_new_job_on_the_same_bill(rig: Rig, broker_url: str) -> None:
    rig.site()
    fail(rig, broker_url)
    job = fail(rig, broker_url, HEADING.upper().replace("'HI'", "'Hi'"))
    child = child_of(rig, job)
    assert (job.state, job.result["failure_action"]) == (State.FAILED, "DEBATE_FAILURE")
    assert (child.state, child.queue, child.waiting_since is not None) == (State.DEBATING, "intake", True)
    assert (child.parent_id, child.root_id, child.prompt) == (job.id, job.root_id, job.prompt)
    assert (child.tenant, child.site_id, child.source, child.route) == (job.tenant, job.site_id, job.source, job.route)
    assert child.request["site"] == "bakery"
    assert counters(rig) == [(2, 0, True)]


@pytest.mark.req("R-051", "R-061")
@pytest.mark.parametrize("succeed", [published, None])
def test_a_success_between_two_failures_starts_the_count_anew(rig: Rig, broker_url: str, succeed: Any) -> None:
    rig.site()
    prompt = HEADING if succeed else QUESTION
    fail(rig, broker_url, prompt)
    if succeed:
        succeed(rig, broker_url)
    else:
        assert rig.run(submit(rig, broker_url, prompt, site="bakery"), answered).state == State.ANSWERED
    assert counters(rig) == []
    assert "continued_as" not in fail(rig, broker_url, prompt).result
    assert counters(rig) == [(1, 0, False)]


@pytest.mark.req("R-052")
def test_the_same_error_in_two_tasks_of_a_tenant_is_debated(rig: Rig, broker_url: str) -> None:
    rig.site()
    fail(rig, broker_url, handler=failing("page 3 is broken"))
    other = fail(rig, broker_url, "Make the footer green", handler=failing("page 17 is broken"))
    assert child_of(rig, other).prompt == "Make the footer green"


@pytest.mark.req("R-052")
def test_other_errors_other_tenants_and_surroundings_have_no_error_in_common(rig: Rig, broker_url: str) -> None:
    rig.site()
    fail(rig, broker_url)
    rig.shop.execute("UPDATE task_failure SET tenant = 'somebody-else'")
    busy = failing("try again later", reason=Reason.PROVIDER_BUSY)
    lost = failing("its box went away", reason=Reason.BOX_FAILED)
    for prompt, handler in (
        ("Make the footer green", failing()),
        ("Make the footer red", failing("it is upside down")),
        ("Make the header green", busy),
        ("Make the header red", busy),
        ("Make the menu green", lost),
        ("Make the menu red", lost),
    ):
        assert "continued_as" not in fail(rig, broker_url, prompt, handler=handler).result


@pytest.mark.req("R-053", "R-062")
def test_a_task_that_a_reviewer_rejected_twice_is_debated(rig: Rig, broker_url: str) -> None:
    rig.site()
    assert "continued_as" not in rejected(rig, broker_url).result
    job = rejected(rig, broker_url)
    assert job.state == State.REJECTED
    child = child_of(rig, job)
    assert (child.state, child.result["failures"][-1]["detail"]) == (State.DEBATING, "not this one")
    assert counters(rig) == [(2, 2, True)]


@pytest.mark.req("R-054", "R-059")
def test_the_third_failure_after_a_debate_goes_to_a_person(rig: Rig, broker_url: str) -> None:
    child = debated(rig, broker_url, f"{HEADING} [rehearse:same-way]")
    assert child.state == State.QUEUED
    job = rig.run(child.id, failing())
    assert (job.state, job.reason, job.result["failure_action"]) == (State.ESCALATED, "spec_invalid", "AUTO_ESCALATE")
    assert "continued_as" not in job.result
    assert job.site_id is not None
    assert rig.shop.scalar("SELECT lock_job_id FROM site WHERE id = :id", id=job.site_id) is None


@pytest.mark.req("R-055")
def test_one_failure_of_a_task_with_high_stakes_goes_to_a_person_at_once(rig: Rig, broker_url: str) -> None:
    rig.site()
    job_id = submit(rig, broker_url, REMOVAL, site="bakery")
    assert take_in(rig, job_id).route["stakes"] == "high"
    job = rig.run(job_id, failing())
    assert (job.state, job.result["failure_action"]) == (State.ESCALATED, "AUTO_ESCALATE")
    assert rig.shop.scalar("SELECT count(*) FROM job") == 1


def test_a_limit_that_ends_a_job_stays_its_end(rig: Rig, broker_url: str) -> None:
    rig.site()
    job_id = submit(rig, broker_url, REMOVAL, site="bakery")
    take_in(rig, job_id)
    job = rig.run(job_id, failing(state=State.BUDGET_EXCEEDED, reason=Reason.COST_CAP))
    assert (job.state, job.result["failure_action"]) == (State.BUDGET_EXCEEDED, "AUTO_ESCALATE")


def test_what_is_no_outcome_of_a_task_does_not_count(rig: Rig, broker_url: str) -> None:
    rig.site()
    for _ in range(2):
        cancelled = submit(rig, broker_url, HEADING, site="bakery")
        with rig.shop.ledger.begin() as session:
            request_cancel(session, lock_job(session, cancelled), actor="owner")
        rig.run(submit(rig, broker_url, "pwd"), failing())
        assert take_in(rig, submit(rig, broker_url, f"{REMOVAL} [rehearse:veto]", site="bakery")).state == "rejected"
    assert counters(rig) == []


def test_a_tier_that_is_not_installed_is_no_failure_of_the_task(rig: Rig, broker_url: str) -> None:
    rig.site()
    missing = failing("tier 3 is not available", reason=Reason.NOT_AVAILABLE)
    for _ in range(3):
        job = fail(rig, broker_url, handler=missing)
        assert (job.state, "failure_action" in job.result) == (State.FAILED, False)
    assert counters(rig) == []


def test_a_failure_of_the_infrastructure_is_no_failure_of_the_task(rig: Rig, broker_url: str) -> None:
    rig.site()
    for reason in sorted(INFRASTRUCTURE):
        job = fail(rig, broker_url, handler=failing("its box did not start", reason=reason))
        assert (job.state, job.reason, "continued_as" in job.result) == (State.FAILED, reason.value, False)
        assert counters(rig) == []
    assert "continued_as" not in rejected(rig, broker_url).result


def test_it_is_told_before_a_rejection_that_it_starts_paid_work(rig: Rig, broker_url: str) -> None:
    rig.site()
    for is_told in (False, True):
        job_id = submit(rig, broker_url, HEADING, site="bakery")
        assert rig.run(job_id).state == State.AWAITING_APPROVAL
        with rig.shop.ledger.begin() as session:
            assert describe(session, lock_job(session, job_id)).rejection_starts_debate is is_told
            assert ("continued_as" in reject(session, job_id, actor="ann", reason="no").result) is is_told


def test_an_escalation_to_the_next_tier_does_not_count(rig: Rig, broker_url: str) -> None:
    rig.site()
    job = rig.run(submit(rig, broker_url, f"{BY_MODEL} [rehearse:invalid-spec]", site="bakery"), edit_spec)
    assert (job.state, job.queue) == (State.QUEUED, "patch")
    assert counters(rig) == []


def test_nothing_follows_for_a_tenant_whose_models_nobody_may_call(rig: Rig, broker_url: str) -> None:
    rig.site()
    rig.shop.tenant(provider=None)
    assert [fail(rig, broker_url).result for _ in range(3)] == [{}] * 3


# ------------------------------------------------------------------------------------------------------- the debate


@pytest.mark.req("R-061", "R-062", "R-063")
def test_retry_queues_the_task_on_the_same_tier(rig: Rig, broker_url: str) -> None:
    job = debated(rig, broker_url, f"{HEADING} [rehearse:same-way]")
    assert (job.state, job.queue, job.tier) == (State.QUEUED, "spec", 1)
    assert rig.shop.rows("SELECT job_id, kind, verdict FROM debate") == [(job.id, "failure", "RETRY")]
    assert rig.run(job.id, edit_spec).state == State.AWAITING_APPROVAL


@pytest.mark.req("R-063")
def test_pivot_queues_the_task_on_the_next_tier_with_what_to_do_differently(rig: Rig, broker_url: str) -> None:
    job = debated(rig, broker_url, f"{HEADING} [rehearse:other-way]")
    assert (job.state, job.queue, job.tier) == (State.QUEUED, "patch", 2)
    assert job.result["debate"]["instruction"] == "Write the copy by hand."
    assert (job.route["tier"], job.route["queue"]) == (2, "patch")


@pytest.mark.req("R-063")
def test_without_another_way_a_pivot_goes_to_a_person(rig: Rig, broker_url: str) -> None:
    pinned = {"tier": "spec", "pin": True}
    job = debated(rig, broker_url, f"{HEADING} [rehearse:other-way]", **pinned)
    assert (job.state, job.reason) == (State.ESCALATED, "debate_escalated")


@pytest.mark.req("R-063")
@pytest.mark.parametrize("tag", ["ask-a-person", "down"])
def test_escalate_and_a_debate_that_nobody_can_hold_end_with_a_person(rig: Rig, broker_url: str, tag: str) -> None:
    job = debated(rig, broker_url, f"{QUESTION} [rehearse:{tag}]")
    assert (job.state, job.reason) == (State.ESCALATED, "debate_escalated")
    assert job.detail
    assert rig.shop.rows("SELECT kind, verdict FROM debate") == [("failure", "ESCALATE")]


def test_a_constraint_and_a_person_s_gate_outlive_the_failure(rig: Rig, broker_url: str) -> None:
    rig.site()
    prompt = f"{HEADING} [rehearse:other-way]"
    fail(rig, broker_url, prompt)
    job_id = submit(rig, broker_url, prompt, site="bakery")
    rig.shop.execute(
        'UPDATE job SET result = \'{"debate": {"instruction": "Keep it."}, "needs_person": true}\' WHERE id = :id',
        id=job_id,
    )
    job = take_in(rig, child_of(rig, rig.run(job_id, failing())).id)
    assert job.result["debate"]["instruction"] == "Keep it. Write the copy by hand."
    assert job.result["needs_person"] is True


def test_the_whole_chain_is_paid_under_one_cap(rig: Rig, broker_url: str) -> None:
    pinned = {"tier": "spec", "pin": True, "handler": edit_spec}
    job = debated(rig, broker_url, f"{BY_MODEL} [rehearse:invalid-spec] [rehearse:same-way]", **pinned)
    assert rig.run(job.id, edit_spec).state == State.ESCALATED
    caps = dict(rig.shop.rows("SELECT key, spent_nanousd FROM cap WHERE scope = 'job'"))
    roots = {str(row.root_id) for row in rig.shop.rows("SELECT root_id FROM job")}
    assert (set(caps), len(caps), rig.shop.scalar("SELECT count(*) FROM job")) == (roots, 2, 3)
    calls = [billed_nanousd(call, rig.shop.policy.prices) for call in rig.calls()]
    assert len(calls) == 2 + 2 + 2 + 2
    assert caps[str(job.root_id)] == sum(calls[2:])


def test_a_budget_that_is_used_up_pays_for_no_debate(rig: Rig, broker_url: str) -> None:
    job = debated(rig, broker_url, BY_MODEL, budget_usd=0.000001, handler=edit_spec)
    assert (job.state, rig.calls()) == (State.ESCALATED, [])


def test_a_failed_job_has_at_most_one_debate(rig: Rig, broker_url: str) -> None:
    rig.site()
    fail(rig, broker_url)
    child = child_of(rig, fail(rig, broker_url))
    with pytest.raises(Exception, match="uq_job_next"):
        rig.shop.execute(
            "INSERT INTO job SELECT (jsonb_populate_record(job, jsonb_build_object('id', gen_random_uuid()))).*"
            " FROM job WHERE id = :id",
            id=child.id,
        )


# ------------------------------------------------------------------------------------------------------- who is told


@pytest.mark.req("R-064")
@pytest.mark.parametrize("tag", ["same-way", "other-way", "ask-a-person"])
def test_every_path_ends_in_one_notification_that_names_what_follows(rig: Rig, broker_url: str, tag: str) -> None:
    child = debated(rig, broker_url, f"{HEADING} [rehearse:{tag}]")
    if child.state not in ENDS:
        child = rig.run(child.id, failing())
    assert child.state == State.ESCALATED
    told = notes(rig)
    assert len(told) == rig.shop.scalar("SELECT count(*) FROM job") == 3
    assert told[str(child.parent_id)]["continued_as"] == str(child.id)
    assert told[str(child.id)] == {
        "type": "job.ended",
        "job_id": str(child.id),
        "state": "escalated",
        "reason": child.reason,
        "parent_id": str(child.parent_id),
    }


def test_debates_of_both_kinds_are_counted_by_what_they_ended_in(rig: Rig, broker_url: str) -> None:
    job = debated(rig, broker_url, f"{HEADING} [rehearse:same-way]")
    stopped = take_in(rig, submit(rig, broker_url, f"{REMOVAL} [rehearse:veto]", site="bakery"))
    with rig.shop.ledger.begin() as session:
        happened = [
            *newest_events(session, job.id, limit=500),
            *newest_events(session, stopped.id, limit=500),
        ]
        counted = fold(happened)
    assert counted[series_key("debates_total", {"kind": "failure", "verdict": "retry"})] == 1
    assert counted[series_key("debates_total", {"kind": "planning", "verdict": "stop"})] == 1


@pytest.mark.req("R-059")
def test_neither_a_failure_debate_nor_a_stop_spares_a_later_planning_debate(rig: Rig, broker_url: str) -> None:
    rig.site()
    prompt = f"{REMOVAL} [rehearse:veto]"
    for _ in range(2):
        job_id = submit(rig, broker_url, prompt, site="bakery", session="chat")
        assert rig.shop.job(job_id).state == State.DEBATING
        assert take_in(rig, job_id).state == State.REJECTED


def test_only_what_rules_decided_about_a_request_is_replayed(rig: Rig, broker_url: str) -> None:
    job = debated(rig, broker_url, f"{HEADING} [rehearse:other-way]")
    with rig.shop.ledger.begin() as session:
        replayed = [decision.job_id for decision in recorded_decisions(session) if decision is not None]
    assert len(replayed) == 2
    assert str(job.id) not in replayed


def test_a_request_that_names_no_site_is_its_caller_s_mistake_and_does_not_count(rig: Rig, broker_url: str) -> None:
    rig.site()
    job_id = submit(rig, broker_url, HEADING, site="bakery")
    rig.shop.execute("UPDATE job SET site_id = NULL")
    assert rig.run(job_id).reason == "invalid_request"
    assert counters(rig) == []


def test_a_job_that_was_made_by_the_fleet_can_be_read_as_a_request(rig: Rig, broker_url: str) -> None:
    rig.site()
    fail(rig, broker_url, idempotency_key="once")
    child = child_of(rig, fail(rig, broker_url, idempotency_key="twice"))
    request = JobRequest.model_validate({**child.request, "prompt": child.prompt})
    assert (request.idempotency_key, request.site) == (None, "bakery")
    assert (Source(child.source), QueueName(child.queue)) == (Source.PYTHON, QueueName.INTAKE)
