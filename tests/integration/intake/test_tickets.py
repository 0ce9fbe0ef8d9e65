"""Webhooks of trackers at the real HTTP API: signed ones become runs, once; everything else becomes nothing."""

import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from httpx2 import Response
from pydantic import SecretStr
from sqlalchemy import text
from sqlmodel import col, select
from starlette.testclient import TestClient

from ledger.cells import tenant_rows
from ledger.runs.kept_deliveries import SentDelivery, forget_delivery, keep_delivery, kept_deliveries
from ledger.runs.run import put_project
from ledger.runs.tables import ReviewComment, Run
from ledger.tables import Job, Tenant
from producers.api.app import create_app
from producers.dispatch.sweeping import RowSweeper
from producers.intake.webhook_receiver import WebhookReceiver
from routing.jobs import State
from routing.policy.agents import Account, AccountsConfig
from tests.integration.api.http_world import World, shared_ledger, world

__all__ = ["shared_ledger", "world"]

SECRET = "webhook-secret-of-the-tests"
CONFIG = {
    "repo": {"url": "https://forge.example/a/shop.git"},
    "stack": {"language": "typescript"},
    "integrations": {
        "github": {"repository": "a/shop", "token": "acme", "webhook": "acme"},
        "linear": {"team": "ENG", "token": "lin", "webhook": "lin", "label": "robot"},
    },
}


class Hooks:
    """A tracker that sends webhooks to one project."""

    def __init__(self, world: World) -> None:
        self.world = world
        accounts = AccountsConfig(
            by_name={
                "acme": Account(kind="github", webhook_secret=SecretStr(SECRET), tenants=(world.tenant,)),
                "lin": Account(kind="linear", webhook_secret=SecretStr(SECRET), tenants=(world.tenant,)),
                "others": Account(kind="github", webhook_secret=SecretStr(SECRET), tenants=("somebody-else",)),
            }
        )
        self.accounts = accounts
        self.http = TestClient(create_app(replace(world.resources, accounts=accounts)))
        with world.ledger.begin() as session:
            session.get_one(Tenant, world.tenant).provider = "fake"
        self.project()

    def project(self, name: str = "shop", **integrations: Any) -> None:
        config = CONFIG | ({"integrations": integrations} if integrations else {})
        with self.world.ledger.begin() as session:
            put_project(session, self.world.tenant, name, config, actor="test")

    def receiver(self) -> WebhookReceiver:
        """What the dispatcher runs, without the secrets of webhooks."""
        return WebhookReceiver(self.world.ledger, self.world.resources.submitter, AccountsConfig())

    def send(
        self,
        body: dict[str, Any] | bytes,
        *,
        tracker: str = "github",
        project: str = "shop",
        delivery: str = "d-1",
        secret: str = SECRET,
        tenant: str | None = None,
        event: str = "issues",
    ) -> Response:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        signed = hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()
        headers = {
            "X-Hub-Signature-256": f"sha256={signed}",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": delivery,
            "Linear-Signature": signed,
            "Linear-Delivery": delivery,
        }
        return self.http.post(
            f"/v1/tickets/{tracker}/{tenant or self.world.tenant}/{project}", content=raw, headers=headers
        )


@pytest.fixture
def hooks(world: World) -> Iterator[Hooks]:
    made = Hooks(world)
    yield made
    made.http.close()


def issue(number: int = 12, repository: str = "a/shop") -> dict[str, Any]:
    return {
        "action": "labeled",
        "label": {"name": "pointsman"},
        "repository": {"full_name": repository},
        "issue": {
            "number": number,
            "title": "Fix the cart total",
            "body": "Two items of 5 show 5.<!-- hidden order -->",
            "state": "open",
            "html_url": f"https://f.example/{number}",
            "labels": [{"name": "P1"}, {"name": "pointsman"}],
        },
    }


def linear_issue(**changes: Any) -> dict[str, Any]:
    data = {
        "id": "issue-7",
        "identifier": "ENG-7",
        "title": "Dark mode",
        "description": "Follow the system.",
        "labels": [{"name": "robot"}],
        "priority": 1,
    }
    sent = int(time.time() * 1000)
    return {"type": "Issue", "action": "create", "data": data, "webhookTimestamp": sent} | changes


def mention(text: str, *, number: int = 1) -> dict[str, Any]:
    user = {"type": "User", "login": "ann"}
    said = {"id": number, "body": text, "author_association": "OWNER", "user": user}
    return issue() | {"action": "created", "comment": said}


def test_a_mention_on_an_issue_becomes_a_run_once_and_further_ones_wait_for_its_next_round(hooks: Hooks) -> None:
    first, more = mention("@pointsman the tax, too"), mention("@pointsman and keep the border", number=2)
    job = hooks.world.job(UUID(hooks.send(first, event="issue_comment").json()["run_id"]))
    assert job.prompt.startswith("Fix the cart total\n\nann asks:\n@pointsman the tax, too\n\nThe issue:\n> Two items")
    known = {"run_id": str(job.id), "is_new": False, "ignored": None, "waits": None}
    for delivery in (more, more, first):
        assert hooks.send(delivery, event="issue_comment").json() == known
    hooks.world.finish(job.id, State.FAILED)
    for delivery in (first, more):
        assert hooks.send(delivery, event="issue_comment").json() == known
    with hooks.world.ledger.begin() as session:
        kept = session.scalars(select(ReviewComment)).all()
    assert [(one.root_id, one.body, one.is_order) for one in kept] == [(job.id, "@pointsman and keep the border", True)]


def test_a_project_can_turn_mentions_off(hooks: Hooks) -> None:
    hooks.project(github=CONFIG["integrations"]["github"] | {"mentions": False})  # type: ignore[index]
    answer = hooks.send(mention("@pointsman please"), event="issue_comment")
    assert "does not follow mentions" in answer.text


@pytest.mark.req("S-097", "S-101")
def test_a_labelled_issue_becomes_a_run_with_its_words_and_its_priority(hooks: Hooks) -> None:
    answer = hooks.send(issue())
    assert answer.status_code == 202
    job = hooks.world.job(UUID(answer.json()["run_id"]))
    assert (job.prompt, job.priority, job.queue) == ("Fix the cart total\n\nTwo items of 5 show 5.", "P1", "control")
    assert job.requested_by == f"github:{hooks.world.tenant}/shop"
    with hooks.world.ledger.begin() as session:
        ticket = session.get_one(Run, job.id).ticket
    assert (ticket["key"], ticket["source"], ticket["labels"]) == ("a/shop#12", "github", ["P1"])


def test_a_delivery_that_comes_again_makes_no_second_run(hooks: Hooks) -> None:
    first, again, another = hooks.send(issue()), hooks.send(issue()), hooks.send(issue(), delivery="d-2")
    assert first.json()["is_new"]
    assert (again.json()["run_id"], again.json()["is_new"]) == (first.json()["run_id"], False)
    assert (another.json()["run_id"], another.json()["is_new"]) == (first.json()["run_id"], False)


def test_deliveries_about_one_deed_that_come_at_once_make_one_run(hooks: Hooks) -> None:
    bodies = [issue(), issue() | {"action": "opened"}, issue() | {"action": "opened"}, issue()]
    for number, body in enumerate(bodies):  # as the tracker's state moves on between them
        body["issue"]["body"] += f" {number}"
    with ThreadPoolExecutor(len(bodies)) as pool:
        answers = list(pool.map(lambda one: hooks.send(one[1], delivery=f"d-{one[0]}"), enumerate(bodies)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert sum(answer.json()["is_new"] for answer in answers) == 1


def test_a_ticket_can_be_handed_over_again_once_its_run_is_over(hooks: Hooks) -> None:
    first = hooks.send(issue()).json()["run_id"]
    hooks.world.finish(UUID(first), State.FAILED)
    second = hooks.send(issue(), delivery="d-2").json()
    assert second["is_new"]
    assert second["run_id"] != first


def test_a_ticket_can_be_handed_over_again_when_retention_has_taken_its_first_run(hooks: Hooks) -> None:
    runs = []
    for number in range(2):
        runs.append(UUID(hooks.send(issue(), delivery=f"d-{number}").json()["run_id"]))
        hooks.world.finish(runs[-1], State.ANSWERED)
    with hooks.world.ledger.begin() as session:
        session.execute(text("UPDATE job SET ended_at = now() - interval '400 days' WHERE id = :id"), {"id": runs[0]})
        session.execute(text("UPDATE ticket_note SET next_at = NULL"))
    assert RowSweeper(hooks.world.ledger, hooks.world.policy.retention).run(seconds=20).jobs == 1
    third = hooks.send(issue(), delivery="d-3").json()
    assert (third["is_new"], UUID(third["run_id"]) in runs) == (True, False)


@pytest.mark.parametrize("action", ["opened", "labeled"])
def test_a_delivery_that_comes_again_when_its_run_is_over_makes_no_second_one(hooks: Hooks, action: str) -> None:
    told = issue() | {"action": action}
    told["issue"] |= {"updated_at": when(-60)}
    first = hooks.send(told).json()["run_id"]
    hooks.world.finish(UUID(first), State.FAILED)
    assert hooks.send(told).json() == {"run_id": first, "is_new": False, "ignored": None, "waits": None}
    told["issue"] |= {"updated_at": when(60)}
    assert hooks.send(told).json()["is_new"], "it was handed over again"


def when(seconds: float) -> str:
    """A time from now, as GitHub writes it."""
    return f"{datetime.now(UTC) + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def test_an_issue_of_linear_becomes_a_run(hooks: Hooks) -> None:
    answer = hooks.send(linear_issue(), tracker="linear")
    assert answer.status_code == 202
    assert hooks.world.job(UUID(answer.json()["run_id"])).priority == "P0"


@pytest.mark.parametrize(
    ("changes", "tracker"),
    [
        ({"label": {"name": "bug"}}, "github"),
        ({"repository": {"full_name": "b/else"}}, "github"),
        ({"data": {"id": "i", "identifier": "OPS-1", "title": "x", "labels": [{"name": "robot"}]}}, "linear"),
    ],
)
def test_a_delivery_that_asks_for_nothing_is_left_alone_and_says_why(
    hooks: Hooks, changes: dict[str, Any], tracker: str
) -> None:
    before = hooks.world.counts()
    body = linear_issue() if tracker == "linear" else issue()  # made now: a delivery has to be fresh
    answer = hooks.send(body | changes, tracker=tracker)
    assert answer.status_code == 200
    assert answer.json()["ignored"]
    assert hooks.world.counts() == before


def test_whoever_cannot_sign_learns_nothing_and_changes_nothing(hooks: Hooks) -> None:
    hooks.project("silent", github={"repository": "a/shop", "token": "acme"})
    hooks.project("foreign", github={"repository": "a/shop", "token": "others", "webhook": "others"})
    hooks.project("crossed", github={"repository": "a/shop", "token": "lin", "webhook": "lin"})
    before = hooks.world.counts()
    answers = [
        hooks.send(issue(), secret="wrong"),
        hooks.send(issue(), secret=""),
        hooks.send(issue(), project="nowhere"),
        hooks.send(issue(), project="silent"),
        hooks.send(issue(), project="foreign"),
        hooks.send(issue(), project="crossed"),
        hooks.send(issue(), tenant="nobody"),
        hooks.send(b"[]"),
        hooks.send(b"{" * 5000),
        hooks.send(linear_issue(webhookTimestamp=int(time.time() * 1000) - 120_000), tracker="linear"),
    ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.text for answer in answers}) == 1
    assert hooks.world.counts() == before


def test_a_delivery_that_is_too_large_is_not_read_to_its_end(hooks: Hooks) -> None:
    assert hooks.send(b"x" * 1_100_000).status_code == 413
    assert hooks.send(issue(), tracker="jira").status_code in (404, 422)


def spend_the_day(hooks: Hooks, *, is_spent: bool = True) -> None:
    scope = {"tenant": hooks.world.tenant}
    with hooks.world.ledger.begin() as session:
        session.execute(text("DELETE FROM cap WHERE key LIKE :tenant || '/%'"), scope)
        if is_spent:
            session.execute(
                text(
                    "INSERT INTO cap (scope, key, limit_nanousd, spent_nanousd, reserved_nanousd) SELECT 'tenant_day',"
                    " :tenant || '/' || to_char(timezone('UTC', now()), 'YYYY-MM-DD'), 500000000000, 500000000000, 0"
                ),
                scope,
            )


def kept(hooks: Hooks) -> int:
    with hooks.world.ledger.begin() as session:
        query = text("SELECT count(*) FROM kept_delivery WHERE tenant = :tenant")
        return int(session.execute(query, {"tenant": hooks.world.tenant}).scalar_one())


def runs(hooks: Hooks) -> list[Job]:
    with hooks.world.ledger.begin() as session:
        own = select(Job).where(Job.tenant == hooks.world.tenant, Job.queue == "control")
        return list(session.exec(own.order_by(col(Job.created_at))))


def pass_time(hooks: Hooks, hours: float = 0.02) -> None:
    with hooks.world.ledger.begin() as session:
        session.execute(
            text(
                "UPDATE kept_delivery SET next_at = next_at - make_interval(secs => :seconds),"
                " received_at = received_at - make_interval(secs => :seconds)"
            ),
            {"seconds": hours * 3600},
        )


def test_a_delivery_for_which_there_is_no_room_is_kept_and_taken_in_once_when_there_is(hooks: Hooks) -> None:
    spend_the_day(hooks)
    first = hooks.send(issue())
    assert first.status_code == 202
    assert "daily budget" in first.json()["waits"]
    assert hooks.send(issue()).status_code == 202
    assert (kept(hooks), runs(hooks)) == (1, [])
    receiver = hooks.receiver()
    assert receiver.deliver_due() == 0  # its minute has not passed
    pass_time(hooks)
    assert (receiver.deliver_due(), kept(hooks), runs(hooks)) == (1, 1, [])
    spend_the_day(hooks, is_spent=False)
    assert receiver.deliver_due() == 0
    pass_time(hooks)
    assert (receiver.deliver_due(), kept(hooks), len(runs(hooks))) == (1, 0, 1)
    assert hooks.send(issue()).json()["is_new"] is False
    assert len(runs(hooks)) == 1


def test_one_refusal_is_enough_for_all_that_a_tenant_has_waiting_and_they_come_in_their_order(hooks: Hooks) -> None:
    spend_the_day(hooks)
    for number in (3, 1, 2):
        hooks.send(issue(number))
    pass_time(hooks)
    receiver = hooks.receiver()
    assert [receiver.deliver_due(limit=1) for _ in range(3)] == [1, 0, 0]
    spend_the_day(hooks, is_spent=False)
    pass_time(hooks)
    assert [receiver.deliver_due(limit=1) for _ in range(4)] == [1, 1, 1, 0]
    assert [job.request["ticket"]["key"] for job in runs(hooks)] == ["a/shop#3", "a/shop#1", "a/shop#2"]


def test_a_delivery_waits_for_three_days_at_most_and_a_tenant_has_a_hundred_at_most(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.runs.kept_deliveries.MAX_KEPT", 2)
    spend_the_day(hooks)
    assert [hooks.send(issue(number)).status_code for number in (1, 2, 3, 1)] == [202, 202, 429, 202]
    receiver = hooks.receiver()
    pass_time(hooks, 71)
    assert (receiver.deliver_due(), kept(hooks)) == (1, 2)
    pass_time(hooks, 2)
    while receiver.deliver_due():
        pass
    assert kept(hooks) == 0
    with hooks.world.ledger.begin() as session:
        found = session.execute(
            text("SELECT actor, detail FROM audit WHERE action = 'delivery_dropped' AND tenant = :tenant ORDER BY seq"),
            {"tenant": hooks.world.tenant},
        ).all()
    assert [actor for actor, _ in found] == [f"github:{hooks.world.tenant}/shop"] * 2
    assert "daily budget" in found[0][1]["why"]


def test_of_deliveries_at_once_no_more_are_kept_than_there_is_room_for(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each counted before any was written (issue 20)."""
    monkeypatch.setattr("ledger.runs.kept_deliveries.MAX_KEPT", 1)

    place = (hooks.world.tenant, "shop", "github")

    def keep(number: int) -> bool:
        with hooks.world.ledger.begin() as session:
            is_kept = keep_delivery(session, SentDelivery(*place, "issues", {"n": number}))
            session.execute(text("SELECT pg_sleep(0.05)"))
        return is_kept

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(keep, range(4))) == [False, False, False, True]
    with hooks.world.ledger.begin() as session:
        (only,) = kept_deliveries(session, *place)
        forget_delivery(session, only)


@pytest.mark.parametrize("action", ["closed", "unlabeled"])
def test_what_is_kept_about_a_ticket_that_is_taken_back_starts_no_run(hooks: Hooks, action: str) -> None:
    spend_the_day(hooks)
    for number in (1, 2):
        hooks.send(issue(number))
    for number, repository in ((1, "a/shop"), (2, "a/another")):  # which one webhook of an organization serves
        hooks.send({**issue(number, repository), "action": action, "sender": {"id": 1}})
    assert kept(hooks) == 1
    spend_the_day(hooks, is_spent=False)
    pass_time(hooks)
    assert hooks.receiver().deliver_due() == 1
    assert [job.request["ticket"]["key"] for job in runs(hooks)] == ["a/shop#2"]


def test_a_kept_delivery_at_which_we_fail_goes_too_when_it_is_old(hooks: Hooks) -> None:
    spend_the_day(hooks)
    hooks.send(issue())
    with hooks.world.ledger.begin() as session:
        session.execute(text("UPDATE kept_delivery SET body = '[]'"))
    receiver = hooks.receiver()
    pass_time(hooks)
    with pytest.raises(AttributeError):
        receiver.deliver_due()
    assert (receiver.deliver_due(), kept(hooks)) == (0, 1)
    pass_time(hooks, 73)
    assert (receiver.deliver_due(), kept(hooks)) == (1, 0)


def test_a_kept_delivery_of_a_project_that_is_gone_does_not_hold_up_the_others(hooks: Hooks) -> None:
    spend_the_day(hooks)
    hooks.project("old", github=CONFIG["integrations"]["github"])
    hooks.send(issue(1), project="old")
    hooks.send(issue(2))
    hooks.project("old", linear=CONFIG["integrations"]["linear"])
    spend_the_day(hooks, is_spent=False)
    pass_time(hooks)
    assert (hooks.receiver().deliver_due(), kept(hooks)) == (2, 0)
    assert [job.request["ticket"]["key"] for job in runs(hooks)] == ["a/shop#2"]


def test_a_kept_delivery_of_a_tenant_that_moves_waits_and_holds_up_nobody(hooks: Hooks) -> None:
    spend_the_day(hooks)
    hooks.send(issue())
    pass_time(hooks)
    tenant_rows.close(hooks.world.ledger, hooks.world.tenant)
    try:
        assert (hooks.receiver().deliver_due(), kept(hooks)) == (0, 1)
    finally:
        tenant_rows.open_again(hooks.world.ledger, hooks.world.tenant)
    assert hooks.receiver().deliver_due() == 1
