"""Recorded decisions under other rules, on a real ledger: who moves, at what cost, and what the numbers rest on."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from typer.testing import CliRunner, Result

from producers.cli import app
from routing.decision.router import Route, Signals, SiteSignals, decide
from routing.jobs import JobRequest, Reason, State
from routing.policy.platform import platform_policy
from routing.queues import QueueName
from tests.integration.monitoring.driving import Fleet, create_fleet

SITE = SiteSignals(files=4)
WORDS = "phrases:\n  logic:\n    match: [seat map]\n"


@pytest.fixture
def fleet(ledger: Any, ledger_url: str) -> Fleet:
    return create_fleet(ledger, ledger_url)


def decided(fleet: Fleet, prompt: str, *, site: SiteSignals | None = SITE, **update: Any) -> UUID:
    """Accept a job as submit does."""
    route: Route = decide(Signals(prompt=prompt, site=site), platform_policy()).model_copy(update=update)
    stored = route.model_dump(mode="json")
    request = JobRequest(prompt=prompt, **({"site": "shop"} if site else {}))
    return fleet.accept(
        tier=route.tier,
        request=request,
        route=stored,
        mode=route.mode.value,
        queue=route.queue,
        site_id=fleet.site_id if site else None,
    )


def forget_site(fleet: Fleet, job_id: UUID) -> None:
    """Make a decision one of the versions that did not record the site."""
    fleet.execute("UPDATE job SET route = route - 'site' WHERE id = :id", id=job_id)


def work(fleet: Fleet, job_id: UUID, *, seconds: float, calls: int = 1) -> None:
    claimed = fleet.claim(job_id)
    for _ in range(calls):
        fleet.call(claimed)
    fleet.execute(
        "UPDATE attempt SET started_at = now() - make_interval(secs => :seconds) WHERE job_id = :id",
        seconds=seconds,
        id=job_id,
    )
    fleet.end(claimed, State.FAILED, Reason.INTERNAL_ERROR)


def replay(fleet: Fleet, *arguments: str) -> Result:
    environment = {"POINTSMAN_LEDGER__URL": fleet.url, "TERM": "dumb", "COLUMNS": "200"}
    return CliRunner().invoke(app, ["route", "replay", *arguments], env=environment)


def replayed(fleet: Fleet, *arguments: str) -> dict[str, Any]:
    done = replay(fleet, *arguments, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def words(tmp_path: Path) -> str:
    path = tmp_path / "words.yaml"
    path.write_text(WORDS)
    return str(path)


@pytest.mark.req("H-009")
def test_a_decision_is_stored_with_what_it_rested_on_and_made_again_from_that(fleet: Fleet) -> None:
    for prompt in ("Add a quiz", "Fix the broken menu", "Make the header blue", "What is HPOS?"):
        decided(fleet, prompt)
    decided(fleet, "pwd", site=None)
    new = decided(fleet, "Make it a page about candles", site=SiteSignals())
    route = fleet.job(new).route
    assert route["site"] == {"files": 0, "has_js": False, "has_build": False, "has_spec": False}
    assert {"rule", "reason", "classifier", "policy_version", "vocabulary_version"} <= route.keys()
    found = replayed(fleet)
    assert (found["decisions"], found["moves"], found["site_sources"]) == (6, [], {"recorded": 6})


def test_a_word_more_moves_the_jobs_that_hold_it_and_is_priced_at_measured_averages(fleet: Fleet, words: str) -> None:
    moved = decided(fleet, "Add a seat map to the page")
    decided(fleet, "Make the header blue")
    for seconds in (4, 8):
        work(fleet, decided(fleet, "Make the header blue"), seconds=seconds)
    work(fleet, decided(fleet, "Add a quiz"), seconds=106, calls=3)
    idle = decided(fleet, "Add a quiz")
    work(fleet, idle, seconds=1)
    fleet.execute("UPDATE attempt SET reason = 'not_available' WHERE job_id = :job", job=idle)
    found = replayed(fleet, "--vocabulary", words)
    averages = found["averages"]
    assert [(queue, averages[queue]["jobs"]) for queue in ("spec", "agent")] == [("spec", 2), ("agent", 1)]
    assert averages["spec"]["seconds"] == pytest.approx(6, abs=0.5)
    (move,) = found["moves"]
    assert move["job_id"] == str(moved)
    assert (move["was"]["tier"], move["would_be"]["tier"], move["rule"]) == (1, 3, "V1-2")
    assert move["seconds"] == pytest.approx(100, abs=1)
    cost_of_call = fleet.scalar("SELECT min(cost_nanousd) FROM call") / 1e9
    assert move["usd"] == pytest.approx(2 * cost_of_call)


def test_what_was_never_measured_is_said_not_to_be(fleet: Fleet, words: str) -> None:
    decided(fleet, "Add a seat map")
    (move,) = replayed(fleet, "--vocabulary", words)["moves"]
    assert (move["usd"], move["seconds"]) == (None, None)
    assert "not measured" in replay(fleet, "--vocabulary", words).stdout


def test_lower_limits_say_whom_they_would_have_hit(fleet: Fleet, tmp_path: Path) -> None:
    for seconds in (3, 12, 18):
        work(fleet, decided(fleet, "Make the header blue"), seconds=seconds)
    body = platform_policy().model_dump(mode="json")
    body["queues"]["spec"] |= {"soft_seconds": 10, "hard_seconds": 15, "llm_usd": 0}
    changed = tmp_path / "new.yaml"
    changed.write_text(yaml.safe_dump(body))
    found = replayed(fleet, "--policy", str(changed))
    assert (found["moves"], found["new_hits"]) == ([], {"spec": {"time": 2, "cost": 3}})
    shown = replay(fleet, "--policy", str(changed)).stdout
    assert "new limits on spec: 2 jobs would exceed the time limit, 3 the budget" in shown


@pytest.mark.parametrize("files", [0, 4])
def test_a_decision_without_its_site_is_made_with_the_site_of_its_claim_or_of_now_and_this_is_said(
    fleet: Fleet, files: int
) -> None:
    waiting = decided(fleet, "Fix the broken menu")
    published = decided(fleet, "Fix the broken menu")
    release = fleet.offer(fleet.claim(published))
    fleet.execute("UPDATE release SET signals = :signals", signals=json.dumps({"files": files}))
    fleet.approve(published)
    fleet.publish(fleet.claim(published))
    fleet.execute("UPDATE job SET base_release_id = :release WHERE id = :id", release=release.id, id=published)
    for job_id in (waiting, published):
        forget_site(fleet, job_id)
    found = replayed(fleet)
    assert found["site_sources"] == {"claimed": 1, "now": 1}
    assert len(found["moves"]) == (2 if files == 0 else 0)
    shown = replay(fleet).stdout
    assert "1 decisions do not record their site; its present state is used" in shown
    assert "1 decisions do not record their site; its state at the claim is used" in shown


def test_what_a_model_decided_is_compared_by_rules_only(fleet: Fleet, words: str) -> None:
    decided(fleet, "Make the header blue", classifier="soft", queue=QueueName.ANSWER, tier=None)
    decided(fleet, "Add a seat map", classifier="v2")
    found = replayed(fleet, "--vocabulary", words)
    assert found["by_model"] == 2
    assert [move["prompt"] for move in found["moves"]] == ["Add a seat map"]


def test_only_decisions_since_a_moment_are_made_again(fleet: Fleet) -> None:
    old, _ = decided(fleet, "Add a quiz"), decided(fleet, "Add a quiz")
    age = timedelta(days=3)
    fleet.execute("UPDATE job SET created_at = now() - CAST(:age AS interval) WHERE id = :id", age=age, id=old)
    assert [replayed(fleet, "--since", since)["decisions"] for since in ("2d", "4d", "2020-01-01", "90m")] == [
        1,
        2,
        2,
        1,
    ]
    assert replay(fleet, "--since", "yesterday").exit_code == 2


def test_a_row_that_nobody_can_read_is_counted_and_stops_nothing(fleet: Fleet) -> None:
    fleet.accept()
    decided(fleet, "Add a quiz")
    found = replayed(fleet)
    assert (found["decisions"], found["unreadable"]) == (2, 1)


def test_prompts_are_shown_redacted_and_harmless(fleet: Fleet, words: str) -> None:
    decided(fleet, "Add a seat map \x1b[2J with sk-abcdefghijklmnopqrstuvwxyz")
    shown = replay(fleet, "--vocabulary", words).stdout
    assert "\x1b" not in shown
    assert "sk-abc" not in shown + json.dumps(replayed(fleet, "--vocabulary", words))
    assert "[redacted]" in shown


def test_a_replay_changes_nothing(fleet: Fleet, words: str) -> None:
    decided(fleet, "Add a seat map")
    before = fleet.rows("SELECT (SELECT count(*) FROM event) AS events, route, tier, state FROM job")
    replayed(fleet, "--vocabulary", words)
    assert fleet.rows("SELECT (SELECT count(*) FROM event) AS events, route, tier, state FROM job") == before
