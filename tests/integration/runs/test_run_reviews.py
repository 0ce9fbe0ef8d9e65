"""A pull request lives: reviews, comments and failed checks become commits of further rounds, on the same bill."""

import hashlib
import hmac
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr
from sqlalchemy import select
from sqlmodel import col

from ledger.jobs import lock_job
from ledger.runs.reviews import due_reviews, lock_review
from ledger.runs.tables import ReviewComment
from ledger.tables import Job
from producers.errors import AuthenticationError
from producers.intake.submit import Requester
from producers.intake.ticket_webhooks import Ignored
from producers.intake.webhook_receiver import Taken, TicketRun, Waiting, WebhookReceiver
from producers.use_cases.reviews import MAX_CHECK_ROUNDS, ReviewRounds
from producers.use_cases.rounds import ReviseOrder, Rounds
from producers.use_cases.tickets import TicketWriter
from routing.jobs import Source, State
from routing.policy.agents import Account, AccountsConfig
from tests.factories import Shop
from tests.forge import TOKEN, Forge
from tests.integration.runs.run_world import PROJECT, Yard
from tests.integration.runs.test_run_publishing import forge, publish, remote_of, to_publishing
from tests.services import wait_until
from tests.unit.producers.intake.test_review_webhooks import check, inline, remark, review

__all__ = ["forge"]

SECRET = "webhook-secret-of-the-tests-0123456789"
GITHUB = PROJECT + "integrations: {github: {repository: acme/shop, token: acme, webhook: acme}}\n"


class Office:
    """A published run, and the forge's deliveries about its pull request."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard
        self.first = to_publishing(yard)
        assert publish(yard, self.first).state == State.PUBLISHED
        self.receiver = WebhookReceiver(yard.shop.ledger, yard.submitter, yard.resources.accounts)
        self.rounds = Rounds(yard.shop.ledger, yard.policy)
        self.sent = 0

    def send(self, event: str, body: dict[str, Any], *, secret: str = SECRET) -> Taken | Waiting:
        self.sent += 1
        for name in ("review", "comment"):
            if name in body:
                body = {**body, name: {**body[name], "id": self.sent}}
        for about in ("pull_request", "issue"):
            if about in body:
                body = {**body, about: {**body[about], "number": 1}}
        return self.post(event, body, secret=secret)

    def post(self, event: str, body: dict[str, Any], *, secret: str = SECRET) -> Taken | Waiting:
        data = json.dumps(body).encode()
        signature = f"sha256={hmac.new(secret.encode(), data, hashlib.sha256).hexdigest()}"
        headers = {"x-github-event": event, "x-hub-signature-256": signature}
        return self.receiver.take(data, headers, tenant="acme", project="shop", tracker="github")

    def answer(self, *, quiet_seconds: float = 0.0) -> UUID | None:
        """Let the dispatcher look, and return the round that it started."""
        before = set(self.jobs())
        self.yard._pause(is_paused=True)
        try:
            ReviewRounds(self.rounds, quiet_seconds=quiet_seconds).deliver_due()
        finally:
            self.yard._pause(is_paused=False)
        started = [job for job in self.jobs() if job not in before]
        assert len(started) <= 1
        return started[0] if started else None

    def jobs(self) -> list[UUID]:
        with self.yard.shop.ledger.begin() as session:
            own = (col(Job.root_id) == self.first) & (col(Job.queue) != "steps")
            return list(session.scalars(select(col(Job.id)).where(own)))

    def comments(self) -> list[ReviewComment]:
        with self.yard.shop.ledger.begin() as session:
            return list(session.scalars(select(ReviewComment).order_by(col(ReviewComment.id))))

    def commit(self, run_id: UUID) -> str:
        return str(self.yard.job(run_id).result["commit"])

    def failed_check(self, run_id: UUID, name: str = "test") -> Taken | Waiting:
        return self.send("check_run", check(head_sha=self.commit(run_id), name=name))


@pytest.fixture
def office(shop: Shop, tmp_path: Any, forge: Forge) -> Office:
    yard = Yard(shop, tmp_path, project=GITHUB)
    account = Account(
        kind="github",
        git_url="https://forge.example/acme/",
        api_url=forge.url,
        token=SecretStr(TOKEN),
        tenants=("acme",),
        webhook_secret=SecretStr(SECRET),
    )
    yard.resources = replace(yard.resources, accounts=AccountsConfig(by_name={"acme": account}))
    return Office(yard)


@pytest.mark.slow
@pytest.mark.req("S-030")
def test_a_review_with_its_comments_becomes_one_commit_on_the_same_branch_and_bill(office: Office) -> None:
    yard, first = office.yard, office.first
    kept = office.send("pull_request_review_comment", inline())
    assert kept == TicketRun(first, is_new=False)
    assert office.answer() is None, "a comment alone starts nothing"
    order = review(text="Not yet.")
    office.send("pull_request_review", order)
    office.post("pull_request_review", {**order, "review": {**order["review"], "id": 2}, "pull_request": {"number": 1}})
    assert len(office.comments()) == 2, "a delivery that comes twice is kept once"
    assert office.answer(quiet_seconds=30) is None, "somebody may be still writing"

    second = office.answer()
    assert second is not None
    made = yard.job(second)
    assert (made.parent_id, made.root_id, made.requested_by) == (first, first, "github:acme/shop")
    assert "ann on src/header.ts:7:\n> Keep the border." in made.prompt
    assert "> Not yet." in made.prompt
    assert {comment.run_id for comment in office.comments()} == {second}
    office.send("issue_comment", remark("@pointsman and the footer"))
    assert office.answer() is None, "the round is under way"
    job = yard.play(second)
    assert job.state == State.PUBLISHED
    assert job.result["branch"] == yard.job(first).result["branch"]
    assert job.result["pull_request"]["number"] == 1
    with remote_of(yard) as repository:
        assert [parent.decode() for parent in repository[job.result["commit"].encode()].parents] == [
            office.commit(first)
        ]
    third = office.answer()
    assert third is not None, "what was said meanwhile is not lost"
    assert "> @pointsman and the footer" in yard.job(third).prompt


def test_a_failed_check_is_answered_a_few_times_and_then_a_person_has_to_ask(office: Office, forge: Forge) -> None:
    yard, last = office.yard, office.first
    for number in range(MAX_CHECK_ROUNDS):
        assert isinstance(office.failed_check(last), TicketRun)
        assert isinstance(office.failed_check(last, "lint"), TicketRun)
        started = office.answer()
        assert started is not None, number
        stale, last = last, started
        assert yard.play(last).state == State.PUBLISHED
        assert isinstance(office.failed_check(stale, "late"), Ignored), "another commit is on top of it"
    office.failed_check(last)
    assert office.answer() is None
    assert office.answer() is None, "it is refused once"
    TicketWriter(yard.shop.ledger, yard.resources.accounts).deliver_due(limit=100)
    told = [comment["body"] for comment in forge.comments]
    assert sum("3 rounds have answered failed checks; mention me" in text for text in told) == 1
    office.send("issue_comment", remark("@pointsman try once more"))
    assert office.answer() is not None


def test_a_person_who_revises_meanwhile_leaves_the_comments_to_the_round_after(office: Office) -> None:
    yard, first = office.yard, office.first
    office.send("pull_request_review", review())
    with yard.shop.ledger.look() as connection:
        assert due_reviews(connection, quiet_seconds=0, limit=5) == [first]

    def lock() -> Any:
        with yard.shop.ledger.begin() as session:
            return lock_review(session, first)

    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    ann, order = Requester(tenant="acme", source=Source.HTTP, actor="ann"), ReviseOrder(text="Use the brand colour")
    yard._pause(is_paused=True)
    with ThreadPoolExecutor() as pool:
        with yard.shop.ledger.begin() as session:
            second = office.rounds.revise_in(session, lock_job(session, first), order, requester=ann).job.id
            found = pool.submit(lock)
            wait_until(lambda: yard.shop.scalar(waits), seconds=10, what="the dispatcher waits for the run's row")
        assert found.result(10) is None, "the run that it waited for is the last no more"
    yard._pause(is_paused=False)
    assert office.answer() is None
    assert office.comments()[0].refused == ""
    assert yard.play(second).state == State.PUBLISHED
    assert office.answer() is not None


def test_a_bill_that_is_spent_is_told_on_the_pull_request(office: Office, forge: Forge) -> None:
    office.yard.shop.execute("UPDATE job SET cap_nanousd = 1")
    office.send("pull_request_review", review())
    assert office.answer() is None
    (comment,) = office.comments()
    assert "its bill has spent" in comment.refused
    TicketWriter(office.yard.shop.ledger, office.yard.resources.accounts).deliver_due(limit=100)
    (told,) = [note for note in forge.comments if "does not go on" in note["body"]]
    assert str(told["issue"]).endswith("1")


def test_a_review_for_which_there_is_no_headroom_waits_for_it(office: Office) -> None:
    full = "INSERT INTO backlog (queue, tenant, waiting, drained_per_second) VALUES ('control', '', 1000000, 1)"
    office.yard.shop.execute(f"{full} ON CONFLICT (queue, tenant) DO UPDATE SET waiting = excluded.waiting")
    office.send("pull_request_review", review())
    assert office.answer() is None
    (comment,) = office.comments()
    assert (comment.settled_at, comment.refused) == (None, "")
    office.yard.shop.execute("UPDATE backlog SET waiting = 0")
    assert office.answer() is not None


def test_only_what_the_forge_signed_about_a_pull_request_of_this_project_is_kept(office: Office) -> None:
    with pytest.raises(AuthenticationError):
        office.send("pull_request_review", review(), secret="another-secret-of-nobody-0123456789")
    strange = {**review(), "repository": {"full_name": "acme/other"}, "pull_request": {"number": 1}}
    assert isinstance(office.post("pull_request_review", strange), Ignored)
    unknown = {**review(), "pull_request": {"number": 99}}
    assert isinstance(office.post("pull_request_review", unknown), Ignored)
    assert isinstance(office.post("check_run", check()), Ignored)
    assert office.comments() == []
    office.yard.projects.put(
        "acme",
        "shop",
        GITHUB.replace("webhook: acme", "webhook: acme, reviews: false").replace("HOME", str(office.yard.home)),
        source="project.yaml",
        actor="operator",
    )
    assert isinstance(office.send("pull_request_review", review()), Ignored)
    assert office.comments() == []
