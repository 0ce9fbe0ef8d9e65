"""A newer job takes the place of older ones with its key: they end once, are told by whom, and let go of all."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledger.attempts import lock_owned_job
from ledger.dispatch_window import release_sites
from ledger.jobs import close_attempt, end
from ledger.tables import Job, Site
from producers.dispatch.broker import Publisher
from producers.intake.submit import Submitter
from routing.broker import create_app
from routing.errors import InvalidJobError
from routing.jobs import Reason, Source, State
from tests.factories import Shop

Submit = Callable[..., Job]
EDIT = "Make the header background blue"


@pytest.fixture
def submit(shop: Shop, broker_url: str) -> Iterator[Submit]:
    app = create_app(broker_url)
    submitter = Submitter(shop.ledger, Publisher(app), shop.policy)
    shop.site("shop")

    def call(*, tenant: str = "acme", **body: Any) -> Job:
        asked = {"prompt": EDIT, "site": "shop", "supersede_key": "header"} | body
        return shop.job(submitter.submit(asked, tenant=tenant, source=Source.HTTP).job.id)

    yield call
    app.close()


def told(shop: Shop, job: Job) -> list[Any]:
    return [row.payload for row in shop.rows("SELECT payload FROM notification WHERE job_id = :id", id=job.id)]


def test_an_older_job_that_waits_ends_at_once_and_its_owner_is_told_by_whom(shop: Shop, submit: Submit) -> None:
    old = submit()
    new = submit(prompt="Make the header background red")
    ended = shop.job(old.id)
    assert (ended.state, ended.reason, ended.superseded_by) == ("cancelled", "superseded", new.id)
    (payload,) = told(shop, old)
    assert (payload["reason"], payload["superseded_by"]) == ("superseded", str(new.id))
    assert shop.job(new.id).state == "queued"


def test_an_older_job_that_is_worked_on_stops_and_hands_on_its_site(shop: Shop, submit: Submit) -> None:
    old = submit()
    claimed = shop.claim(old.id)
    new = submit()
    assert shop.job(new.id).held_for == "site"
    assert shop.job(old.id).cancel_requested_at is not None
    with shop.ledger.begin() as session:  # as the worker does at its next step
        job = lock_owned_job(session, claimed.attempt)
        end(session, job, State.CANCELLED, reason=Reason.CANCELLED)
        close_attempt(session, job, outcome="cancelled", reason=Reason.CANCELLED)
    assert (shop.job(old.id).reason, len(told(shop, old))) == ("superseded", 1)
    with shop.ledger.begin() as session:
        assert release_sites(session) == [new.id]
    assert shop.claim(new.id).job.id == new.id


def test_a_preview_that_nobody_judged_yet_gives_way(shop: Shop, submit: Submit) -> None:
    old = submit()
    shop.offer(shop.claim(old.id))
    new = submit()
    assert (shop.job(old.id).state, shop.job(old.id).reason) == ("cancelled", "superseded")
    assert shop.find(Site, new.site_id).lock_job_id is None


def test_what_is_being_published_is_published(shop: Shop, submit: Submit) -> None:
    old = submit()
    shop.offer(shop.claim(old.id))
    shop.approve(old.id)
    submit()
    assert (shop.job(old.id).state, shop.job(old.id).superseded_by) == ("publishing", None)


def test_other_keys_targets_and_tenants_are_left_alone(shop: Shop, submit: Submit) -> None:
    shop.site("blog")
    shop.site("shop", tenant="rival")
    others = [submit(supersede_key="footer"), submit(site="blog"), submit(tenant="rival"), submit(supersede_key=None)]
    submit()
    assert {shop.job(job.id).state for job in others} == {"queued"}


def test_of_two_that_come_at_the_same_moment_one_stays(shop: Shop, submit: Submit) -> None:
    with ThreadPoolExecutor(4) as pool:
        jobs = list(pool.map(lambda number: submit(prompt=f"Make the header background {number}"), range(8)))
    states = [shop.job(job.id).state for job in jobs]
    assert sorted(states) == ["cancelled"] * 7 + ["queued"]
    assert shop.scalar("SELECT count(*) FROM notification") == 7


def test_a_job_starts_at_its_time_and_not_more_than_thirty_days_ahead(shop: Shop, submit: Submit) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    job = shop.job(submit(start_at=soon.isoformat()).id)
    assert (job.held_for, job.held_until, job.pushed_at) == ("time", soon, None)
    assert job.waiting_since == soon
    with pytest.raises(InvalidJobError) as refused:
        submit(start_at=(datetime.now(UTC) + timedelta(days=31)).isoformat())
    assert refused.value.errors[0].field == "start_at"
    with pytest.raises(InvalidJobError):
        submit(start_at="2026-01-01T00:00:00")
