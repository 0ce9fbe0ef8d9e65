"""The switches of tenants and queues: set by operators, on record, and in force for every process that starts later."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ledger.dispatch_window import top_up
from routing.queues import QueueName
from tests.command_line import Run, command_line
from tests.factories import Shop

ROOT = Path(__file__).parents[3]


@pytest.fixture
def environment(shop: Shop) -> dict[str, str]:
    url = shop.ledger.engine.url.render_as_string(hide_password=False).replace("+psycopg", "")
    return {"HOME": "/nonexistent", "XDG_STATE_HOME": "/nonexistent", "POINTSMAN_LEDGER__URL": url}


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    return command_line(environment["POINTSMAN_LEDGER__URL"])


def read(run: Run, *arguments: object) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def pushed(shop: Shop) -> int:
    with shop.ledger.begin() as session:
        return len(
            top_up(
                session, QueueName.ANSWER, dispatch_window=shop.policy.dispatch_window, admission=shop.policy.admission
            )
        )


@pytest.mark.slow
def test_a_paused_tenant_stays_paused_for_a_process_that_starts_later_and_others_go_on(
    shop: Shop, run: Run, environment: dict[str, str]
) -> None:
    shop.accept(tier=None)
    shop.accept(tier=None, tenant="globex")
    assert run("tenant", "pause", "acme").exit_code == 0
    later = subprocess.run(
        [sys.executable, "-m", "producers.cli", "tenant", "show", "acme", "--json"],
        env={**environment, "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(later.stdout)["is_paused"] is True
    assert pushed(shop) == 1
    assert run("tenant", "resume", "acme").exit_code == 0
    assert pushed(shop) == 1
    actions = [row[0] for row in shop.rows("SELECT action FROM audit WHERE action LIKE 'tenant_%' ORDER BY seq")]
    assert actions == ["tenant_paused", "tenant_resumed"]


def test_weight_limit_and_who_approves_are_set_and_shown(shop: Shop, run: Run) -> None:
    shop.running(tier=None)
    shop.accept(tier=None)
    for command in (("weight", 3), ("limit", 7), ("auto-approve", "on")):
        assert run("tenant", command[0], "acme", command[1]).exit_code == 0
    (found,) = read(run, "tenant", "list")
    assert (found["weight"], found["max_running"], found["auto_approve"]) == (3, 7, True)
    assert (found["waiting"], found["running"], found["is_paused"]) == (1, 1, False)
    assert run("tenant", "limit", "acme", "none").exit_code == 0
    assert run("tenant", "auto-approve", "acme", "off").exit_code == 0
    shown = run("tenant", "show", "acme").stdout
    assert "as the policy says" in shown
    assert "people" in shown
    changes = [row[0] for row in shop.rows("SELECT detail FROM audit WHERE action = 'tenant_changed' ORDER BY seq")]
    assert changes == [
        {"weight": 3},
        {"max_running": 7},
        {"auto_approve": True},
        {"max_running": None},
        {"auto_approve": False},
    ]


def test_setting_what_is_set_already_is_not_on_record_again(shop: Shop, run: Run) -> None:
    for _ in range(2):
        run("tenant", "weight", "acme", 2)
        run("tenant", "pause", "acme")
    assert shop.scalar("SELECT count(*) FROM audit WHERE action LIKE 'tenant_%'") == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("pause", "nobody"),
        ("show", "nobody"),
        ("weight", "acme", 0),
        ("weight", "acme", 1001),
        ("limit", "acme", "0"),
        ("limit", "acme", "many"),
        ("limit", "acme", str(2**31)),
        ("auto-approve", "acme", "yes"),
    ],
)
def test_what_makes_no_sense_is_refused_as_usage_and_changes_nothing(run: Run, arguments: tuple[object, ...]) -> None:
    before = read(run, "tenant", "list")
    assert run("tenant", *arguments).exit_code == 2
    assert read(run, "tenant", "list") == before


def test_the_queues_are_listed_with_what_waits_and_runs_and_which_are_paused(shop: Shop, run: Run) -> None:
    shop.running(tier=None)
    waiting = shop.accept(tier=None)
    shop.execute("UPDATE job SET waiting_since = now() - interval '90 seconds' WHERE id = :id", id=waiting)
    assert run("queue", "pause", "spec").exit_code == 0
    found = {one["queue"]: one for one in read(run, "queue", "list")}
    assert (found["answer"]["waiting"], found["answer"]["running"]) == (1, 1)
    assert 90 <= found["answer"]["oldest_age_seconds"] < 200
    assert (found["spec"]["is_paused"], found["answer"]["is_paused"]) == (True, False)
    table = run("queue", "list").stdout
    assert "paused" in table
    assert re.search(r"answer +1 +- +\d+ s", table)
    shop.execute("UPDATE job SET held_for = 'time', waiting_since = now() + interval '1 h' WHERE id = :id", id=waiting)
    assert re.search(r"answer +1 +1 for time +- ", run("queue", "list").stdout)
    assert all(queue in table for queue in found)
    assert run("queue", "pause", "spec").exit_code == 0, "once more says nothing new"
    assert run("queue", "resume", "spec").exit_code == 0
    told = [
        (row.action, row.actor)
        for row in shop.rows("SELECT action, actor FROM audit WHERE action LIKE 'queue_%' ORDER BY seq")
    ]
    assert told == [("queue_paused", "cli"), ("queue_resumed", "cli")]
