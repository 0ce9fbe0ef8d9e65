"""What is accepted ends once, with one bill, whatever dies."""

from collections.abc import Sequence

import pytest
from sqlalchemy import text

from gateway.fake_provider.config import LoggedCall, billed_nanousd, booked_nanousd, read_log
from producers.local.embedded import WORKERS
from routing.policy.platform import platform_policy
from tests.acceptance.installation import Installation, settle
from tests.services import wait_until

pytestmark = pytest.mark.timeout(240)

QUICK = "worker-quick"
"""Serves the queues of these jobs; a worker takes seconds of processor time to start."""


def booked(calls: Sequence[LoggedCall]) -> int:
    policy = platform_policy()
    most = policy.calls["answer"].max_tokens
    return sum(booked_nanousd(call, policy.prices, max_tokens=most) for call in calls)


def test_sigkill_of_every_worker_during_a_job_ends_it_once_with_one_bill(installation: Installation) -> None:
    seen = len(read_log(installation.embedded.request_log))
    job_id = installation.submit("Explain how bread rises [rehearse:linger]")
    installation.wait_for(job_id, "running")
    wait_until(lambda: installation.job(job_id)["bill"]["calls"] == 1, seconds=10, what="the model is being called")

    installation.kill_workers(*WORKERS)
    installation.start_workers(*WORKERS)
    job = installation.wait_for(job_id, "answered")

    ends = [event for event in installation.events(job_id) if event["kind"] == "ended"]
    assert len(ends) == 1
    assert [attempt["outcome"] for attempt in job["attempts"]] == ["lost", "answered"]
    logged = read_log(installation.embedded.request_log)[seen:]
    assert job["bill"]["spent_nanousd"] == booked(logged)
    assert job["bill"]["reserved_nanousd"] == 0


def test_an_emptied_broker_loses_no_accepted_job(installation: Installation) -> None:
    installation.kill_workers(QUICK)
    job_ids = [installation.submit(f"echo {number}") for number in range(20)]
    with installation.broker() as broker:
        assert broker.llen("tools") == 16, "the dispatch window of a tenant"
        broker.flushall()
        installation.start_workers(QUICK)
    for number, job_id in enumerate(job_ids):
        assert installation.wait_for(job_id, "answered")["answer"] == str(number)


def test_a_message_that_is_delivered_twice_is_worked_off_once(installation: Installation) -> None:
    assert installation.embedded.supervisor is not None
    installation.embedded.supervisor.kill("dispatcher")  # it may push a third while a worker holds both
    installation.kill_workers(QUICK)
    try:
        job_id = installation.submit("echo once")
        with installation.broker() as broker:
            body = broker.lindex("tools", 0)
            assert isinstance(body, bytes)
            broker.lpush("tools", body)
        installation.start_workers(QUICK)
        installation.wait_for(job_id, "answered")
        settle(1.0)
    finally:
        installation.embedded.supervisor.restart("dispatcher")
    job = installation.job(job_id)
    assert len(job["attempts"]) == 1
    kinds = [event["kind"] for event in installation.events(job_id)]
    assert kinds.count("ended") == 1
    assert kinds.count("fenced") == 1


def test_a_call_that_is_cut_by_a_cancel_is_billed_at_the_most_that_it_can_have_cost(installation: Installation) -> None:
    seen = len(read_log(installation.embedded.request_log))
    job_id = installation.submit("Explain how bread rises [rehearse:pause]")
    installation.wait_for(job_id, "running")
    wait_until(lambda: installation.job(job_id)["bill"]["calls"] == 1, seconds=10, what="the model is being called")
    settle(0.5)
    installation.http.post(f"/v1/jobs/{job_id}/cancel")
    job = installation.wait_for(job_id, "cancelled", seconds=10)
    wait_until(lambda: len(read_log(installation.embedded.request_log)) > seen, seconds=10, what="the call is logged")
    logged = read_log(installation.embedded.request_log)[seen:]
    assert [call.usage.output_tokens for call in logged] == [10], "forty characters were sent"
    assert (job["bill"]["spent_nanousd"], job["bill"]["reserved_nanousd"]) == (booked(logged), 0)


def lapse_calls(installation: Installation) -> None:
    """Let the half minute be over for which an open call is believed; how long it is, tests/integration tells."""
    ledger = installation.embedded.open_ledger()
    with ledger.begin() as session:
        session.execute(text("UPDATE call SET lease_until = now() - interval '1 second' WHERE state = 'reserved'"))
    ledger.close()


def test_a_gateway_that_is_killed_in_a_call_never_bills_under_and_frees_the_reserve(installation: Installation) -> None:
    assert installation.embedded.supervisor is not None
    seen = len(read_log(installation.embedded.request_log))
    job_id = installation.submit("Explain how bread rises [rehearse:pause]")
    wait_until(lambda: installation.job(job_id)["bill"]["calls"] == 1, seconds=10, what="the model is being called")
    settle(0.5)
    installation.embedded.supervisor.kill("gateway")
    lapse_calls(installation)
    try:  # before it is back and takes the job's next call, which reserves, too
        job = wait_until(
            lambda: (found := installation.job(job_id))["bill"]["reserved_nanousd"] == 0 and found,
            seconds=60,
            what="the lost call is settled",
        )
    finally:
        installation.embedded.supervisor.restart("gateway")
        installation.embedded.supervisor.wait_ready(["gateway"])
    assert isinstance(job, dict)
    logged = read_log(installation.embedded.request_log)[seen:]
    assert job["bill"]["spent_nanousd"] >= sum(billed_nanousd(call, platform_policy().prices) for call in logged)
    installation.http.post(f"/v1/jobs/{job_id}/cancel")
    installation.wait_for(job_id)
