"""What `pointsman capacity` and its autoscaling signal read of a real ledger."""

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from typer.testing import CliRunner, Result

from ledger.attempts import escalate, lock_owned_job
from ledger.dispatch_window import pause_queue
from ledger.operations.workers import WorkerStatus, record_heartbeat, remove_worker
from ledger.submission import count_backlog
from monitoring.backlog import read_recent_attempts, read_wanted_slots
from monitoring.capacity.workload import measure
from producers.cli import app
from routing.jobs import Reason, State
from routing.queues import QueueName, Tier
from tests.factories import Shop


def answered(shop: Shop, *, waited: float, took: float, ago: float = 100.0) -> None:
    """A question that waited, was answered, and lies some seconds back."""
    job_id = shop.accept(tier=None)
    shop.execute("UPDATE job SET waiting_since = now() - make_interval(secs => :s) WHERE id = :id", s=waited, id=job_id)
    claimed = shop.claim(job_id)
    shop.end(claimed, State.FAILED, Reason.INTERNAL_ERROR)
    shop.execute(
        "UPDATE attempt SET started_at = now() - make_interval(secs => :ago),"
        " ended_at = now() - make_interval(secs => :ended) WHERE id = :id",
        ago=ago,
        ended=ago - took,
        id=claimed.attempt.id,
    )


def test_attempts_tell_how_long_work_takes_and_waits(shop: Shop) -> None:
    for number in range(12):
        answered(shop, waited=2.0, took=3.0 + number % 2, ago=200 - 10.0 * number)
    found = measure(shop.ledger, shop.policy, hours=1, least=10)
    work = found.workload.queues[QueueName.ANSWER]
    assert (work.source, work.attempts) == ("measured", 12)
    assert work.mean_seconds == pytest.approx(3.5, abs=0.1)
    assert work.pickup_seconds == pytest.approx(2.0, abs=0.5)
    assert found.workload.mix == {QueueName.ANSWER: 1.0}
    assert found.workload.rate_per_second == pytest.approx(12 / 3600)
    assert found.workload.queues[QueueName.SPEC].source == "default", "nothing ran there"


def test_the_busiest_hour_need_not_begin_with_an_hour_of_the_clock(shop: Shop) -> None:
    with shop.ledger.begin() as session:
        full = float(session.scalar(text("SELECT extract(epoch FROM now() - date_trunc('hour', now()))")))
    for minutes in (-40, -20, 10, 15, 90):
        answered(shop, waited=0.0, took=1.0, ago=full + 2 * 3600 + 60 * minutes)
    assert measure(shop.ledger, shop.policy, hours=9).workload.rate_per_second == pytest.approx(4 / 3600)


def test_rates_are_those_of_all_jobs_however_few_attempts_are_read(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitoring.capacity.workload.MOST_ATTEMPTS", 3)
    for number in range(9):
        answered(shop, waited=0.0, took=1.0, ago=200 - 10.0 * number)
    for number in range(3):
        shop.end(shop.running(tier=Tier.SPEC, site_id=shop.site(f"site-{number}")))
    found = measure(shop.ledger, shop.policy, hours=1, least=3)
    assert found.workload.queues[QueueName.ANSWER].attempts == 3
    assert found.workload.mix == {QueueName.ANSWER: 0.75, QueueName.SPEC: 0.25}
    assert found.workload.rate_per_second == pytest.approx(12 / 3600)


def test_a_ledger_that_takes_too_long_is_not_taken_to_be_away(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitoring.capacity.workload._TIMEOUT_MS", 50)
    with shop.ledger.begin() as session:
        session.execute(text("LOCK TABLE attempt IN ACCESS EXCLUSIVE MODE"))
        refused = capacity("--rate", "2/s", "--hours", "700", url=shop.url)
    assert (refused.exit_code, "ask for fewer --hours" in refused.stderr) == (2, True)


def test_what_escalates_is_measured_as_a_share_of_what_ran(shop: Shop) -> None:
    for number in range(4):
        claimed = shop.running(tier=Tier.SPEC, site_id=shop.site(f"site-{number}"))
        if number == 0:
            with shop.ledger.begin() as session:
                job = lock_owned_job(session, claimed.attempt)
                escalate(session, job, to=Tier.PATCH, reason=Reason.SPEC_POOR, detail="")
            again = shop.claim(claimed.job.id, worker="w2")
            shop.end(again)
        else:
            shop.end(claimed)
    work = measure(shop.ledger, shop.policy, hours=1, least=1).workload.queues
    assert work[QueueName.SPEC].follows == {QueueName.PATCH: 0.25}
    assert work[QueueName.PATCH].attempts == 1


def test_a_ledger_without_work_is_taken_at_its_defaults_and_says_so(shop: Shop) -> None:
    found = measure(shop.ledger, shop.policy, hours=1)
    assert found.workload.source.startswith("defaults")
    assert found.workload.rate_per_second is None


def wanted(shop: Shop) -> dict[QueueName, int]:
    with shop.ledger.begin() as session:
        count_backlog(session)
        return dict(read_wanted_slots(session, shop.policy, recent=read_recent_attempts(session)))


def test_wanted_slots_follow_what_waits_and_what_runs(shop: Shop) -> None:
    assert set(wanted(shop).values()) == {0}
    waiting = [shop.accept(tier=None) for _ in range(3)]
    before = wanted(shop)[QueueName.ANSWER]
    assert before == 3, "three jobs of seconds each, five seconds to begin them in"
    shop.claim(waiting[0])
    assert wanted(shop)[QueueName.ANSWER] >= 3
    shop.execute(
        "UPDATE job SET held_for = 'provider', held_until = now() + interval '1 h' WHERE id <> :id", id=waiting[0]
    )
    shop.execute("UPDATE job SET pushed_at = NULL")
    assert 1 <= wanted(shop)[QueueName.ANSWER] < 3, "who waits for a provider wants no worker"
    with shop.ledger.begin() as session:
        pause_queue(session, QueueName.ANSWER, is_paused=True)
    assert wanted(shop)[QueueName.ANSWER] == 1


def capacity(*arguments: str, url: str) -> Result:
    environment = {"POINTSMAN_LEDGER__URL": url}
    return CliRunner().invoke(app, ["capacity", *arguments], env=environment)


def plan(*arguments: str, url: str) -> dict[str, Any]:
    done = capacity("--json", *arguments, url=url)
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_command_plans_from_the_ledger_keeps_what_it_read_and_plans_from_that(shop: Shop, tmp_path: Path) -> None:
    for number in range(30):
        answered(shop, waited=0.0, took=2.0, ago=400 - 10.0 * number)
    kept = tmp_path / "fleet.json"
    here = plan("--rate", "answer=3/s", "--wait", "4", "--save", str(kept), url=shop.url)
    assert [queue["queue"] for queue in here["queues"]] == ["answer"]
    assert here["queues"][0]["work"] == "measured"
    assert here["queues"][0]["slots"] >= 7
    again = plan("--rate", "answer=3/s", "--wait", "4", "--from", str(kept), url="postgresql://nobody@127.0.0.1:1/x")
    assert again["queues"] == here["queues"]


def test_the_pools_that_are_there_are_judged_as_they_are(shop: Shop) -> None:
    with shop.ledger.begin() as session:
        record_heartbeat(session, WorkerStatus(id="w1", host="here", pid=1, queues=("answer",), slots=3))
    found = plan("--rate", "answer=1/s", "--slots", "now", url=shop.url)["queues"][0]
    assert (found["slots"], found["slots_now"], found["is_fixed"], found["is_met"]) == (3, 3, True, False)
    with shop.ledger.begin() as session:
        remove_worker(session, "w1")
    refused = capacity("--rate", "answer=1/s", "--slots", "now", url=shop.url)
    assert (refused.exit_code, "no worker of this ledger" in refused.stderr) == (2, True)


def test_the_command_says_what_it_takes_by_default_and_what_is_wrong(shop: Shop) -> None:
    away = "postgresql://nobody@127.0.0.1:1/x"
    done = capacity("--rate", "2,000,000/day", "--check", url=away)
    assert done.exit_code == 1, "no budget bears that"
    assert "the ledger cannot be reached" in done.stdout
    assert "note: defaults, nothing was measured: intake" in done.stdout
    assert "next bottleneck: budget" in done.stdout
    refused = capacity("--rate", "5/week", url=away)
    assert (refused.exit_code, "--rate: '5/week' must end in /s" in refused.stderr) == (2, True)
    no_rate = capacity("--from", "defaults", url=away)
    assert (no_rate.exit_code, "no arrivals were measured" in no_rate.stderr) == (2, True)
    assert capacity("--from", "ledger", url=away).exit_code == 1
