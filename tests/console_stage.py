"""A console with something on every page: real rows on a real ledger, real releases, and two servers for a browser.

What workers, agents and a gateway would do is done here, so that it takes seconds and looks the same each time. It is
what the console's pictures and its tests in a browser are made from.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Page
from sqlmodel import Session

from ledger.attempts import lock_owned_job
from ledger.audit import seal
from ledger.dispatch_window import pause_queue
from ledger.jobs import close_attempt, end, find_job
from ledger.operations.leaders import lead
from ledger.operations.workers import WorkerStatus, record_heartbeat
from ledger.releases import active_release, find_site
from ledger.store import Ledger, create_ledger_engine
from ledger.tables import Cap
from producers.local.supervisor import free_port
from routing.jobs import Reason, State
from routing.queues import QUEUES, QueueName
from sites.releases import manifest_of
from tests.factories import Shop
from tests.integration.api.http_world import AUDIT_KEY, World, open_world
from tests.integration.runs.run_world import BUILD, Yard
from tests.services import Postgres, wait_until

TENANT = "acme"
SITES = Path(__file__).parents[1] / "producers" / "evaluation" / "sites"
LONG = "Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetz" * 2
"""A word that no line breaks by itself."""
WORKERS = (
    ("worker-edits", 8, ("answer", "spec", "patch")),
    ("worker-quick", 4, ("intake", "tools", "control")),
    ("worker-agent", 2, ("agent", "steps")),
)
QUESTIONS = ("Which pages have no description?", "How many words are on the menu page?", "Is there a contact form?")


@dataclass(frozen=True)
class Stage:
    """What stands on it, by what pages call it."""

    url: str
    world: World
    yard: Yard
    offered: UUID
    """Waits for approval."""
    published: UUID
    asking: UUID
    over_budget: UUID
    running: UUID
    waiting: UUID
    run: UUID
    """At an open gate."""

    def key(self, *scopes: str) -> str:
        """Return a new API key; of all scopes when none are named."""
        return self.world.key(*scopes)

    @property
    def pages(self) -> dict[str, str]:
        """The console's pages by a name."""
        return {
            "fleet": "/",
            "jobs": "/jobs",
            "job": f"/jobs/{self.offered}",
            "asking": f"/jobs/{self.asking}",
            "over": f"/jobs/{self.over_budget}",
            "running": f"/jobs/{self.running}",
            "why": f"/jobs/{self.offered}/why",
            "runs": "/runs",
            "run": f"/runs/{self.run}",
            "sites": "/sites",
            "site": "/sites/restaurant",
            "dead": "/dead",
            "limits": "/limits",
            "audit": "/audit",
            "people": "/people",
            "missing": "/jobs/00000000-0000-0000-0000-000000000000",
        }


def log_in(page: Page, stage: Stage) -> None:
    """Log in with a key of all scopes."""
    page.goto(f"{stage.url}/console/login")
    page.get_by_label("API key").fill(stage.key())
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/console/")


@contextmanager
def open_stage(directory: Path) -> Iterator[Stage]:
    """Serve a console with something on every page, from servers of its own."""
    with Postgres() as server, server.database() as url:
        ledger = Ledger(create_ledger_engine(url, pool_size=8))
        console_port, pages_port = free_port(), free_port()
        urls = {"console_url": f"http://127.0.0.1:{console_port}", "pages_url": f"http://127.0.0.1:{pages_port}"}
        with (
            open_world(ledger, directory / "content-store", tenant=TENANT, **urls) as world,
            _serve(world.app, console_port),
            _serve(world.pages_app, pages_port),
        ):
            yield _furnish(urls["console_url"], world, Shop(ledger, url=url), directory)
        ledger.close()


@contextmanager
def _serve(app: FastAPI, port: int) -> Iterator[None]:
    server = uvicorn.Server(uvicorn.Config(app, port=port, lifespan="off", log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started, seconds=20, what="the console's server is up")
    yield
    if hasattr(app.state, "stopping"):
        app.state.resources.streams.stop()
    server.should_exit = True
    thread.join(20)


def _furnish(url: str, world: World, shop: Shop, directory: Path) -> Stage:
    with world.ledger.begin() as session:
        lead(session, "dispatcher", "stage", seconds=86_400)
        for name, slots, queues in WORKERS:
            record_heartbeat(
                session, WorkerStatus(id=f"{name}@host-1", host="host-1", pid=1, queues=queues, slots=slots)
            )
    yard = Yard(shop, directory)
    for name in ("restaurant", "guesthouse", "photographer", "saas", "lawfirm"):
        world.resources.sites.import_site(TENANT, name, SITES / name)
    published = _edit(world, yard, "restaurant", "Change the hero heading to 'Book a table'", to="Book a table")
    _approve(world, published)
    world.publish(published)
    offered = _edit(
        world, yard, "restaurant", "Change the hero heading to 'Sunday lunch, slowly'", to="Sunday lunch, slowly"
    )
    _ended(world, yard)
    _failed(world, shop)
    over_budget = _spent(world, yard)
    asking = world.submit(prompt="Make the headline larger and the button green")
    _open(world, QueueName.CONTROL, QueueName.STEPS)
    run = _at_gate(yard)
    yard.play(yard.submit("Fix the broken header"))
    world.submit(prompt=f"Add the words {LONG} to the footer", site="lawfirm")
    waiting = world.submit(prompt="Add a short FAQ about opening hours", site="guesthouse")
    running = world.submit(prompt="Add a gallery of six photographs to the page", site="photographer", tier="patch")
    claimed = world.claim(running)
    yard.spend(claimed, tokens=900)
    _past(shop, running=running)
    shop.execute("UPDATE worker SET seen_at = now() + interval '1 hour'")
    shop.execute("UPDATE attempt SET worker = 'worker-edits@host-1' WHERE ended_at IS NULL")
    _open(world, *(queue for queue in QUEUES if queue != QueueName.AGENT))
    with world.ledger.begin() as session:
        seal(session, signing_key=AUDIT_KEY)
    return Stage(url, world, yard, offered, published, asking, over_budget, running, waiting, run)


def _open(world: World, *queues: QueueName) -> None:
    with world.ledger.begin() as session:
        for queue in queues:
            pause_queue(session, queue, is_paused=False)


def _edit(world: World, yard: Yard, site: str, prompt: str, *, to: str) -> UUID:
    """Do an edit's work: another heading, with a model call on the bill."""
    job_id = world.submit(prompt=prompt, site=site, tier="patch")
    with world.ledger.begin() as session:
        active = active_release(session, find_site(session, TENANT, site))
        assert active is not None
    files = dict(world.content_store.read_tree(manifest_of(active)))
    home = files["index.html"].decode()
    start = home.index(">", home.index("<h1")) + 1
    files["index.html"] = (home[:start] + to + home[home.index("</h1>") :]).encode()
    world.offer(job_id, files, work=lambda claimed: yard.spend(claimed, tokens=1_400))
    with world.ledger.begin() as session:
        close_attempt(session, find_job(session, job_id), outcome=State.AWAITING_APPROVAL.value, reason=Reason.DONE)
    return job_id


def _approve(world: World, job_id: UUID) -> None:
    assert world.call("POST", f"/v1/jobs/{job_id}/approve", json={}).status_code == 200


def _ended(world: World, yard: Yard) -> None:
    for number in range(26):
        job_id = world.submit(prompt=QUESTIONS[number % len(QUESTIONS)], site="saas")
        _finish(world, yard, job_id, State.ANSWERED, reason=Reason.DONE, tokens=60 + 10 * number)


def _finish(world: World, yard: Yard, job_id: UUID, state: State, *, reason: Reason, tokens: int) -> None:
    claimed = world.claim(job_id)
    yard.spend(claimed, tokens=tokens)
    with world.ledger.begin() as session:
        job = lock_owned_job(session, claimed.attempt)
        close_attempt(session, job, outcome=state.value, reason=reason)
        end(session, job, state, reason=reason, result={"answer": "There are two: the menu and the imprint."})


def _failed(world: World, shop: Shop) -> None:
    """Let jobs fail for two reasons, each in words of its own, so that no debate about them begins."""
    for word in ("breakfast", "lunch", "dinner", "wine", "cheese", "bread", "water"):
        job_id = world.submit(prompt=f"What does the page about {word} say on allergens?", site="saas")
        detail = f"the provider answered 529 for 60 s while it was asked about {word}"
        world.finish(job_id, State.FAILED, reason=Reason.PROVIDER_ERROR, detail=detail)
    for word in ("single", "double", "family"):
        job_id = world.submit(
            prompt=f"Put the prices of the {word} rooms into a table", site="guesthouse", tier="patch"
        )
        detail = f'the change matches no place of rooms/index.html: "<td>{word} from 120 EUR"'
        world.finish(job_id, State.FAILED, reason=Reason.PATCH_INVALID, detail=detail)
    for reason in (Reason.PROVIDER_ERROR, Reason.PATCH_INVALID):
        shop.execute(
            "UPDATE job SET failure_signature = (SELECT min(failure_signature) FROM job WHERE reason = :reason)"
            " WHERE reason = :reason AND failure_signature IS NOT NULL",
            reason=reason.value,
        )


def _spent(world: World, yard: Yard) -> UUID:
    job_id = world.submit(prompt="Rewrite every page in the tone of a letter", site="lawfirm", tier="patch")
    claimed = world.claim(job_id)
    yard.spend(claimed, tokens=9_000)
    with world.ledger.begin() as session:
        job = lock_owned_job(session, claimed.attempt)
        detail = "the next call would have cost more than was left of this job's 0.10 USD"
        end(session, job, State.BUDGET_EXCEEDED, reason=Reason.COST_CAP, detail=detail)
    return job_id


def _at_gate(yard: Yard) -> UUID:
    yard.team.plan = BUILD
    run_id = yard.submit("Add a page with our opening hours", priority="P0")
    yard.settle()
    return run_id


def _past(shop: Shop, *, running: UUID) -> None:
    """Give what has ended a past of three hours, and the days before it a bill."""
    chance = random.Random(7)
    ended = shop.rows("SELECT id FROM job WHERE ended_at IS NOT NULL AND queue <> 'steps'")
    for (job_id,) in ended:
        back = chance.uniform(0, 10_000) ** 0.5 * 100
        shop.execute(
            "UPDATE job SET created_at = created_at - make_interval(secs => :back + 10),"
            " ended_at = ended_at - make_interval(secs => :back) WHERE id = :id",
            back=back,
            id=job_id,
        )
        shop.execute(
            "UPDATE attempt SET started_at = started_at - make_interval(secs => :back + :took),"
            " ended_at = ended_at - make_interval(secs => :back) WHERE job_id = :id",
            back=back,
            took=chance.uniform(1, 9),
            id=job_id,
        )
    shop.execute(
        "UPDATE attempt SET lease_until = now() + interval '1 hour', started_at = started_at - interval '21 s'"
        " WHERE job_id = :id",
        id=running,
    )
    with shop.ledger.begin() as session:
        for back in range(1, 14):
            _day(session, shop, back, round(chance.uniform(0.8, 6.0) * 1e9))


def _day(session: Session, shop: Shop, back: int, spent: int) -> None:
    day = shop.scalar("SELECT ((now() AT TIME ZONE 'UTC')::date - CAST(:back AS int))::text", back=back)
    for scope, key, share in (("tenant_day", f"{TENANT}/{day}", 1.0), ("fleet_day", day, 1.6)):
        session.add(Cap(scope=scope, key=key, limit_nanousd=20_000_000_000, spent_nanousd=round(share * spent)))
