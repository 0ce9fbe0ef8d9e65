"""A job that is accepted on what the process last saw leaves what one leaves that is looked up, and is placed alike."""

import random
import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from ledger.errors import IdempotencyConflictError
from ledger.submission import KnownKey
from producers.dispatch.broker import Publisher
from producers.errors import AdmissionRefusedError
from producers.intake.decisions import SeenTenant
from producers.intake.submit import Outcome, Submitted, Submitter
from producers.use_cases.tenants import Caller, Scope, authenticate, create_key, revoke
from routing.broker import create_app
from routing.errors import InvalidJobError
from routing.jobs import Source
from routing.policy.platform import DispatchWindow
from routing.queues import QueueName
from routing.scheduling import Admission
from tests.factories import Shop
from tests.integration.intake.test_submit_many import EDIT, QUESTION, TOMORROW, ground, seen

WINDOW = DispatchWindow(per_queue=5, per_tenant=2)
ADMISSION = Admission(waiting_per_tenant=7, waiting_per_queue=9, running_per_tenant=3)
CHANGES = (
    "UPDATE tenant SET paused_at = CASE WHEN paused_at IS NULL THEN now() END WHERE name = 'acme'",
    "UPDATE tenant SET weight = 3 - weight WHERE name = 'acme'",
    "UPDATE tenant SET max_running = CASE WHEN max_running IS NULL THEN 2 END WHERE name = 'acme'",
    "UPDATE tenant SET overrides = '{\"budgets\": {\"job_usd\": 0.3}}' WHERE name = 'acme'",
    'UPDATE tenant SET overrides = \'{"queues": {"answer": {"llm_usd": 9}}}\' WHERE name = \'acme\'',
    "UPDATE tenant SET overrides = '{}' WHERE name = 'acme'",
    "UPDATE tenant SET overrides = '{}', paused_at = NULL WHERE name = 'acme'",
    "INSERT INTO queue_control (queue, paused_at) VALUES ('answer', now()) ON CONFLICT (queue) DO UPDATE"
    " SET paused_at = CASE WHEN queue_control.paused_at IS NULL THEN now() END",
    "UPDATE site SET lock_job_id = CASE WHEN lock_job_id IS NULL THEN gen_random_uuid() END WHERE name = 'shop'",
    "UPDATE release SET signals = CASE WHEN signals ->> 'files' = '1'"
    ' THEN \'{"files": 0, "has_js": false, "has_build": false}\'::jsonb'
    ' ELSE \'{"files": 1, "has_js": false, "has_build": false}\'::jsonb END'
    " WHERE id = (SELECT active_release_id FROM site WHERE name = 'cafe')",
    "INSERT INTO backlog (queue, tenant, waiting, drained_per_second, turn, counted_at)"
    " VALUES ('answer', 'acme', 7, 0.5, 0, now()) ON CONFLICT (queue, tenant) DO UPDATE SET waiting = 7"
    " - backlog.waiting",
    "INSERT INTO backlog (queue, tenant, waiting, drained_per_second, turn, counted_at)"
    " VALUES ('spec', '', 9, 2, 0, now()) ON CONFLICT (queue, tenant) DO UPDATE SET waiting = 9 - backlog.waiting",
    "INSERT INTO cap (scope, key, limit_nanousd, spent_nanousd, reserved_nanousd) SELECT 'tenant_day', 'acme/' || d,"
    " 500000000000, 500000000000, 0 FROM to_char(timezone('UTC', now()), 'YYYY-MM-DD') AS d"
    " ON CONFLICT (scope, key) DO UPDATE SET spent_nanousd = 500000000000 - cap.spent_nanousd",
    "UPDATE job SET waiting_since = NULL, pushed_at = NULL, state = 'running', fence = 1 WHERE id ="
    " (SELECT id FROM job WHERE waiting_since IS NOT NULL AND held_for IS NULL ORDER BY created_at LIMIT 1);"
    " INSERT INTO attempt (id, job_id, number, queue, fence, worker, token_hash, lease_until, deadline)"
    " SELECT gen_random_uuid(), id, 1, queue, 1, 'w', id::text, now(), now() FROM job WHERE state = 'running'"
    " ON CONFLICT DO NOTHING",
    "UPDATE attempt SET ended_at = now()",
    "UPDATE job SET pushed_at = waiting_since WHERE waiting_since < now() AND held_for IS NULL",
)
"""What other processes do beneath a submitter; most are their own undoing."""
QUIET = "UPDATE job SET waiting_since = NULL, pushed_at = NULL, held_for = NULL WHERE waiting_since IS NOT NULL"
BODIES: tuple[dict[str, Any], ...] = (
    {"prompt": EDIT, "site": "shop"},
    {"prompt": EDIT, "site": "cafe"},
    {"prompt": EDIT, "site": "cafe", "priority": "P0", "budget_usd": 0.2},
    {"prompt": "Fix the bug in the checkout script", "site": "cafe"},
    {"prompt": QUESTION},
    {"prompt": QUESTION, "site": "shop"},
    {"prompt": "pwd"},
    {"prompt": "Make it nicer, key sk-aaaaaaaaaaaaaaaaaaaaaaaa \u00e4\u2028", "site": "shop"},
    {"prompt": EDIT},
    {"prompt": EDIT, "site": "missing"},
    {"prompt": EDIT, "new_site": "rolls"},
    {"prompt": EDIT, "site": "shop", "supersede_key": "k"},
    {"prompt": EDIT, "site": "cafe", "session": "s"},
    {"prompt": EDIT, "site": "cafe", "start_at": TOMORROW},
    {"prompt": "", "site": "cafe"},
)


@pytest.fixture
def submitter(shop: Shop, broker_url: str) -> Iterator[Submitter]:
    app = create_app(broker_url)
    policy = shop.policy.model_copy(update={"dispatch_window": WINDOW, "admission": ADMISSION})
    yield Submitter(shop.ledger, Publisher(app), policy)
    app.close()


def history(seed: int) -> list[Any]:
    """What happens, in order: what others do, and bodies that are submitted."""
    chance = random.Random(seed)
    happened: list[Any] = []
    for _ in range(70):
        if chance.random() < 0.3:
            happened += chance.choice([[QUIET], [chance.choice(CHANGES)], [QUIET, chance.choice(CHANGES)]])
            continue
        body = chance.choice(BODIES[:8] if chance.random() < 0.6 else BODIES)
        if chance.random() < 0.3:
            body = body | {"idempotency_key": f"k{chance.randrange(6)}"}
        happened.append(body)
    return happened


def alone(submitter: Submitter, body: Any) -> Outcome:
    try:
        return submitter.submit(body, tenant="acme", source=Source.HTTP, actor="key:acme/k")
    except (InvalidJobError, IdempotencyConflictError, AdmissionRefusedError) as error:
        return error


def lived(
    shop: Shop, broker: Any, happened: list[Any], submit: Callable[[Any], Outcome], *, is_checked: bool = False
) -> Any:
    """Return all that can be told of a ledger after a history."""
    ground(shop, broker)
    told = []
    for one in happened:
        if isinstance(one, str):
            shop.execute(one.replace(":", r"\:"))
            continue
        before = Facts(shop) if is_checked else None
        told.append(submit(one))
        if before is not None and isinstance(told[-1], Submitted) and told[-1].is_new:
            row = shop.job(told[-1].job.id)
            if row.state != "clarifying":
                assert not before.is_full(row.queue), one
                assert (row.held_for, row.pushed_at is not None) == before.place_of(row), one
    errors = [_UUID.sub("id", str(one)).partition("; try again")[0] for one in told if not isinstance(one, Submitted)]
    return seen(shop, broker, told), errors


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Facts:
    """Where a job has its place, told from the rows one by one: the rules as they are meant."""

    def __init__(self, shop: Shop) -> None:
        self.jobs = shop.rows("SELECT * FROM job WHERE waiting_since IS NOT NULL")
        self.live = shop.scalar("SELECT count(*) FROM attempt WHERE ended_at IS NULL AND queue <> 'control'")
        (self.tenant,) = shop.rows("SELECT * FROM tenant WHERE name = 'acme'")
        self.paused = {row.queue for row in shop.rows("SELECT queue FROM queue_control WHERE paused_at IS NOT NULL")}
        self.counted = {(row.queue, row.tenant): row.waiting for row in shop.rows("SELECT * FROM backlog")}
        self.spent = shop.scalar("SELECT coalesce(sum(spent_nanousd), 0) FROM cap")
        self.locked = {row.id for row in shop.rows("SELECT id FROM site WHERE lock_job_id IS NOT NULL")}

    def is_full(self, queue: str) -> bool:
        own, everyone = (self.counted.get((queue, tenant), 0) for tenant in ("acme", ""))
        is_spent = self.spent > 0 and queue not in ("tools", "control")
        return own >= ADMISSION.waiting_per_tenant or everyone >= ADMISSION.waiting_per_queue or is_spent

    def place_of(self, row: Any) -> tuple[str | None, bool]:
        """Return why the job is held, and whether it goes to the broker at once."""
        if "start_at" in row.request:
            return "time", False
        there = [job for job in self.jobs if job.queue == row.queue]
        if row.queue in ("spec", "patch", "agent"):
            at_site = [job for job in there if job.site_id == row.site_id and job.held_for in (None, "site")]
            if at_site or row.site_id in self.locked:
                return "site", False
        pushed = sum(job.pushed_at is not None for job in there)
        is_closed = self.tenant.paused_at is not None or row.queue in self.paused
        is_late = any(job.pushed_at is None and job.held_for is None for job in there)
        most = self.tenant.max_running or ADMISSION.running_per_tenant
        assert most is not None
        is_free = pushed < min(WINDOW.per_queue, WINDOW.per_tenant * self.tenant.weight) and pushed + self.live < most
        return None, is_free and not is_closed and not is_late


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_what_was_seen_before_and_what_is_looked_up_lead_to_the_same(
    shop: Shop, submitter: Submitter, broker: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened, on_seen = history(seed), []
    accept = submitter._accept_on_seen

    def note(*given: Any) -> Submitted | None:
        told = accept(*given)
        on_seen.append(told is not None)
        return told

    monkeypatch.setattr(submitter, "_accept_on_seen", note)

    def looked_up(body: Any) -> Outcome:
        submitter._seen.clear()
        return alone(submitter, body)

    expected = lived(shop, broker, happened, looked_up, is_checked=True)
    assert not any(on_seen)
    assert lived(shop, broker, happened, lambda body: alone(submitter, body)) == expected
    assert sum(on_seen) > 2, "the short way was taken"


@pytest.fixture
def key(shop: Shop) -> Caller:
    with shop.ledger.begin() as session:
        secret = create_key(session, "acme", name="k", scopes=[Scope.SUBMIT])
        return authenticate(session, secret)


def test_a_key_is_checked_by_what_accepts_its_job(shop: Shop, submitter: Submitter, key: Caller) -> None:
    assert key.key_id is not None
    known = KnownKey(key.key_id, sorted(key.scopes))

    def submit(known: KnownKey, tenant: str = "acme") -> UUID | None:
        told = submitter.submit_on_seen({"prompt": QUESTION}, tenant=tenant, actor=key.actor, key=known)
        return None if told is None else told.job.id

    assert submit(known) is None, "of the tenant nothing was seen yet"
    alone(submitter, {"prompt": QUESTION})
    assert submit(known) is not None
    shop.tenant("other")
    submitter._seen["other"] = submitter._seen["acme"]
    before = shop.scalar("SELECT count(*) FROM job")
    assert submit(known, tenant="other") is None
    assert submit(KnownKey(uuid4(), known.scopes)) is None
    assert submit(known._replace(scopes=["admin"])) is None
    with shop.ledger.begin() as session:
        assert revoke(session, "acme", name="k")
    assert submit(known) is None
    assert shop.scalar("SELECT count(*) FROM job") == before
    assert shop.scalar("SELECT count(*) FROM event") == 2 * before
    assert shop.scalar("SELECT count(*) FROM audit WHERE action = 'job_accepted'") == before


def test_what_is_remembered_of_sites_is_bounded(
    shop: Shop, submitter: Submitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.intake.decisions._MOST_SITES", 2)
    for name in "abcd":
        shop.show(shop.site(name))
        submitter.submit_many([{"prompt": EDIT, "site": name}], tenant="acme", source=Source.HTTP)
        submitter._seen["acme"].signals.pop("a", None)
    remembered = submitter._seen["acme"]
    assert isinstance(remembered, SeenTenant)
    assert len(remembered.signals) <= 3
    assert QueueName.SPEC in remembered.limits.cheapest
