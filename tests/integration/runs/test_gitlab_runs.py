"""A project at GitLab: its issues become runs, runs become merge requests, and what is said there further commits."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr
from sqlalchemy import select
from sqlmodel import col

from ledger.runs.tables import ReviewComment
from producers.errors import AuthenticationError
from producers.intake.gitlab_webhooks import ISSUE, NOTE, PIPELINE
from producers.intake.ticket_webhooks import Ignored
from producers.intake.webhook_receiver import Taken, TicketRun, Waiting, WebhookReceiver
from producers.use_cases.reviews import ReviewRounds
from producers.use_cases.rounds import Rounds
from producers.use_cases.tickets import TicketWriter, may_write
from routing.jobs import State
from routing.policy.agents import Account, AccountsConfig
from tests.factories import Shop
from tests.forge import TOKEN, GitLab
from tests.integration.runs.run_world import PROJECT, Yard
from tests.unit.producers.intake.test_gitlab_webhooks import ANN, issue, note, pipeline

SECRET = "webhook-secret-of-the-tests-0123456789"
SETTINGS = "{repository: acme/web/shop, token: acme, webhook: acme, draft: true}"
GITLAB = PROJECT + f"integrations: {{gitlab: {SETTINGS}}}\n"
GUEST = {"id": 8, "name": "Eve", "username": "eve"}


class Office:
    """A project, its forge, and the deliveries of it."""

    def __init__(self, shop: Shop, home: Path, server: GitLab) -> None:
        self.server, self.yard = server, Yard(shop, home, project=GITLAB)
        account = Account(
            kind="gitlab",
            git_url="https://forge.example/acme/",
            api_url=server.url,
            token=SecretStr(TOKEN),
            tenants=("acme",),
            webhook_secret=SecretStr(SECRET),
        )
        self.accounts = AccountsConfig(by_name={"acme": account})
        self.yard.resources = replace(self.yard.resources, accounts=self.accounts)
        self.receiver = WebhookReceiver(shop.ledger, self.yard.submitter, self.accounts, may_write=may_write)
        self.rounds = ReviewRounds(Rounds(shop.ledger, self.yard.policy), quiet_seconds=0)

    def post(self, event: str, body: dict[str, Any], *, secret: str = SECRET) -> Taken | Waiting:
        headers = {"x-gitlab-event": event, "x-gitlab-token": secret}
        self.yard._pause(is_paused=True)
        try:
            return self.receiver.take(
                json.dumps(body).encode(), headers, tenant="acme", project="shop", tracker="gitlab"
            )
        finally:
            self.yard._pause(is_paused=False)

    def answer(self) -> UUID | None:
        """Let the dispatcher look, and return the round that it started."""
        self.yard._pause(is_paused=True)
        try:
            self.rounds.deliver_due()
        finally:
            self.yard._pause(is_paused=False)
        with self.yard.shop.ledger.begin() as session:
            taken = select(ReviewComment).where(col(ReviewComment.run_id).is_not(None))
            last = session.scalars(taken.order_by(col(ReviewComment.settled_at).desc()).limit(1)).one_or_none()
            run_id = last.run_id if last is not None else None
        return run_id if run_id is not None and self.yard.job(run_id).ended_at is None else None


@pytest.fixture
def office(shop: Shop, tmp_path: Path) -> Iterator[Office]:
    with GitLab(levels={ANN["id"]: 30, GUEST["id"]: 10}) as server:
        yield Office(shop, tmp_path, server)


@pytest.mark.slow
@pytest.mark.req("S-003", "S-030")
def test_an_issue_becomes_a_merge_request_and_what_is_said_there_a_commit_of_it(office: Office) -> None:
    yard = office.yard
    taken = office.post(ISSUE, issue())
    assert isinstance(taken, TicketRun)
    assert office.post(ISSUE, issue("open")) == TicketRun(taken.run_id, is_new=False), "two deliveries of one action"
    first = yard.play(taken.run_id)
    assert first.state == State.PUBLISHED, first.detail
    (merge,) = office.server.pulls
    assert first.result["pull_request"] == {"number": 1, "url": merge["web_url"]}
    assert merge["title"] == "Draft: The cart forgets its items"
    assert merge["source_branch"] == first.result["branch"]

    office.post(NOTE, note("Too wide."))
    assert office.answer() is None, "a note alone starts nothing"
    office.post(NOTE, note("@pointsman narrower, please", id=10))
    second = office.answer()
    assert second is not None
    assert yard.job(second).requested_by == "gitlab:acme/shop"
    assert "> Too wide." in yard.job(second).prompt
    after = yard.play(second)
    assert after.state == State.PUBLISHED, after.detail
    assert (after.result["branch"], after.result["commit"]) == (first.result["branch"], after.result["commit"])
    assert after.result["commit"] != first.result["commit"]
    assert len(office.server.pulls) == 1

    assert isinstance(office.post(PIPELINE, pipeline(sha=first.result["commit"])), Ignored), "it is the newest no more"
    office.post(PIPELINE, pipeline(sha=after.result["commit"]))
    third = office.answer()
    assert third is not None
    assert "The job unit failed" in yard.job(third).prompt

    TicketWriter(yard.shop.ledger, office.accounts).deliver_due(limit=100)
    assert {told["issue"] for told in office.server.comments} == {"acme/web/shop#12", "acme/web/shop!1"}


def test_who_may_not_push_starts_nothing_and_a_forge_that_cannot_be_asked_is_asked_again(office: Office) -> None:
    assert isinstance(office.post(ISSUE, {**issue(), "user": GUEST}), Ignored)
    mention = {**note("@pointsman do it", place="Issue"), "user": GUEST}
    assert isinstance(office.post(NOTE, mention), Ignored)
    office.server.failures = [502]
    assert isinstance(office.post(ISSUE, issue()), Waiting)
    assert office.yard.shop.scalar("SELECT count(*) FROM run") == 0
    strange = {**issue(), "project": {"path_with_namespace": "acme/other"}}
    assert isinstance(office.post(ISSUE, strange), Ignored)
    for secret in ("another-secret", ""):
        with pytest.raises(AuthenticationError):
            office.post(ISSUE, issue(), secret=secret)
    office.yard.shop.execute("UPDATE kept_delivery SET next_at = now()")
    assert office.receiver.deliver_due() == 1
    assert office.yard.shop.scalar("SELECT count(*) FROM run") == 1


def test_of_a_merge_request_that_is_no_run_s_nobody_is_looked_up(office: Office) -> None:
    assert isinstance(office.post(NOTE, note("@pointsman do it")), Ignored)
    assert office.server.asked == []


def test_an_edited_note_is_followed_once(office: Office) -> None:
    yard = office.yard
    taken = office.post(ISSUE, issue())
    assert isinstance(taken, TicketRun)
    assert yard.play(taken.run_id).state == State.PUBLISHED
    office.post(NOTE, note("Too wide."))
    office.post(NOTE, note("@pointsman narrower", action="update"))
    second = office.answer()
    assert second is not None
    assert "narrower" in yard.job(second).prompt
    assert "Too wide." not in yard.job(second).prompt
    assert yard.play(second).state == State.PUBLISHED
    office.post(NOTE, note("@pointsman narrower!", action="update"))
    assert office.answer() is None, "it was answered"

    office.post(NOTE, note("And the footer.", id=11))
    office.post(NOTE, note("@pointsman go on", id=12))
    third = office.answer()
    assert third is not None
    assert yard.play(third).state == State.PUBLISHED
    for text in ("@pointsman and the footer", "@pointsman and the footer, too"):
        office.post(NOTE, note(text, id=11, action="update"))
    fourth = office.answer()
    assert fourth is not None, "an edit has made an order of it"
    assert yard.play(fourth).state == State.PUBLISHED
    office.post(NOTE, note("@pointsman and the footer, again", id=11, action="update"))
    assert office.answer() is None
