"""`POST /v1/jobs/{id}/reply` and `pointsman reply`, on a real ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.command_line import Run, command_line
from tests.integration.api.http_world import PAGES, World, shared_ledger, world
from tests.integration.intake.test_intake import submit
from tests.integration.jobs.test_spec_jobs import Rig, rig, servers

__all__ = ["rig", "servers", "shared_ledger", "world"]

UNBOUND = "Change the headline to 'Fresh bread'"


@pytest.fixture
def job_id(world: World, tmp_path: Path) -> UUID:
    """A job that asks which of two sites is meant."""
    world.site("bakery", PAGES, tmp_path)
    world.site("florist", PAGES, tmp_path)
    return world.submit(prompt=UNBOUND)


def reply(world: World, job_id: UUID, **body: Any) -> Any:
    return world.call("POST", f"/v1/jobs/{job_id}/reply", json=body)


def test_the_view_of_a_job_shows_its_question_until_it_is_answered(world: World, job_id: UUID) -> None:
    view = world.call("GET", f"/v1/jobs/{job_id}").json()
    assert (view["state"], view["clarification"]["question"]) == ("clarifying", "Which site is this about?")
    assert [option["id"] for option in view["clarification"]["options"]] == ["bakery", "florist"]
    assert view["expires_at"] is not None
    answer = reply(world, job_id, text="the second one")
    assert answer.status_code == 200
    body = answer.json()
    assert (body["handled"], body["handled_by_tier"], body["outcome"]) == (True, "tier_1b3", "deterministic_execute")
    assert (body["job"]["state"], body["job"]["site"], body["job"]["queue"]) == ("queued", "florist", "spec")
    assert body["job"]["clarification"] is None


def test_an_option_is_chosen_by_its_id_and_an_unknown_one_is_refused(world: World, job_id: UUID) -> None:
    wrong = reply(world, job_id, option="nowhere")
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "option")
    assert reply(world, job_id, option="bakery").json()["job"]["site"] == "bakery"


def test_a_job_that_asks_nothing_takes_no_reply(world: World, job_id: UUID) -> None:
    assert reply(world, job_id, text="bakery").status_code == 200
    for body in ({"text": "bakery"}, {"option": "bakery"}):
        again = reply(world, job_id, **body)
        assert (again.status_code, again.json()["type"]) == (409, "urn:pointsman:problem:conflict")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": "bakery", "option": "bakery"},
        {"text": ""},
        {"text": "  "},
        {"text": "x" * 2001},
        {"text": 7},
        {"text": "a\x00b"},
        {"option": ""},
        {"option": "\ud800"},
        {"text": "bakery", "tenant": "other"},
    ],
)
def test_a_bad_reply_is_refused_and_the_question_stays(world: World, job_id: UUID, body: dict[str, Any]) -> None:
    answer = world.call(
        "POST", f"/v1/jobs/{job_id}/reply", content=json.dumps(body), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 422, answer.text
    assert world.job(job_id).state == "clarifying"


def test_what_is_no_answer_leaves_the_question_open(world: World, job_id: UUID) -> None:
    body = reply(world, job_id, text="What is a proxy?").json()
    assert (body["handled"], body["handled_by_tier"], body["job"]["state"]) == (False, "router", "clarifying")


# ---------------------------------------------------------------------------------------------------- the command line


@pytest.fixture
def command(rig: Rig) -> Run:
    """Runs a command of `pointsman` on the rig's ledger."""
    return command_line(rig.shop.url, "--tenant", "acme")


def test_the_command_line_shows_the_question_and_takes_the_answer(rig: Rig, broker_url: str, command: Run) -> None:
    rig.site("bakery")
    rig.site("florist")
    job_id = str(submit(rig, broker_url, UNBOUND))
    shown = command("job", job_id)
    assert "Which site is this about?" in shown.output
    assert "1  bakery" in shown.output
    let_go = command("reply", job_id, "What is a proxy?")
    assert let_go.exit_code == 1
    assert "the question, which stays open" in let_go.output
    taken = command("reply", job_id, "florist", "--json")
    assert taken.exit_code == 0, taken.output
    body = json.loads(taken.stdout)
    assert (body["handled"], body["job"]["site"], body["job"]["state"]) == (True, "florist", "queued")
    again = command("reply", job_id, "florist")
    assert (again.exit_code, "needs a job that waits for an answer" in again.output) == (1, True)


@pytest.mark.parametrize("said", ["the second one", "2", "Option 3, please", "the last one"])
def test_a_choice_from_a_list_that_nobody_offered_is_refused_before_anything_is_spent(
    world: World, tmp_path: Path, said: str
) -> None:
    world.site("bakery", PAGES, tmp_path)
    answer = world.call("POST", "/v1/jobs", json={"prompt": said, "site": "bakery"})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "prompt")
    assert "reply to the job that asks" in answer.json()["detail"]
