"""A cancel is a fact of the ledger: it holds whatever is restarted, and takes effect wherever its job is."""

from __future__ import annotations

import threading
from pathlib import Path
from uuid import UUID

import pytest

from gateway.fake_provider.config import FakeProviderConfig, billed_nanousd, read_log
from gateway.fake_provider.server import running_fake_provider
from ledger.attempts import recover
from ledger.dispatch_window import hold_back
from ledger.job_control import request_cancel
from ledger.jobs import lock_job
from ledger.store import Ledger
from routing.jobs import State
from routing.queues import QueueName
from routing.scheduling import WaitReason
from tests.factories import Shop
from tests.integration.gateway.gateway_world import World, gateway_config, gateway_world, message, provider, scenario
from tests.services import Valkey, wait_until
from tests.threads import serve_gateway_in_thread

SLOW = """
rules:
  - name: slow
    pace: {first_token_seconds: 0.1, tokens_per_second: 30}
    say: [{wordy: {tokens: 600}}]
"""


def cancel(ledger: Ledger, job_id: UUID) -> None:
    with ledger.begin() as session:
        request_cancel(session, lock_job(session, job_id), actor="ann")


@pytest.mark.slow
def test_a_cancelled_job_makes_no_model_call_through_any_gateway_whenever_it_was_started(
    ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    with (
        running_fake_provider(FakeProviderConfig(speed="max", log=tmp_path / "log")) as upstream,
        gateway_world(ledger, ledger_url, {"own": provider(upstream.url)}) as world,
    ):
        held = world.attempt()
        assert world.post(held, message()).status_code == 200
        cancel(ledger, held.job_id)
        assert world.post(held, message()).json()["error"]["details"]["error_code"] == "cancelled"
        restarted = gateway_config({"own": provider(upstream.url)})
        with serve_gateway_in_thread(restarted, ledger_url, world.policy) as url:
            answer = World(ledger, url, world.policy).post(held, message())
            assert (answer.status_code, answer.json()["error"]["details"]["error_code"]) == (403, "cancelled")
        assert len(read_log(tmp_path / "log")) == 1


def test_an_open_call_of_a_cancelled_job_is_cut_at_a_chunk_and_billed_for_what_may_have_come(
    ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    rules = scenario(tmp_path, SLOW)
    with (
        running_fake_provider(FakeProviderConfig(log=tmp_path / "log", scenarios=(rules,))) as upstream,
        gateway_world(ledger, ledger_url, {"own": provider(upstream.url)}) as world,
    ):
        held = world.attempt()
        said: list[str] = []
        caller = threading.Thread(target=lambda: said.append(world.post(held, message(stream=True)).text))
        caller.start()
        wait_until(lambda: world.calls(held.job_id), seconds=20, what="the call is open")
        cancel(ledger, held.job_id)
        caller.join(30)
        assert '"error_code":"cancelled"' in said[0]
        wait_until(world.is_settled, seconds=20, what="the call is booked")
        (call,) = world.calls(held.job_id)
        assert call.output_tokens < 600
        logged = wait_until(lambda: read_log(tmp_path / "log"), seconds=20, what="the provider's log")
        assert call.cost_nanousd >= sum(billed_nanousd(line, world.policy.prices) for line in logged) > 0
        world.check_books()


@pytest.mark.parametrize("where", ["ready", "pushed", "site", "time", "provider", "debating", "received", "approval"])
def test_a_job_that_nobody_works_on_ends_at_once_wherever_it_waits(shop: Shop, where: str) -> None:
    if where == "approval":
        claimed = shop.running()
        shop.offer(claimed)
        job_id = claimed.job.id
    elif where in ("debating", "received"):
        job_id = shop.accept(state=State(where), queue=QueueName.INTAKE)
    else:
        job_id = shop.accept(is_pushed=where == "pushed")
    if where in ("site", "time", "provider"):
        with shop.ledger.begin() as session:
            seconds = None if where == "site" else 600.0
            hold_back(session, lock_job(session, job_id), WaitReason(where), seconds=seconds)
    message_of = shop.message(job_id)
    cancel(shop.ledger, job_id)
    job = shop.job(job_id)
    assert (job.state, job.reason, job.waiting_since, job.held_for) == ("cancelled", "cancelled", None, None)
    assert shop.scalar("SELECT count(*) FROM site WHERE lock_job_id IS NOT NULL") == 0
    assert shop.scalar("SELECT count(*) FROM notification WHERE job_id = :id", id=job_id) == 1
    assert shop.try_claim(message_of) is None, "a copy of its message finds nothing to do"


def test_a_cancel_outlives_the_worker_that_should_have_heard_it_and_an_emptied_broker(
    shop: Shop, valkey: Valkey
) -> None:
    claimed = shop.running()
    cancel(shop.ledger, claimed.job.id)
    assert shop.job(claimed.job.id).state == "running"
    valkey.flush()
    assert shop.job(claimed.job.id).cancel_requested_at is not None
    shop.lapse(claimed)
    with shop.ledger.begin() as session:
        recover(session, claimed.attempt, max_lost=2)
    assert shop.job(claimed.job.id).state == "cancelled", "it is not tried again by another worker"
