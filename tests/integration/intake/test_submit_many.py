"""Jobs that are submitted together: each as if it came alone, in their order, and none takes another with it."""

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from ledger.errors import IdempotencyConflictError
from ledger.submission import count_backlog
from producers.dispatch.broker import Publisher
from producers.errors import AdmissionRefusedError, LedgerAwayError, UnknownTenantError
from producers.intake import submit as submitting
from producers.intake.submit import Outcome, Submitted, Submitter
from routing.broker import create_app, list_of
from routing.errors import InvalidJobError
from routing.jobs import Source
from routing.policy.platform import DispatchWindow
from routing.queues import QueueName
from tests.factories import Shop

EDIT, QUESTION, ORDER = "Make the header background blue", "What is a proxy?", "Build a landing page for a bakery"
TOMORROW = (datetime.now(UTC) + timedelta(days=1)).isoformat()
LISTS = [list_of(queue) for queue in QueueName]


@pytest.fixture
def submitter(shop: Shop, broker_url: str) -> Iterator[Submitter]:
    app = create_app(broker_url)
    yield Submitter(shop.ledger, Publisher(app), shop.policy.model_copy(update={"dispatch_window": ROOM}))
    app.close()


ROOM = DispatchWindow(per_queue=7, per_tenant=5)


def many(submitter: Submitter, *bodies: Any, tenant: str = "acme") -> list[Outcome]:
    return submitter.submit_many(bodies, tenant=tenant, source=Source.HTTP, actor="key:acme/k")


def alone(submitter: Submitter, body: Any) -> Outcome:
    try:
        return submitter.submit(body, tenant="acme", source=Source.HTTP, actor="key:acme/k")
    except (InvalidJobError, IdempotencyConflictError, AdmissionRefusedError) as error:
        return error


def bodies_of(seed: int) -> list[Any]:
    """Any mixture of what callers send, its mistakes and repetitions included."""
    chance = random.Random(seed)
    kinds: list[dict[str, Any]] = [
        {"prompt": EDIT, "site": "shop"},
        {"prompt": EDIT, "site": "cafe"},
        {"prompt": EDIT, "site": "cafe"},
        {"prompt": QUESTION},
        {"prompt": "pwd"},
        {"prompt": EDIT, "site": "shop", "tier": "patch"},
        {"prompt": EDIT},
        {"prompt": ORDER, "new_site": "rolls"},
        {"prompt": EDIT, "site": "rolls"},
        {"prompt": ""},
        {"wrong": 1},
        "text",
        {"prompt": EDIT, "site": "missing"},
        {"prompt": EDIT, "site": "shop", "supersede_key": "k"},
        {"prompt": "Make it nicer", "site": "shop", "supersede_key": "k"},
        {"prompt": QUESTION, "start_at": "2100-01-01T00:00:00Z"},
        {"prompt": EDIT, "site": "cafe", "start_at": TOMORROW},
        {"prompt": "Remove all pages", "site": "cafe"},
    ]
    found = []
    for _ in range(24):
        body: Any = chance.choice(kinds)
        if isinstance(body, dict) and chance.random() < 0.3:
            body = body | {"idempotency_key": f"k{chance.randrange(4)}"}
        found.append(body)
    return found


def seen(shop: Shop, broker: Any, told: list[Outcome]) -> Any:
    """All that anybody could tell two histories apart by, jobs named by their places."""
    order = shop.rows("SELECT id FROM job ORDER BY created_at, id")
    names = {row.id: f"job {place}" for place, row in enumerate(order)}
    shown = [
        (names[one.job.id], one.is_new, one.job.state, one.job.queue, one.job.tier, dict(one.job.route))
        if isinstance(one, Submitted)
        else (type(one).__name__, getattr(one, "errors", None))
        for one in told
    ]
    sites = {row.id: row.name for row in shop.rows("SELECT id, name FROM site")}
    jobs = shop.rows("""
        SELECT id, state, reason, prompt, request, request_digest, idempotency_key, priority, site_id, route, mode,
               tier, queue, fence, held_for, pushed_at IS NOT NULL AS pushed, waiting_since IS NOT NULL AS waits,
               source, requested_by, cap_nanousd, superseded_by, supersede_key,
               result::text NOT LIKE '%superseded_by%' AS own, clarification,
               expires_at IS NOT NULL AS expires, root_id = id AS is_root FROM job
    """)
    events = shop.rows("SELECT job_id, kind, data FROM event ORDER BY id")
    audit = shop.rows("SELECT job_id, action, actor, tier, prompt, prompt_sha256, detail FROM audit ORDER BY seq")
    lists = {name: [line.count("/0") for line in broker.lrange(name, 0, -1)] for name in LISTS}

    def told_of(rows: list[Any]) -> dict[str, list[Any]]:
        by: dict[str, list[Any]] = {}
        for job_id, *facts in rows:
            by.setdefault(names.get(job_id, "none"), []).append(str(facts))
        return by

    table = sorted(
        str(
            {
                **row._mapping,
                "id": names[row.id],
                "site_id": sites.get(row.site_id),
                "superseded_by": names.get(row.superseded_by),
            }
        )
        for row in jobs
    )
    refusals = sorted(told_of(events).pop("none", []))
    by_job = {name: facts for name, facts in told_of(events).items() if name != "none"}
    for facts in by_job.values():
        facts[:] = [fact.split("'seconds'")[0] for fact in facts]
    notes = len(shop.rows("SELECT job_id FROM notification"))
    audited = {
        name: [_anonymous(fact, names) for fact in (sorted(facts) if name == "none" else facts)]
        for name, facts in told_of(audit).items()
    }
    return shown, table, refusals, by_job, audited, notes, lists


def _anonymous(text: str, names: dict[Any, str]) -> str:
    for job_id, name in names.items():
        text = text.replace(str(job_id), name)
    return text


def ground(shop: Shop, broker: Any) -> None:
    shop.clear()
    broker.flushdb()
    for name in ("shop", "cafe"):
        shop.show(shop.site(name))


@pytest.mark.parametrize("seed", range(4))
def test_many_at_once_leave_the_same_as_one_after_the_other(
    shop: Shop, submitter: Submitter, broker: Any, seed: int
) -> None:
    bodies = bodies_of(seed)
    ground(shop, broker)
    expected = seen(shop, broker, [alone(submitter, body) for body in bodies])
    ground(shop, broker)
    assert seen(shop, broker, many(submitter, *bodies)) == expected


def test_they_are_worked_off_in_their_order(shop: Shop, submitter: Submitter, broker: Any) -> None:
    told = many(submitter, *({"prompt": QUESTION, "idempotency_key": str(9 - number)} for number in range(9)))
    assert all(isinstance(one, Submitted) and one.is_new for one in told)
    ids = [str(one.job.id) for one in told if isinstance(one, Submitted)]
    assert [str(row.id) for row in shop.rows("SELECT id FROM job ORDER BY created_at")] == ids
    pushed = [str(row.id) for row in shop.rows("SELECT id FROM job WHERE pushed_at IS NOT NULL ORDER BY created_at")]
    assert pushed == ids[: ROOM.per_tenant]
    assert len(broker.lrange("answer", 0, -1)) == ROOM.per_tenant


def test_forty_ask_the_ledger_no_more_often_than_one(shop: Shop, submitter: Submitter) -> None:
    shop.tenant()
    sent: list[str] = []

    def note(*facts: Any) -> None:
        sent.append(facts[2])

    event.listen(shop.ledger.engine, "before_cursor_execute", note)
    told = many(submitter, *[{"prompt": QUESTION}] * 40)
    event.remove(shop.ledger.engine, "before_cursor_execute", note)
    assert len(told) == 40
    assert len(sent) == 2, "context and the write"


def test_those_before_it_count_when_a_job_looks_for_room(shop: Shop, broker_url: str) -> None:
    app = create_app(broker_url)
    admission = shop.policy.admission.model_copy(update={"waiting_per_tenant": 3})
    submitter = Submitter(shop.ledger, Publisher(app), shop.policy.model_copy(update={"admission": admission}))
    shop.tenant()
    submitter.submit({"prompt": QUESTION}, tenant="acme", source=Source.HTTP)
    with shop.ledger.begin() as session:
        count_backlog(session)
    told = many(submitter, *[{"prompt": QUESTION}] * 4, {"prompt": "pwd"})
    app.close()
    assert [type(one).__name__ for one in told] == [
        "Submitted",
        "Submitted",
        *["AdmissionRefusedError"] * 2,
        "Submitted",
    ]
    assert shop.scalar("SELECT count(*) FROM event WHERE kind = 'refused'") == 2


def test_an_unknown_tenant_gets_nothing(shop: Shop, submitter: Submitter) -> None:
    with pytest.raises(UnknownTenantError):
        many(submitter, {"prompt": QUESTION}, tenant="nobody")
    assert many(submitter, tenant="nobody") == []


def test_two_batches_with_the_same_keys_in_other_orders_do_not_wait_for_each_other_in_a_circle(
    shop: Shop, submitter: Submitter
) -> None:
    shop.tenant()
    bodies = [{"prompt": QUESTION, "idempotency_key": f"k{number}"} for number in range(40)]
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda backwards: many(submitter, *bodies[:: -1 if backwards else 1]), (0, 1) * 4))
    ids = [{one.job.id for one in batch if isinstance(one, Submitted)} for batch in told]
    assert {frozenset(batch) for batch in ids} == {frozenset(row.id for row in shop.rows("SELECT id FROM job"))}
    assert sum(isinstance(one, Submitted) and one.is_new for batch in told for one in batch) == 40


def test_when_the_ledger_goes_away_half_way_what_was_accepted_is_told(
    shop: Shop, submitter: Submitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.tenant()
    looks: list[int] = []
    load = submitting.load_submission_context

    def break_off(*given: Any, **named: Any) -> Any:
        looks.append(1)
        if len(looks) == 2:
            raise OperationalError("SELECT", {}, Exception("gone"))
        return load(*given, **named)

    monkeypatch.setattr(submitting, "load_submission_context", break_off)
    monkeypatch.setattr(submitting, "BATCH", 2)
    told = many(submitter, *[{"prompt": QUESTION}] * 3)
    assert [type(one) for one in told] == [Submitted, Submitted, LedgerAwayError]
    assert shop.scalar("SELECT count(*) FROM job") == 2
