"""Dead letters: what ended as nobody wanted, found by what it has in common, replayed once, or laid to rest."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from ledger.attempts import lock_owned_job
from ledger.events import EventKind, record
from ledger.jobs import end, lock_job
from ledger.tables import Job
from producers.intake.submit import Requester
from producers.use_cases.replays import Replays
from producers.use_cases.rounds import ResumeOrder, Rounds
from routing.jobs import Reason, Source, State
from routing.queues import Tier
from tests.command_line import Run, command_line
from tests.integration.api.http_world import HOME, PAGES, World, shared_ledger, world

__all__ = ["shared_ledger", "world"]  # fixtures

EDIT = {"prompt": "Change the heading to 'Cake'", "site": "bakery"}


@pytest.fixture
def bakery(world: World, tmp_path: Path) -> World:
    world.site("bakery", PAGES, tmp_path)
    return world


def die(
    world: World,
    detail: str = "a defect ended it: KeyError",
    *,
    state: State = State.FAILED,
    reason: Reason = Reason.PROVIDER_ERROR,
    **body: Any,
) -> UUID:
    """Submit a job and let it end as nobody wanted."""
    job_id = world.submit(**{**EDIT, **body})
    taken = world.claim(job_id)
    with world.ledger.begin() as session:
        end(session, lock_owned_job(session, taken.attempt), state, reason=reason, detail=detail)
    return job_id


def clusters(world: World, **query: Any) -> Any:
    return world.call("GET", "/v1/dead-letters", params=query).json()


def order(world: World, verb: str, **body: Any) -> Any:
    answer = world.call("POST", f"/v1/dead-letters/{verb}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_ends_that_differ_only_in_numbers_ids_and_paths_are_one_cluster_and_others_are_not(bakery: World) -> None:
    alike = [
        die(bakery, f"call {uuid4()} of /srv/{number}/a.html gave {500 + number}", prompt=f"Make it {number}px high")
        for number in range(3)
    ]
    other = die(bakery, "the reply held no JSON", prompt="Make it wider")
    found = clusters(bakery)
    assert [(one["jobs"], one["reason"]) for one in found["clusters"]] == [
        (3, "provider_error"),
        (1, "provider_error"),
    ]
    first, second = found["clusters"]
    assert first["signature"] == "provider_error: call <n> of <path> gave <n>"
    assert (first["example"], second["example"]) == (str(alike[-1]), str(other))
    assert found["next_cursor"] is None
    page = bakery.call("GET", f"/v1/dead-letters/{first['name']}").json()
    assert ([UUID(job["id"]) for job in page["jobs"]], page["signature"]) == (alike, first["signature"])


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (State.FAILED, Reason.INTERNAL_ERROR),
        (State.TIMED_OUT, Reason.TIME_LIMIT),
        (State.BUDGET_EXCEEDED, Reason.COST_CAP),
        (State.OUTPUT_EXCEEDED, Reason.OUTPUT_CAP),
        (State.ESCALATED, Reason.REWORK_EXHAUSTED),
    ],
)
def test_every_end_that_nobody_wanted_is_a_dead_letter(bakery: World, state: State, reason: Reason) -> None:
    die(bakery, state=state, reason=reason)
    (cluster,) = clusters(bakery)["clusters"]
    assert (cluster["jobs"], cluster["reason"]) == (1, reason)


def test_a_job_that_waited_too_long_on_its_queue_is_a_dead_letter_and_an_unjudged_preview_is_none(
    bakery: World,
) -> None:
    waiting, unjudged, cancelled = bakery.submit(**EDIT), bakery.submit(**EDIT), bakery.submit(**EDIT)
    with bakery.ledger.begin() as session:
        end(session, lock_job(session, waiting), State.EXPIRED, reason=Reason.QUEUE_EXPIRED)
        end(session, lock_job(session, unjudged), State.EXPIRED, reason=Reason.APPROVAL_EXPIRED)
        end(session, lock_job(session, cancelled), State.CANCELLED, reason=Reason.CANCELLED)
    (cluster,) = clusters(bakery)["clusters"]
    assert cluster["example"] == str(waiting)


def test_clusters_and_their_jobs_are_paged_by_a_cursor_that_is_checked(bakery: World) -> None:
    for detail, count in (("one", 1), ("two", 2), ("three", 2)):
        for _ in range(count):
            die(bakery, detail)
    seen, cursor = [], None
    for _ in range(3):
        page = clusters(bakery, limit=1, **({"cursor": cursor} if cursor else {}))
        seen += page["clusters"]
        cursor = page["next_cursor"]
    assert [(one["jobs"], one["detail"]) for one in seen] == [(2, "three"), (2, "two"), (1, "one")]
    assert clusters(bakery, limit=1, cursor=cursor) == {"clusters": [], "next_cursor": None}
    name = seen[0]["name"]
    first = bakery.call("GET", f"/v1/dead-letters/{name}", params={"limit": 1}).json()
    rest = bakery.call("GET", f"/v1/dead-letters/{name}", params={"cursor": first["next_cursor"]}).json()
    assert len({job["id"] for job in first["jobs"] + rest["jobs"]}) == 2
    for bad in ("x", "e30", "W10", "%00", "WzEsIDJd", "a" * 2000):
        answer = bakery.call("GET", f"/v1/dead-letters/{name}", params={"cursor": bad})
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "cursor"), bad


def test_a_replay_is_a_new_job_on_the_same_bill_from_today_s_release_by_today_s_rules(
    bakery: World, tmp_path: Path
) -> None:
    dead = die(bakery, tier="agent", callback_url="https://example.com/hook", idempotency_key="k", budget_usd=0.3)
    bakery.site("bakery", {**PAGES, "index.html": HOME.replace(b"Bread", b"Pie")}, tmp_path)
    (verdict,) = order(bakery, "replay", ids=[str(dead)])["jobs"]
    assert (verdict["is_done"], verdict["is_new"], verdict["why_not"]) == (True, True, None)
    old, new = bakery.job(dead), bakery.job(UUID(verdict["replayed_as"]))
    assert (new.parent_id, new.root_id, new.cap_nanousd) == (dead, old.root_id, old.cap_nanousd)
    assert (new.prompt, new.request["callback_url"], new.idempotency_key) == (
        old.prompt,
        "https://example.com/hook",
        None,
    )
    assert (new.state, new.queue, new.start_release_id, new.base_release_id) == ("queued", "agent", None, None)
    assert new.requested_by.startswith(f"key:{bakery.tenant}/")
    seen = bakery.call("GET", f"/v1/jobs/{new.id}").json()
    assert [one["verb"] for one in seen["rounds"]] == [None, "replay"]
    assert clusters(bakery)["clusters"] == []
    assert old.state == "failed"


@pytest.mark.parametrize(("scope", "is_done"), [("tenant_day", True), ("fleet_day", True), ("job", False)])
def test_a_day_that_was_spent_ends_no_bill_and_a_bill_that_was_does(bakery: World, scope: str, is_done: bool) -> None:
    dead = bakery.submit(**EDIT)
    taken = bakery.claim(dead)
    with bakery.ledger.begin() as session:
        job = lock_owned_job(session, taken.attempt)
        record(session, EventKind.LIMIT_HIT, job=job, scope=scope, limit="cost", phase="admit")
        end(session, job, State.BUDGET_EXCEEDED, reason=Reason.COST_CAP)
    (verdict,) = order(bakery, "replay", ids=[str(dead)])["jobs"]
    assert verdict["is_done"] is is_done


def test_a_replay_is_decided_anew_whatever_an_older_policy_decided(bakery: World) -> None:
    dead = die(bakery)
    with bakery.ledger.begin() as session:
        job = session.get_one(Job, dead)
        job.tier, job.queue, job.route = 3, "agent", {**job.route, "tier": 3, "queue": "agent", "stakes": "high"}
    (verdict,) = order(bakery, "replay", ids=[str(dead)])["jobs"]
    new = bakery.job(UUID(verdict["replayed_as"]))
    assert (new.tier, new.queue) == (1, "spec")
    assert new.route["stakes"] == "high", "what was risky once is judged as carefully again"


def test_replaying_a_cluster_twice_or_at_once_makes_each_job_once(bakery: World) -> None:
    dead = [die(bakery, "no luck", prompt=f"Make the header {colour}") for colour in ("red", "blue", "green")]
    (cluster,) = clusters(bakery)["clusters"]
    with ThreadPoolExecutor(4) as pool:
        ids = [str(job_id) for job_id in dead]
        told = list(pool.map(lambda _: order(bakery, "replay", ids=ids)["jobs"], range(4)))
    assert all(one["is_done"] for answer in told for one in answer)
    assert len({one["replayed_as"] for answer in told for one in answer}) == 3
    assert sum(one["is_new"] for answer in told for one in answer) == 3
    answer = bakery.call("POST", "/v1/dead-letters/replay", json={"signature": cluster["name"]})
    assert answer.status_code == 404
    again = order(bakery, "replay", ids=ids)
    assert (again["done"], [one["is_new"] for one in again["jobs"]]) == (3, [False] * 3)


def test_a_cluster_is_replayed_in_bounded_parts_oldest_first_and_is_on_the_audit_trail(bakery: World) -> None:
    dead = [die(bakery, "no luck", prompt=f"Make the header {colour}") for colour in ("red", "blue", "green")]
    (cluster,) = clusters(bakery)["clusters"]
    first = order(bakery, "replay", signature=cluster["signature"], limit=2)
    assert [UUID(one["id"]) for one in first["jobs"]] == dead[:2]
    rest = order(bakery, "replay", signature=cluster["name"])
    assert [UUID(one["id"]) for one in rest["jobs"]] == dead[2:]
    with bakery.ledger.begin() as session:
        rows = session.execute(
            text("SELECT action, actor, detail FROM audit WHERE tenant = :t AND action LIKE '%replayed'"),
            {"t": bakery.tenant},
        ).all()
    assert sorted(action for action, _, _ in rows) == ["dead_letters_replayed", *["job_replayed"] * 3]
    assert all(actor.startswith("key:") for _, actor, _ in rows)


def test_what_a_budget_ended_is_replayed_only_with_more_of_it(bakery: World) -> None:
    dead = die(bakery, state=State.BUDGET_EXCEEDED, reason=Reason.COST_CAP)
    (verdict,) = order(bakery, "replay", ids=[str(dead)])["jobs"]
    assert (verdict["is_done"], "--budget" in verdict["why_not"]) == (False, True)
    (verdict,) = order(bakery, "replay", ids=[str(dead)], budget_usd=3)["jobs"]
    assert verdict["why_not"] == "budget_usd: must not be more than 0.65, what one job may cost here"
    (verdict,) = order(bakery, "replay", ids=[str(dead)], budget_usd=0.2)["jobs"]
    assert bakery.job(UUID(verdict["replayed_as"])).cap_nanousd == 200_000_000


def test_what_cannot_be_replayed_says_why_and_the_rest_is_replayed(bakery: World) -> None:
    good, resumed, running = die(bakery), die(bakery, "else"), bakery.submit(**EDIT)
    rounds = Rounds(bakery.ledger, bakery.policy)
    requester = Requester(tenant=bakery.tenant, source=Source.PYTHON, actor="owner")
    child = rounds.resume(resumed, ResumeOrder(budget_usd=0.1), requester=requester).job
    stranger = bakery.headers(tenant=f"{bakery.tenant}-b")
    foreign = bakery.client.post("/v1/dead-letters/replay", headers=stranger, json={"ids": [str(good)]}).json()["jobs"][
        0
    ]
    assert (foreign["is_done"], foreign["why_not"]) == (False, f"no job {good}")
    told = order(bakery, "replay", ids=[str(one) for one in (resumed, running, uuid4(), good, good)])
    assert [one["is_done"] for one in told["jobs"]] == [False, False, False, True]
    assert str(child.id) in told["jobs"][0]["why_not"]
    assert "queued, which is no dead letter" in told["jobs"][1]["why_not"]
    assert told["done"] == 1


def test_a_replayed_job_that_dies_again_is_a_dead_letter_of_its_own(bakery: World) -> None:
    dead = die(bakery, "no luck")
    (verdict,) = order(bakery, "replay", ids=[str(dead)])["jobs"]
    again = UUID(verdict["replayed_as"])
    taken = bakery.claim(again)
    with bakery.ledger.begin() as session:
        end(
            session,
            lock_owned_job(session, taken.attempt),
            State.FAILED,
            reason=Reason.PROVIDER_ERROR,
            detail="no luck",
        )
    (cluster,) = clusters(bakery)["clusters"]
    assert (cluster["jobs"], cluster["example"]) == (1, str(again))
    assert order(bakery, "replay", signature=cluster["name"])["done"] == 1


def test_a_request_about_unpublished_work_is_replayed_on_that_work_or_not_at_all(bakery: World, tmp_path: Path) -> None:
    offered = bakery.submit(**EDIT)
    release = bakery.offer(offered, {**PAGES, "new.html": HOME})
    revised = bakery.call("POST", f"/v1/jobs/{offered}/revise", json={"text": "Change the heading to 'Pie'"})
    round_two = UUID(revised.json()["id"])
    taken = bakery.claim(round_two)
    with bakery.ledger.begin() as session:
        end(session, lock_owned_job(session, taken.attempt), State.FAILED, reason=Reason.PROVIDER_ERROR)
    replays = Replays(bakery.ledger, bakery.policy)
    requester = Requester(tenant=bakery.tenant, source=Source.PYTHON, actor="owner")
    new = replays.replay(round_two, requester=requester).job
    assert (new.start_release_id, new.result["begun"]["earlier"]) == (release.id, [EDIT["prompt"]])
    taken = bakery.claim(new.id)
    with bakery.ledger.begin() as session:
        end(session, lock_owned_job(session, taken.attempt), State.FAILED, reason=Reason.PROVIDER_ERROR)
    bakery.site("bakery", {**PAGES, "index.html": HOME + b"\n"}, tmp_path)
    (verdict,) = order(bakery, "replay", ids=[str(new.id)])["jobs"]
    assert "another release" in verdict["why_not"]


@pytest.mark.parametrize(("tier", "floor"), [(Tier.AGENT, "agent"), (Tier.PATCH, "patch")])
def test_a_replay_about_unpublished_work_is_on_no_tier_that_cannot_hold_it(
    bakery: World, tier: Tier, floor: str
) -> None:
    offered = bakery.submit(**EDIT)
    bakery.offer(offered, {**PAGES, "package.json": b'{"scripts": {"build": "true"}}', "dist/index.html": HOME})
    with bakery.ledger.begin() as session:
        session.get_one(Job, offered).tier = tier.value
    round_two = UUID(bakery.call("POST", f"/v1/jobs/{offered}/revise", json={"text": EDIT["prompt"]}).json()["id"])
    taken = bakery.claim(round_two)
    with bakery.ledger.begin() as session:
        end(session, lock_owned_job(session, taken.attempt), State.FAILED, reason=Reason.PROVIDER_ERROR)
    (verdict,) = order(bakery, "replay", ids=[str(round_two)])["jobs"]
    replayed = bakery.job(UUID(verdict["replayed_as"]))
    assert (replayed.queue, bakery.job(round_two).queue) == (floor, floor)


def test_dismissed_letters_are_gone_from_the_list_and_can_still_be_replayed(bakery: World) -> None:
    dead = die(bakery)
    fine = bakery.submit(**EDIT)
    told = order(bakery, "dismiss", ids=[str(dead), str(fine)])
    assert [(one["is_done"], one["is_new"]) for one in told["jobs"]] == [(True, True), (False, False)]
    assert clusters(bakery)["clusters"] == []
    assert order(bakery, "dismiss", ids=[str(dead)])["jobs"][0]["is_new"] is False
    assert order(bakery, "replay", ids=[str(dead)])["done"] == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body"),
        ({"ids": [], "signature": None}, "body"),
        ({"ids": [str(uuid4())], "signature": "x"}, "body"),
        ({"ids": ["x"]}, "ids.0"),
        ({"ids": [str(uuid4())] * 201}, "ids"),
        ({"signature": ""}, "signature"),
        ({"signature": "x", "limit": 0}, "limit"),
        ({"signature": "x", "limit": 201}, "limit"),
        ({"signature": "x", "budget_usd": -1}, "budget_usd"),
        ({"signature": "x", "what": 1}, "what"),
        ([], "body"),
    ],
)
def test_an_order_that_breaks_a_rule_is_refused_with_its_field(world: World, body: Any, field: str) -> None:
    answer = world.client.post("/v1/dead-letters/replay", content=json.dumps(body), headers=world.headers())
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field), answer.text


def test_another_tenant_s_dead_letters_do_not_exist(bakery: World) -> None:
    die(bakery, "no luck")
    (cluster,) = clusters(bakery)["clusters"]
    stranger = bakery.headers(tenant=f"{bakery.tenant}-b")
    listed = bakery.client.get("/v1/dead-letters", headers=stranger).json()
    assert listed == {"clusters": [], "next_cursor": None}
    for method, path, body in (
        ("GET", cluster["name"], None),
        ("POST", "replay", {"signature": cluster["name"]}),
        ("POST", "dismiss", {"signature": cluster["signature"]}),
    ):
        answer = bakery.client.request(method, f"/v1/dead-letters/{path}", headers=stranger, json=body)
        assert answer.status_code == 404
        assert "luck" not in answer.text
    assert len(clusters(bakery)["clusters"]) == 1


# ---------------------------------------------------------------- the command line


@pytest.fixture
def run(world: World) -> Run:
    return command_line(world.ledger.engine.url.render_as_string(hide_password=False), "--tenant", world.tenant)


def test_the_command_line_lists_replays_and_dismisses(bakery: World, run: Run) -> None:
    dead = [die(bakery, "no luck 7"), die(bakery, "no luck 8", prompt="Make the header red")]
    shown = run("dead")
    assert (shown.exit_code, "provider_error: no luck <n>" in shown.stdout) == (0, True), shown.output
    (cluster,) = json.loads(run("dead", "--json").stdout)["clusters"]
    assert cluster["name"] in shown.stdout
    listed = run("dead", "--signature", cluster["name"])
    assert all(str(job_id) in listed.stdout for job_id in dead)
    one = run("replay", dead[0])
    assert (one.exit_code, f"{dead[0]}  replayed as" in one.stdout) == (0, True), one.output
    done = run("dismiss", "--signature", cluster["name"], "--json")
    assert [item["id"] for item in json.loads(done.stdout)["jobs"]] == [str(dead[1])]
    assert json.loads(run("dead", "--json").stdout)["clusters"] == []
    assert run("replay", "--signature", cluster["name"]).exit_code == 1
    assert run("replay").exit_code == 2
    assert run("dismiss", uuid4()).exit_code == 1


def test_a_bulk_replay_stops_at_no_full_queue_but_says_for_each_job_when_to_come_back(bakery: World) -> None:
    dead = [die(bakery, "no luck", prompt=f"Make the header {colour}") for colour in ("red", "blue")]
    with bakery.ledger.begin() as session:
        session.execute(
            text(
                "INSERT INTO backlog (queue, tenant, waiting, drained_per_second) VALUES ('spec', :tenant, 1000000, 1)"
                " ON CONFLICT (queue, tenant) DO UPDATE SET waiting = 1000000, counted_at = now()"
            ),
            {"tenant": bakery.tenant},
        )
    told = order(bakery, "replay", ids=[str(job_id) for job_id in dead])
    assert told["done"] == 0
    assert all("try again in" in one["why_not"] for one in told["jobs"])
    assert clusters(bakery)["clusters"][0]["jobs"] == 2, "they are there still"
