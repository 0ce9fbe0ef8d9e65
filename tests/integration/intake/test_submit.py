"""One submit under all sources: accepted when its row commits, refused with a reason for every field, never lost."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest

from ledger.dispatch_window import pause_queue
from ledger.errors import IdempotencyConflictError
from ledger.tables import Job
from producers.dispatch.broker import Publisher
from producers.errors import UnknownTenantError
from producers.intake.celery_intake import take_in
from producers.intake.celery_messages import CeleryMessage
from producers.intake.submit import Submitter
from routing.broker import create_app, list_of
from routing.decision.router import Route, Signals, decide
from routing.errors import InvalidJobError
from routing.jobs import Source
from routing.queues import QueueName
from tests.factories import Shop

QUESTION = "What is a content delivery network?"
EDIT = "Make the header background blue"
Submit = Callable[..., Job]


@pytest.fixture
def submitter(shop: Shop, broker_url: str) -> Iterator[Submitter]:
    app = create_app(broker_url)
    yield Submitter(shop.ledger, Publisher(app), shop.policy)
    app.close()


@pytest.fixture
def submit(shop: Shop, submitter: Submitter) -> Submit:
    def call(*, tenant: str = "acme", source: Source = Source.HTTP, job_id: UUID | None = None, **body: Any) -> Job:
        return shop.job(submitter.submit(body, tenant=tenant, source=source, job_id=job_id).job.id)

    return call


def take(kwargs: dict[str, Any], task_id: str, submitter: Submitter) -> None:
    take_in(CeleryMessage("pointsman.submit", task_id, (), kwargs), submitter)


def lengths(broker: Any) -> dict[str, int]:
    return {queue.value: broker.llen(list_of(queue)) for queue in QueueName if broker.llen(list_of(queue))}


def refused(submit: Submit, **body: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidJobError) as error:
        submit(**body)
    return [(item.field, item.rule) for item in error.value.errors]


@pytest.mark.req("H-006", "H-007", "H-009", "H-052", "R-010")
def test_an_accepted_job_holds_its_decision_before_anything_worked_on_it(
    shop: Shop, submit: Submit, broker: Any
) -> None:
    shop.show(shop.site("shop"))
    job = shop.job(submit(prompt=EDIT, site="shop").id)
    assert (job.state, job.mode, job.queue, job.tier) == ("queued", "ACTION", "spec", 1)
    assert (job.route["tier"], job.route["site"]) == (1, {"files": 1})
    assert all(job.route[fact] for fact in ("rule", "reason", "classifier", "policy_version", "intent", "workflow"))
    assert isinstance(job.route["triggers"], list)
    assert shop.scalar("SELECT count(*) FROM attempt") == 0
    assert shop.scalar("SELECT count(*) FROM call") == 0
    assert lengths(broker) == {"spec": 1}
    complexity = {"files": 7, "has_js": True, "has_build": True}
    shop.execute("UPDATE release SET signals = :signals", signals=json.dumps(complexity))
    assert shop.job(submit(prompt=EDIT, site="shop").id).route["site"] == complexity


@pytest.mark.req("R-010")
def test_a_message_is_routed_where_it_comes_in_and_once(submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    routed: list[str] = []

    def counted(signals: Signals, *rules: Any) -> Route:
        routed.append(signals.prompt)
        return decide(signals, *rules)

    monkeypatch.setattr("producers.intake.decisions.decide", counted)
    assert submit(prompt=QUESTION).mode == "ANSWER"
    assert routed == [QUESTION]


@pytest.mark.parametrize("actor", ["key:acme/ci", None])
def test_the_trail_names_who_submitted_however_often_the_tenant_was_seen(
    shop: Shop, submitter: Submitter, actor: str | None
) -> None:
    shop.site("shop")
    jobs = [
        submitter.submit({"prompt": EDIT, "site": "shop"}, tenant="acme", source=Source.HTTP, actor=actor).job.id
        for _ in range(2)  # the second with one statement
    ]
    with pytest.raises(InvalidJobError):
        submitter.submit({"prompt": EDIT, "wrong": 1}, tenant="acme", source=Source.HTTP, actor=actor)
    rows = shop.rows("SELECT action, actor FROM audit WHERE action IN ('job_accepted', 'job_refused') ORDER BY seq")
    asked = shop.job(jobs[0]).requested_by
    assert asked == (actor or "http:acme")
    assert [tuple(row) for row in rows] == [("job_accepted", asked), ("job_accepted", asked), ("job_refused", asked)]


def test_where_the_runway_has_no_room_a_job_waits_in_the_ledger(shop: Shop, submit: Submit, broker: Any) -> None:
    with shop.ledger.begin() as session:
        pause_queue(session, QueueName.ANSWER, is_paused=True)
    job = submit(prompt=QUESTION)
    assert (shop.job(job.id).pushed_at, lengths(broker)) == (None, {})


def test_the_same_key_gives_the_same_job_and_one_message(shop: Shop, submit: Submit, broker: Any) -> None:
    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(lambda _: submit(prompt=QUESTION, idempotency_key="k").id, range(8)))
    assert len(set(jobs)) == 1
    assert lengths(broker) == {"answer": 1}
    with pytest.raises(IdempotencyConflictError):
        submit(prompt="What is a proxy?", idempotency_key="k")
    assert shop.scalar("SELECT count(*) FROM job") == 1


@pytest.mark.parametrize(("budget", "cap"), [(None, 300_000_000), (0.2, 200_000_000), (5, 300_000_000)])
def test_a_job_s_cap_is_the_lowest_of_caller_tenant_and_platform(
    shop: Shop, submit: Submit, budget: float | None, cap: int
) -> None:
    shop.tenant(overrides={"budgets": {"job_usd": 0.3}})
    assert submit(prompt=QUESTION, budget_usd=budget).cap_nanousd == cap


@pytest.mark.parametrize(
    ("body", "field", "rule"),
    [
        ({"prompt": EDIT, "site": "foreign"}, "site", "no site of this name belongs to the tenant"),
        ({"prompt": "Build a landing page for a bakery", "new_site": "shown"}, "new_site", "exists already"),
        ({"prompt": EDIT, "wrong": 1}, "wrong", "is not a field"),
    ],
)
def test_a_bad_request_is_refused_on_record_and_nothing_is_enqueued(
    shop: Shop, submit: Submit, broker: Any, body: dict[str, Any], field: str, rule: str
) -> None:
    shop.site("foreign", tenant="other")
    shop.show(shop.site("shown"))
    sites = shop.scalar("SELECT count(*) FROM site")
    ((name, text),) = refused(submit, **body)
    assert name == field
    assert rule in text
    assert shop.scalar("SELECT count(*) FROM job") == 0
    assert shop.scalar("SELECT count(*) FROM site") == sites
    assert lengths(broker) == {}
    (row,) = shop.rows("SELECT action, tenant, detail FROM audit WHERE action = 'job_refused'")
    assert row.tenant == "acme"
    assert row.detail == {"source": "http", "errors": [{"field": name, "rule": text}]}
    (event,) = shop.rows("SELECT data FROM event WHERE kind = 'refused'")
    assert event.data["field"] == ("other" if field == "wrong" else field)


@pytest.mark.parametrize("name", ["a\x00b", "a\ud800b", "x" * 3000])
def test_a_hostile_field_name_is_a_refusal_like_any_other(shop: Shop, submitter: Submitter, name: str) -> None:
    with pytest.raises(InvalidJobError):
        submitter.submit({"prompt": QUESTION, name: 1}, tenant="acme", source=Source.HTTP)
    assert shop.scalar("SELECT count(*) FROM audit WHERE action = 'job_refused'") == 1


def test_an_unknown_tenant_gets_nothing_and_leaves_nothing(shop: Shop, submit: Submit) -> None:
    for body in ({"prompt": QUESTION}, {"prompt": ""}):
        with pytest.raises((UnknownTenantError, InvalidJobError)):
            submit(tenant="nobody", **body)
    assert shop.scalar("SELECT count(*) FROM job") + shop.scalar("SELECT count(*) FROM audit") == 0


def test_a_new_site_is_made_by_an_order_and_not_by_a_question(shop: Shop, submit: Submit) -> None:
    submit(prompt=QUESTION, new_site="asked")
    assert shop.scalar("SELECT count(*) FROM site") == 0
    job = submit(prompt="Build a landing page for a bakery", new_site="bakery")
    assert shop.rows("SELECT name, id FROM site") == [("bakery", job.site_id)]


# -------------------------------------------------------------------------------------------------- the Celery intake


def test_a_celery_message_s_task_id_is_the_job_s_id_and_its_idempotency_key(
    shop: Shop, submitter: Submitter, broker: Any
) -> None:
    task_id = uuid4()
    for _ in range(3):
        take({"prompt": QUESTION, "tenant": "acme"}, str(task_id), submitter)
    take_in(
        CeleryMessage("pointsman.submit", str(task_id), (), {"prompt": "What is a proxy?", "tenant": "acme"}), submitter
    )
    job = shop.job(task_id)
    assert (job.state, job.source, job.prompt) == ("queued", "celery", QUESTION)
    assert lengths(broker) == {"answer": 1}


@pytest.mark.parametrize("tenant", ["acme", "other"])
def test_a_refused_message_never_touches_a_job_that_has_its_id(shop: Shop, submitter: Submitter, tenant: str) -> None:
    shop.tenant("other")
    task_id = uuid4()
    take({"prompt": QUESTION, "tenant": "acme"}, str(task_id), submitter)
    take({"prompt": "", "tenant": tenant}, str(task_id), submitter)
    job = shop.job(task_id)
    assert (job.tenant, job.state, job.prompt) == ("acme", "queued", QUESTION)
    assert shop.claim(task_id)


@pytest.mark.parametrize("task_id", ["not-a-uuid", "", "../../x"])
def test_a_task_id_that_is_no_uuid_is_dropped_with_a_word_in_the_log(
    shop: Shop, submitter: Submitter, task_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    take({"prompt": QUESTION, "tenant": "acme"}, task_id, submitter)
    assert shop.scalar("SELECT count(*) FROM job") == 0
    assert "intake_refused" in caplog.text
