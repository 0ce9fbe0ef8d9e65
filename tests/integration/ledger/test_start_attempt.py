"""The two functions of the database are held against what they stand for, row for row, on random ledgers.

A claim is held against a model of its rules, an end against `jobs.end`, on twins that the same seed made.
"""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

import pytest

from ledger.attempts import lock_owned_job
from ledger.dispatch_window import WRITING_QUEUES
from ledger.errors import FencedError
from ledger.job_ends import task_key
from ledger.jobs import end
from ledger.money import settle
from ledger.operations.workers import WorkerStatus, record_heartbeat
from ledger.start_attempt import Claim, claim, finish
from ledger.store import Ledger, create_ledger_engine
from ledger.tables import Release, Site
from routing.jobs import JobMessage, Reason, State
from routing.policy.platform import Policy
from routing.policy.prices import Usage
from routing.queues import QUEUE_OF_TIER, QueueName, Tier
from tests.cluster import cluster
from tests.factories import Shop
from tests.services import wait_until

SECRET = "sk-ant-api03-" + "A1b2C3d4" * 12
SHORTER = {"queues": {"spec": {"soft_seconds": 15, "hard_seconds": 20}}}
UNFIT = '{"queues": {"spec": {"hard_seconds": 99999}}}'
TABLES = {
    "job": "id",
    "attempt": "job_id, number",
    "event": "id",
    "audit": "seq",
    "notification": "job_id",
    "site": "id",
    "task_failure": "key",
}
RANDOM = {"id", "xid", "token_hash", "seq", "attempt_id"}
MEASURED = {"seconds", "wait_seconds"}


def rows(shop: Shop, table: str, order: str) -> list[dict[str, Any]]:
    """Rows without what no two runs have in common: times are only there or not."""
    found = [row[0] for row in shop.rows(f"SELECT to_jsonb(row) FROM {table} AS row ORDER BY {order}")]
    for row in found:
        for name in [*row]:
            is_time = name.endswith(("_at", "_since", "_until")) or name in ("deadline", "at")
            if is_time:
                row[name] = row[name] is not None
            elif name in RANDOM and not (name == "id" and table in ("job", "site")):
                del row[name]
        for name in MEASURED & {*row.get("data", ())}:
            row["data"][name] = isinstance(row["data"][name], int | float)  # a whole second is read as an int
    return found


def contents(shop: Shop) -> dict[str, list[dict[str, Any]]]:
    return {table: rows(shop, table, order) for table, order in TABLES.items()}


@dataclass
class World:
    """A random ledger, the same for the same seed."""

    shop: Shop
    random: Random
    sites: list[UUID] = field(default_factory=list)
    releases: list[UUID] = field(default_factory=list)
    jobs: list[UUID] = field(default_factory=list)

    def uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    def some(self, *among: Any) -> Any:
        return self.random.choice(among)

    def fill(self, jobs: int) -> None:
        self.shop.clear()
        for name in ("acme", "poor"):
            limit, overrides = self.some(None, None, 3, 9), self.some({}, {}, SHORTER)
            self.shop.tenant(name, provider=self.some(None, "fake"), max_running=limit, overrides=overrides)
        with self.shop.ledger.begin() as session:
            for number in range(4):
                self.sites.append(self.uuid())
                session.add(Site(id=self.sites[-1], tenant=self.some("acme", "poor"), name=f"s{number}"))
                session.flush()
                self.releases.append(self.uuid())
                manifest = {"v": 1, "files": {"index.html": [str(number), number]}}
                release = Release(id=self.releases[-1], site_id=self.sites[-1], digest=f"d{number}", manifest=manifest)
                session.add(release)
                session.flush()
                session.get_one(Site, self.sites[-1]).active_release_id = self.some(None, self.releases[-1])
            if self.some(True, False):
                queues = tuple(QUEUE_OF_TIER.values())
                record_heartbeat(session, WorkerStatus(id="w1", host="h", pid=1, queues=queues, slots=self.some(1, 3)))
        for number in range(jobs):
            self.accept(number)

    def accept(self, number: int) -> None:
        job_id, tier = self.uuid(), self.some(None, None, *Tier)
        first = self.some(None, None, *self.jobs[-2:])
        site = self.some(*self.sites) if tier or self.some(True, False) else None
        prompt = f"{number}: {self.some('Make it blue', 'Say hello', f'Use {SECRET}')}"
        asked = {"prompt": prompt, "callback_url": self.some(None, None, "https://acme.test/hook")}
        if tier is None:
            asked["queue"] = self.some(QueueName.TOOLS, QueueName.ANSWER, QueueName.ANSWER, QueueName.INTAKE)
        tenant = self.some("acme", "poor")
        continued = {} if first is None else {"parent_id": first, "root_id": first}
        if first is not None and self.shop.scalar("SELECT count(*) FROM job WHERE parent_id = :id", id=first):
            continued = {}
        self.shop.accept(id=job_id, tier=tier, site_id=site, tenant=tenant, **asked, **continued)
        self.jobs.append(job_id)
        results: tuple[dict[str, Any], ...] = ({}, {"output_bytes": 7}, {"paid_replies": {"a": 1}, "retrying": 1})
        columns = {
            "result": json.dumps(self.some(*results, {"needs_person": True})),
            "base_release_id": self.some(None, None, *self.releases),
            "start_release_id": self.some(None, None, *self.releases),
            "pushed": self.some(True, True, False),
            "held_for": self.some(*[None] * 6, "site", "time", "provider"),
            "cancel": self.some(*[False] * 7, True),
            "key": self.some(*[None] * 7, "one at a time"),
            "id": job_id,
        }
        self.shop.execute(
            "UPDATE job SET result = CAST(:result AS jsonb), supersede_key = :key,"
            " base_release_id = :base_release_id, start_release_id = :start_release_id,"
            " pushed_at = CASE WHEN :pushed THEN now() END, held_for = :held_for,"
            " cancel_requested_at = CASE WHEN :cancel THEN now() END WHERE id = :id",
            **columns,
        )

    def spend(self, claimed: Claim, *, outcome: str | None = None) -> None:
        """Settled calls of the attempt, and of an earlier one that ended so."""
        ids = [claimed.attempt.id]
        if outcome is not None:
            ids.append(self.uuid())
            self.shop.execute(
                "INSERT INTO attempt (id, job_id, number, queue, fence, worker, token_hash, lease_until, deadline,"
                " ended_at, outcome) VALUES (:id, :job, 99, 'spec', 0, 'w', :hash, now(), now(), now(), :outcome)",
                id=ids[1],
                job=claimed.job.id,
                hash=str(ids[1]),
                outcome=outcome,
            )
        for attempt_id in ids * self.some(0, 1, 2):
            self.call(claimed, attempt_id, state="settled", cost=self.random.randrange(10**9))

    def call(self, claimed: Claim, attempt_id: UUID, *, state: str, cost: int) -> UUID:
        call_id = self.uuid()
        self.shop.execute(
            "INSERT INTO call (id, job_id, attempt_id, caps, state, provider, model, key_hash, gateway, lease_until,"
            " max_tokens, reserved_nanousd, cost_nanousd, input_tokens, output_tokens, cache_write_tokens,"
            " cache_read_tokens, prices_as_of) VALUES (:id, :job, :attempt, '[]', :state, 'p', 'm', 'k', 'g', now(), 1,"
            " 0, :cost, 0, 0, 0, 0, 'x')",
            id=call_id,
            job=claimed.job.id,
            attempt=attempt_id,
            state=state,
            cost=cost,
        )
        return call_id


# ------------------------------------------------------------------------------------------------------------ claims


def expected(world: World, job: Any, message: JobMessage, queue: QueueName, policy: Policy) -> str:
    """What a claim has to come to, by the rules in words."""
    shop = world.shop
    if job.fence != message.fence or job.waiting_since is None or job.queue != queue:
        return "stale"
    if job.held_for in ("time", "provider"):
        return "stale"
    if shop.scalar("SELECT overrides = CAST(:unfit AS jsonb) FROM tenant WHERE name = :t", unfit=UNFIT, t=job.tenant):
        return "unfit"
    if queue in WRITING_QUEUES and job.site_id is None:
        return "invalid"
    limit = shop.scalar("SELECT max_running FROM tenant WHERE name = :name", name=job.tenant)
    limit = limit if limit is not None else policy.admission.running_per_tenant
    live = shop.scalar(
        "SELECT count(*) FROM attempt JOIN job ON job.id = job_id WHERE attempt.ended_at IS NULL AND tenant = :name",
        name=job.tenant,
    )
    paused = shop.scalar("SELECT paused_at IS NOT NULL FROM tenant WHERE name = :name", name=job.tenant)
    paused = paused or shop.scalar(
        "SELECT count(*) FROM queue_control WHERE queue = :q AND paused_at > '-infinity'", q=queue
    )
    if paused or (limit is not None and live >= limit):
        return "waits"
    lock = shop.scalar("SELECT lock_job_id FROM site WHERE id = :id", id=job.site_id)
    return "busy" if queue in WRITING_QUEUES and lock not in (None, job.id) else "claimed"


def changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {name: after[name] for name in after if after[name] != before[name]}


def job_row(shop: Shop, job_id: UUID) -> dict[str, Any]:
    row: dict[str, Any] = shop.scalar("SELECT to_jsonb(job) FROM job WHERE id = :id", id=job_id)
    return row


def check_claim(world: World, job_id: UUID, message: JobMessage, queue: QueueName) -> str:
    shop = world.shop
    job, before = shop.job(job_id), job_row(shop, job_id)
    verdict = expected(world, job, message, queue, shop.policy)
    told = shop.scalar("SELECT coalesce(max(id), 0) FROM event")
    claimed = claim(shop.ledger, message, queue=queue, worker="w1", policy=shop.policy)
    changes = changed(before, job_row(shop, job_id))
    news = [
        (kind, data) for kind, data in shop.rows("SELECT kind, data FROM event WHERE id > :id ORDER BY id", id=told)
    ]
    assert (claimed is not None) == (verdict == "claimed")
    if verdict == "stale":
        assert changes == {}
        assert news == [("fenced", {"queue": queue.value, "fence": message.fence})]
    elif verdict in ("waits", "busy"):
        left = {"pushed_at": None, "held_for": "site" if verdict == "busy" else job.held_for}
        assert changes == changed(before, before | left)
        assert news == []
    elif verdict in ("unfit", "invalid"):
        reason = "internal_error" if verdict == "unfit" else "invalid_request"
        assert (changes["state"], changes["reason"]) == ("failed", reason)
    else:
        assert claimed is not None
        check_claimed(world, before, changes, news, claimed)
    return verdict


def check_claimed(world: World, before: dict[str, Any], changes: dict[str, Any], news: Any, claimed: Claim) -> None:
    shop, job, attempt = world.shop, claimed.job, claimed.attempt
    state = "running" if before["state"] == "queued" else before["state"]
    left: dict[str, Any] = {"fence": before["fence"] + 1, "state": state}
    left |= dict.fromkeys(("waiting_since", "pushed_at", "held_for", "held_until"))
    left["started_at"] = before["started_at"] or changes.pop("started_at")
    site = shop.find(Site, claimed.site.id) if claimed.site else None
    assert (site and str(site.id)) == before["site_id"]
    active = str(site.active_release_id) if site and site.active_release_id else None
    base = before["base_release_id"] or active
    left["base_release_id"] = before["base_release_id"] if before["queue"] == "intake" else base
    for row, release_id in ((claimed.base, base), (claimed.begun, before["start_release_id"])):
        stored = shop.find(Release, UUID(release_id)) if release_id else None
        assert (row and row.model_dump()) == (stored and stored.model_dump())
    assert (claimed.site and claimed.site.model_dump()) == (site and site.model_dump())
    assert changes == {name: value for name, value in changed(before, before | left).items() if name != "started_at"}
    place = {"queue": before["queue"], "tier": before["tier"], "attempt": attempt.number}
    moved = {"origin": before["state"], "target": state, "reason": None, "queue": before["queue"]}
    kinds = [kind for kind, _ in news]
    assert kinds == (["state", "started"] if state != before["state"] else ["started"])
    assert news[0][1] == moved or kinds == ["started"]
    assert {**news[-1][1], "wait_seconds": 0} == {**place, "wait_seconds": 0}
    row = shop.rows(
        "SELECT job_id, number, queue, tier, fence, worker, ended_at, started_at,"
        " extract(epoch FROM lease_until - started_at)::float AS lease,"
        " extract(epoch FROM deadline - started_at)::float AS hard FROM attempt WHERE id = :id",
        id=attempt.id,
    )[0]
    assert row[:8] == (*attempt[1:7], None, attempt.started_at)
    assert row.lease == pytest.approx(shop.policy.attempts.lease_seconds, abs=1)
    assert row.hard == pytest.approx(claimed.policy.queues[QueueName(attempt.queue)].hard_seconds, abs=1)
    if before["queue"] == "spec":
        overrides = shop.scalar("SELECT overrides FROM tenant WHERE name = :name", name=job.tenant)
        assert row.hard == pytest.approx(20 if overrides else 30, abs=1)
    for name in ("prompt", "result", "route", "request", "tier", "priority", "cap_nanousd", "supersede_key", "queue"):
        assert getattr(job, name) == before[name], name
    for name in ("site_id", "parent_id", "root_id", "start_release_id"):
        assert str(getattr(job, name)) == str(before[name]), name
    if attempt.queue in WRITING_QUEUES:
        assert shop.scalar("SELECT lock_job_id FROM site WHERE id = :id", id=job.site_id) == job.id


@pytest.mark.parametrize(("seed", "rare"), [(1, "invalid"), (2, "unfit")])
def test_a_claim_does_what_its_rules_say_on_random_ledgers(shop: Shop, seed: int, rare: str) -> None:
    world = World(shop, Random(seed))
    world.fill(jobs=40)
    verdicts: Counter[str] = Counter()
    shop.execute("UPDATE job SET site_id = NULL WHERE id = :id", id=world.jobs[3])
    for number, job_id in enumerate([*world.jobs, *world.random.sample(world.jobs, 10)]):
        if number == 30:
            shop.execute("UPDATE tenant SET overrides = CAST(:unfit AS jsonb) WHERE name = 'acme'", unfit=UNFIT)
        if world.random.random() < 0.2:
            table, key, name = world.some(("tenant", "name", "poor"), ("queue_control", "queue", "spec"))
            shop.execute("INSERT INTO queue_control (queue) VALUES ('spec') ON CONFLICT DO NOTHING")
            shop.execute(
                f"UPDATE {table} SET paused_at = CASE WHEN paused_at IS NULL THEN now() END WHERE {key} = '{name}'"
            )
        job = shop.job(job_id)
        fence = job.fence + world.some(*[0] * 8, 1, 7)
        queue = world.some(*[QueueName(job.queue)] * 8, QueueName.PATCH)
        verdicts[check_claim(world, job_id, JobMessage(job_id=job_id, fence=fence), queue)] += 1
    assert verdicts["claimed"] >= 2
    assert verdicts["stale"] >= 3
    assert verdicts.keys() >= {"busy", "waits", rare}, "each verdict is among them"


# -------------------------------------------------------------------------------------------------------------- ends


ENDED: tuple[tuple[State, Reason, str], ...] = (
    (State.ANSWERED, Reason.DONE, ""),
    (State.ANSWERED, Reason.DONE, ""),
    (State.FAILED, Reason.PROVIDER_ERROR, f"the provider said {SECRET}\x00"),
    (State.FAILED, Reason.INTERNAL_ERROR, "it broke in /srv/a.py, line 7"),
    (State.FAILED, Reason.COMMAND_REFUSED, "no such command"),
    (State.TIMED_OUT, Reason.TIME_LIMIT, "too slow"),
    (State.BUDGET_EXCEEDED, Reason.COST_CAP, "too dear"),
    (State.OUTPUT_EXCEEDED, Reason.OUTPUT_CAP, "too much"),
    (State.ESCALATED, Reason.AGENT_BLOCKED, "a person has to look"),
)
FACTS: tuple[dict[str, Any], ...] = (
    {},
    {"answer": "forty-two \ud800"},
    {"output_bytes": 99},
    {"model_turns": [1, None]},
)


def end_all(shop: Shop, seed: int, *, at_once: bool) -> Counter[str]:
    """End every job of the ledger of a seed, by the function where it takes it, or always in general."""
    world, ways = World(shop, Random(seed)), Counter[str]()
    world.fill(jobs=32)
    shop.execute("UPDATE tenant SET max_running = NULL; UPDATE job SET held_for = NULL")
    for job_id in world.jobs:
        claimed = shop.try_claim(shop.message(job_id))
        target, reason, detail = world.some(*ENDED)
        facts, draws = world.some(*FACTS), Random(world.random.random())
        if claimed is None:
            continue
        ending = World(shop, draws, jobs=[job_id])
        ending.spend(claimed, outcome=ending.some(None, "lost", "deferred_kept", "deferred"))
        prepare_end(ending, claimed)
        stated = {"reason": reason, "detail": detail, "result": facts}
        try:
            is_done = at_once and finish(shop.ledger, claimed, target, **stated)
            ways["at once" if is_done else "in general"] += 1
            ways[target] += is_done
            if not is_done:
                with shop.ledger.begin() as session:
                    end(session, lock_owned_job(session, claimed.attempt), target, **stated)
        except FencedError:
            ways["fenced"] += 1
    return ways


def prepare_end(world: World, claimed: Claim) -> None:
    shop, job_id = world.shop, claimed.job.id
    if world.some(True, False):
        key = task_key(claimed.job, first_prompt=claimed.job.first_prompt or claimed.job.prompt)
        columns = "(key, tenant, failures, rejections, is_debated, recent)"
        shop.execute(
            f"INSERT INTO task_failure {columns} VALUES (:key, :tenant, 0, 0, false, '[]') ON CONFLICT DO NOTHING",
            key=key,
            tenant=claimed.job.tenant,
        )
    if world.some(*[False] * 5, True):
        shop.execute("UPDATE job SET fence = fence + 1 WHERE id = :id", id=job_id)
    if world.some(*[False] * 5, True):
        shop.execute(
            "UPDATE job SET release_id = :r WHERE id = :id",
            id=job_id,
            r=shop.scalar("SELECT min(id::text)::uuid FROM release"),
        )
    for _ in range(world.some(0, 0, 2) if claimed.attempt.queue not in ("answer", "tools") else 0):
        shop.execute("INSERT INTO event (kind, job_id, data) VALUES ('box', :id, '{}')", id=job_id)
    if world.some(True, False) and (site := claimed.job.site_id) is not None:
        shop.execute(
            "UPDATE job SET held_for = 'site', pushed_at = NULL WHERE site_id = :s AND waiting_since IS NOT NULL",
            s=site,
        )


@pytest.mark.req("H-085", "R-064")
@pytest.mark.parametrize(
    ("seed", "ends"),
    [
        (2, {State.ANSWERED, State.BUDGET_EXCEEDED}),
        (4, {State.ESCALATED, State.TIMED_OUT}),
        (9, {State.FAILED, State.OUTPUT_EXCEEDED}),
    ],
)
def test_an_end_at_once_leaves_the_same_rows_as_one_in_general(shop: Shop, seed: int, ends: set[State]) -> None:
    ways = end_all(shop, seed, at_once=True)
    assert ends <= (+ways).keys(), "each end is among those at once"
    at_once = contents(shop)
    assert end_all(shop, seed, at_once=False)["at once"] == 0
    in_general = contents(shop)
    assert ways["at once"] >= 3
    for table in TABLES:
        for one, other in zip(at_once[table], in_general[table], strict=True):
            assert one == other, table


# ----------------------------------------------------------------------------- what happens at the same moment, or not


def test_an_end_counts_the_cost_of_a_call_that_is_just_being_settled(shop: Shop) -> None:
    claimed = shop.running(tier=None)
    call_id = World(shop, Random(1)).call(claimed, claimed.attempt.id, state="reserved", cost=0)
    usage = Usage(1, 1, 0, 0)
    with ThreadPoolExecutor() as pool:
        with shop.ledger.begin() as session:
            settle(call_id, usage=usage, cost_nanousd=7, finish="completed", status=200, state="settled").all(session)
            ending = pool.submit(finish, shop.ledger, claimed, State.ANSWERED, reason=Reason.DONE)
            waiting = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            wait_until(lambda: shop.scalar(waiting), seconds=10, what="the end waits for the settlement")
        assert ending.result()
    costs = shop.rows("SELECT (data ->> 'cost_nanousd')::int FROM event WHERE kind IN ('attempt_ended', 'ended')")
    assert costs == [(7,), (7,)]


def test_a_claim_that_a_crash_takes_leaves_a_job_that_ends_once() -> None:
    with cluster() as server:
        shop = Shop(Ledger(create_ledger_engine(server.url)), url=server.url)
        job_id, written, edited = shop.accept(tier=None), shop.accept(tier=None), shop.accept(tier=Tier.AGENT)
        message = shop.message(job_id)
        kept = shop.claim(edited)  # which waits for the disk
        lost = shop.claim(job_id)
        server.restart()
        assert (shop.job(job_id).fence, shop.scalar("SELECT array_agg(id) FROM attempt")) == (0, [kept.attempt.id])
        with pytest.raises(FencedError):
            finish(shop.ledger, lost, State.ANSWERED, reason=Reason.DONE)
        again = shop.try_claim(message)
        assert again is not None
        with pytest.raises(FencedError):  # the fence is the same, the attempt is not
            finish(shop.ledger, lost, State.ANSWERED, reason=Reason.DONE)
        other = shop.claim(written)
        assert finish(shop.ledger, again, State.ANSWERED, reason=Reason.DONE)
        server.restart()
        assert shop.scalar("SELECT array_agg(id) FROM attempt WHERE job_id = :id", id=job_id) == [again.attempt.id]
        assert shop.scalar("SELECT count(*) FROM event WHERE kind = 'ended'") == 1
        assert finish(shop.ledger, other, State.ANSWERED, reason=Reason.DONE)  # that end took its claim to the disk
        shop.ledger.close()
