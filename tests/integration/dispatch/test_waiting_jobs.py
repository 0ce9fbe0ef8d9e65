"""Jobs whose circuit is open: they wait in the ledger with nothing spent on them, and the other circuits flow."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from pydantic import SecretStr
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from gateway.config import GatewayConfig, ProviderConfig
from gateway.fake_provider.config import FakeProviderConfig, billed_nanousd
from gateway.fake_provider.server import running_fake_provider
from ledger.attempts import defer, find_lapsed_attempts, lock_owned_job, recover
from ledger.dispatch_window import release_due
from ledger.job_control import request_cancel
from ledger.jobs import lock_job
from ledger.provider_circuits import circuits, reset_circuit
from ledger.runs.tables import AgentExecution
from ledger.tables import Cap, Job, Release, Site
from producers.local.supervisor import free_port
from producers.use_cases.jobs import describe
from routing.jobs import PAID_REPLIES, Reason
from routing.policy.platform import Policy, platform_policy
from routing.provider_circuit import CircuitState
from routing.queues import QueueName, Tier
from sites.content_store import ContentStore
from sites.disk import Disk
from tests.factories import Shop
from tests.integration.jobs.test_patch_jobs import plain_site
from tests.integration.jobs.test_spec_jobs import Rig as SpecRig
from tests.integration.runs.step_world import StepYard, policy_with_file_remotes
from tests.integration.workers.worker_world import Proxy, soft_limit_after
from tests.played_cli import PlayedMaker
from tests.threads import serve_gateway_in_thread
from workers.attempt import Attempt
from workers.errors import HandBack
from workers.handlers.agent import edit_with_agent
from workers.handlers.answer import answer_question
from workers.handlers.spec import edit_spec
from workers.lifecycle import Handler, run_attempt
from workers.lifecycle import Resources as WorkerResources
from workers.outcomes import Outcome
from workers.runs.step import run_step

HAIKU, SONNET, OPUS = "claude-haiku-4-5-20251001", "claude-sonnet-4-6", "claude-opus-4-6"
EDIT = "Add an FAQ with three questions about delivery"
HANDLERS: dict[str, Handler] = {"spec": edit_spec, "answer": answer_question, "agent": edit_with_agent}
FAULTS = """
rules:
  - name: {name}
    when: {{model: "{model}"}}
    times: {times}
    fault: {{kind: status, status: {status}{after}}}
"""


def policy_of() -> Policy:
    """Questions go to another model than edits; two failures park a circuit, for longer than an attempt waits."""
    policy = policy_with_file_remotes()
    answer = policy.calls["answer"].model_copy(update={"model": OPUS})
    limits = policy.queues[QueueName.ANSWER].model_copy(update={"llm_usd": 0.5})
    rules = policy.circuits.model_copy(update={"failures": 1, "pause_seconds": 20.0})
    queues = {**policy.queues, QueueName.ANSWER: limits}
    return policy.model_copy(update={"calls": {**policy.calls, "answer": answer}, "circuits": rules, "queues": queues})


QUIET = "rules: [{name: none, when: {model: none}, say: [{text: x}]}]"
"""Nothing but what ships with the product."""


@dataclass
class Rig(SpecRig):
    """One installation whose provider can be in trouble."""

    policy: Policy | None = None

    def work(self, job_id: UUID) -> Job:
        return self.run(job_id, HANDLERS[self.shop.job(job_id).queue])

    def later(self) -> None:
        """Let the time pass that every circuit is open and every job is held."""
        self.shop.execute("UPDATE provider_circuit SET open_until = clock_timestamp() WHERE open_until IS NOT NULL")
        self.shop.execute("UPDATE job SET held_until = clock_timestamp() WHERE held_until IS NOT NULL")
        with self.shop.ledger.begin() as session:
            release_due(session)

    def attempts(self, job_id: UUID) -> list[tuple[str, str]]:
        rows = self.shop.rows("SELECT outcome, reason FROM attempt WHERE job_id = :id ORDER BY number", id=job_id)
        return [(row.outcome, row.reason) for row in rows]

    def circuit(self, model: str) -> CircuitState:
        with self.shop.ledger.begin() as session:
            return next((view.state for view in circuits(session) if view.model == model), CircuitState.CLOSED)

    def check_books(self) -> None:
        """No cap was passed, nothing is left reserved, and the provider's log says what the bills say."""
        with self.shop.ledger.begin() as session:
            for cap in session.scalars(select(Cap)).all():
                assert (cap.reserved_nanousd, cap.spent_nanousd <= cap.limit_nanousd) == (0, True)
        billed = sum(billed_nanousd(call, platform_policy().prices) for call in self.calls())
        assert billed == self.shop.scalar("SELECT coalesce(sum(cost_nanousd), 0) FROM call")


@contextmanager
def installation(shop: Shop, home: Path, *, scenario: str = QUIET, port: int = 0, is_up: bool = True) -> Iterator[Rig]:
    """An installation whose provider plays a scenario, or is not there yet."""
    (home / "mine.yaml").write_text(scenario)
    log = home / "requests.jsonl"
    policy = policy_of()
    with ExitStack() as stack:
        url = f"http://127.0.0.1:{port}"
        if is_up:
            url = stack.enter_context(running_fake_provider(fake_provider(home, port=port))).url
        provider = ProviderConfig(base_url=url, api_key=SecretStr("k" * 32), label="fake", day_usd=100)
        gateway = GatewayConfig(providers={"fake": provider}, pepper=SecretStr("p" * 32))
        gateway_url = stack.enter_context(serve_gateway_in_thread(gateway, shop.url, policy))
        shop.policy = policy
        shop.tenant(provider="fake")
        resources = WorkerResources(
            ledger=shop.ledger,
            content_store=ContentStore(home / "content-store"),
            policy=policy,
            gateway_url=gateway_url,
            worker="w1",
        )
        yield Rig(shop, resources, log, policy=policy)


def fake_provider(home: Path, *, port: int = 0) -> FakeProviderConfig:
    return FakeProviderConfig(speed="max", scenarios=(home / "mine.yaml",), log=home / "requests.jsonl", port=port)


def faults(model: str, status: int, *, times: int, after: int | None = None) -> str:
    named = "" if after is None else f", retry_after_seconds: {after}"
    return FAULTS.format(name="busy", model=model, status=status, times=times, after=named)


@pytest.mark.parametrize(("status", "after", "reason"), [(429, 40, "rate_limited"), (529, None, "overloaded")])
def test_jobs_of_a_busy_lane_wait_and_end_well_and_those_of_another_flow_meanwhile(
    shop: Shop, tmp_path: Path, status: int, after: int | None, reason: str
) -> None:
    with installation(shop, tmp_path, scenario=faults(HAIKU, status, times=2, after=after)) as rig:
        site, other = rig.site(), rig.site("florist")
        first = rig.shop.accept(prompt=EDIT, site_id=site)
        second = rig.shop.accept(prompt=EDIT, site_id=other)
        for job_id in (first, second):
            job = rig.work(job_id)
            assert (job.state, job.held_for, job.lost_attempts, job.ended_at) == ("queued", "provider", 0, None)
            assert rig.attempts(job_id) == [("deferred", "provider_busy")]
        held = rig.shop.scalar(
            "SELECT min(extract(epoch FROM held_until - now())) FROM job WHERE held_for = 'provider'"
        )
        assert held >= (after or 20) - 15
        assert len(rig.calls()) == 1, "the second job's call never reached the provider"
        assert rig.circuit(HAIKU) is CircuitState.OPEN

        question = rig.shop.accept(prompt="What is on the page?", tier=None, site_id=site)
        assert rig.work(question).state == "answered", "another model's circuit is closed, at the same site too"
        direct = rig.shop.accept(prompt="Change the hero heading to 'Bread since 1932'", site_id=site)
        assert rig.work(direct).state == "awaiting_approval", "what needs no model waits for none"

        rig.later()
        assert rig.work(second).held_for == "provider", "the test failed: it is open again"
        rig.later()
        assert rig.work(second).state == "awaiting_approval"
        assert rig.circuit(HAIKU) is CircuitState.CLOSED
        assert [outcome for outcome, _ in rig.attempts(second)] == ["deferred", "deferred", "awaiting_approval"]
        assert rig.shop.job(second).lost_attempts == 0
        assert reason in {event["reason"] for event in _events(rig, "circuit")}
        rig.check_books()


@pytest.mark.parametrize(
    "fault", ["{kind: cut, after_characters: 20}", "{kind: status, status: 500, after_characters: 20}"]
)
def test_a_reply_that_breaks_off_in_the_middle_waits_as_one_that_never_began(
    shop: Shop, tmp_path: Path, fault: str
) -> None:
    broken = f'rules: [{{name: broken, when: {{model: "{HAIKU}"}}, times: 1, fault: {fault}}}]'
    with installation(shop, tmp_path, scenario=broken) as rig:
        job_id = rig.shop.accept(prompt=EDIT, site_id=rig.site())
        assert (rig.work(job_id).state, rig.attempts(job_id)) == ("queued", [("deferred", "provider_busy")])
        rig.later()
        assert rig.work(job_id).state == "awaiting_approval"
        assert rig.shop.scalar("SELECT sum(reserved_nanousd) FROM cap") == 0


def _events(rig: Rig, kind: str) -> list[dict[str, Any]]:
    return [row.data for row in rig.shop.rows("SELECT data FROM event WHERE kind = :kind ORDER BY id", kind=kind)]


def test_jobs_wait_for_a_provider_that_refuses_connections(shop: Shop, tmp_path: Path) -> None:
    port = free_port()
    with installation(shop, tmp_path, port=port, is_up=False) as rig:
        job_id = rig.shop.accept(prompt=EDIT, site_id=rig.site())
        assert rig.work(job_id).held_for == "provider"
        assert rig.shop.scalar("SELECT sum(cost_nanousd) FROM call") == 0
        with running_fake_provider(fake_provider(tmp_path, port=port)):
            rig.later()
            assert rig.work(job_id).state == "awaiting_approval"
        rig.check_books()


def test_jobs_wait_for_a_gateway_that_is_away(shop: Shop, tmp_path: Path) -> None:
    with installation(shop, tmp_path) as rig:
        there = rig.resources
        job_id = rig.shop.accept(prompt=EDIT, site_id=rig.site())
        rig.resources = replace(there, gateway_url=f"http://127.0.0.1:{free_port()}")
        job = rig.work(job_id)
        assert (job.state, job.held_for, rig.attempts(job_id)) == (
            "queued",
            "provider",
            [("deferred", "gateway_unreachable")],
        )
        rig.resources = there
        rig.later()
        assert rig.work(job_id).state == "awaiting_approval"


def test_a_gateway_that_stands_still_until_the_time_is_up_is_away_and_not_slow(shop: Shop, tmp_path: Path) -> None:
    with installation(shop, tmp_path) as rig:
        there = rig.resources
        proxy = Proxy(urlsplit(there.gateway_url).port or 0)
        proxy.freeze()
        job_id = rig.shop.accept(prompt=EDIT, site_id=rig.site())
        rig.resources = replace(there, gateway_url=proxy.url.replace("redis:", "http:").removesuffix("/0"))
        with soft_limit_after(1.0):
            job = rig.work(job_id)
        proxy.close()
        assert (job.state, rig.attempts(job_id)) == ("queued", [("deferred", "gateway_unreachable")])
        rig.resources = there
        rig.later()
        assert rig.work(job_id).state == "awaiting_approval"
        rig.check_books()


class SmallDisk(Disk):
    """Has room for a file, but not for a release."""

    def free_bytes(self, path: Path) -> int:
        return 100_000


class FullDisk(Disk):
    """Refuses to write once so many files were written, as long as it is full."""

    def __init__(self, *, takes: int) -> None:
        self.takes = takes
        self.is_full = True

    def write(self, path: Path, data: bytes) -> None:
        if self.is_full and self.takes == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.takes -= self.is_full
        super().write(path, data)


def with_disk(rig: Rig, disk: Disk) -> None:
    rig.resources = replace(rig.resources, content_store=ContentStore(rig.resources.content_store.root, disk=disk))


@pytest.mark.parametrize("disk", [FullDisk(takes=0), SmallDisk()])
def test_no_model_is_paid_while_the_content_store_is_full(shop: Shop, tmp_path: Path, disk: Disk) -> None:
    with installation(shop, tmp_path) as rig:
        job_id, question = rig.shop.accept(prompt=EDIT, site_id=rig.site()), rig.shop.accept(prompt="Why?", tier=None)
        with_disk(rig, disk)
        for _ in range(2):
            assert (rig.work(job_id).held_for, rig.attempts(job_id)[-1]) == (
                "time",
                ("deferred", "storage_unavailable"),
            )
            rig.later()
        assert rig.calls() == []
        assert rig.work(question).state == "answered", "what stores nothing goes on"
        with_disk(rig, Disk())
        assert rig.work(job_id).state == "awaiting_approval"


def test_an_answer_that_was_paid_for_is_not_bought_again_when_the_disk_fills_up_meanwhile(
    shop: Shop, tmp_path: Path
) -> None:
    with installation(shop, tmp_path) as rig:
        site = rig.site()
        job_id = rig.shop.accept(prompt=EDIT, site_id=site)
        disk = FullDisk(takes=1)
        with_disk(rig, disk)
        for _ in range(2):
            job = rig.work(job_id)
            assert (job.state, rig.attempts(job_id)[-1]) == ("queued", ("deferred_kept", "storage_unavailable"))
            row: Site = rig.shop.find(Site, site)
            assert row.lock_job_id == job_id, "another release would make the kept answer worthless"
            with rig.shop.ledger.begin() as session:
                assert describe(session, job).result == {}
            rig.later()
            disk.takes = 1
        disk.is_full = False
        job = rig.work(job_id)
        assert (job.state, len(rig.calls())) == ("awaiting_approval", 1)
        assert PAID_REPLIES not in job.result
        assert rig.shop.scalar("SELECT coalesce(sum((data->>'wasted_nanousd')::bigint), 0) FROM event") == 0
        rig.check_books()


@pytest.mark.parametrize("error", [HandBack(), OperationalError("SELECT 1", {}, Exception("server closed"))])
def test_an_answer_that_was_paid_for_outlives_a_stopped_worker_and_a_ledger_that_goes_away(
    shop: Shop, tmp_path: Path, error: BaseException
) -> None:
    def pay_and_stop(attempt: Attempt) -> Outcome:
        edit_spec(attempt)
        raise error

    with installation(shop, tmp_path) as rig:
        job_id = rig.shop.accept(prompt=EDIT, site_id=rig.site())
        rig.run(job_id, pay_and_stop)
        with rig.shop.ledger.begin() as session:
            recover(session, find_lapsed_attempts(session)[0], max_lost=1)
        assert (rig.work(job_id).state, len(rig.calls())) == ("awaiting_approval", 1)


def test_a_job_that_ends_while_its_paid_answer_is_kept_forgets_it(shop: Shop, tmp_path: Path) -> None:
    with installation(shop, tmp_path) as rig:
        job_id = rig.shop.accept(prompt=EDIT, site_id=rig.site())
        with_disk(rig, FullDisk(takes=1))
        assert PAID_REPLIES in rig.work(job_id).result
        with rig.shop.ledger.begin() as session:
            request_cancel(session, lock_job(session, job_id), actor="ann")
        assert rig.shop.job(job_id).result == {}


def test_a_job_whose_disk_is_full_waits_for_a_time_and_for_no_longer_than_for_a_lane(shop: Shop) -> None:
    job_id = shop.accept(tier=None)
    rules = shop.policy.circuits.model_copy(update={"pause_seconds": 15.0, "longest_wait_seconds": 90.0})

    def park_once() -> float | None:
        claimed = shop.claim(job_id)
        with shop.ledger.begin() as session:
            job = lock_owned_job(session, claimed.attempt)
            return defer(session, job, asked=None, reason=Reason.STORAGE_UNAVAILABLE, detail="full", circuits=rules)

    given = []
    while (pause := park_once()) is not None:
        given.append(pause)
        assert (shop.job(job_id).held_for, shop.job(job_id).state) == ("time", "queued")
        assert len(given) < 50, "it waits without an end"
        shop.execute("UPDATE event SET at = at - make_interval(secs => :s)", s=pause)
        shop.execute("UPDATE job SET held_until = clock_timestamp()")
        with shop.ledger.begin() as session:
            release_due(session)
    assert given[1] > given[0]
    assert sum(given) == pytest.approx(rules.longest_wait_seconds, abs=5)


def test_a_job_that_has_waited_for_an_hour_ends_and_frees_its_site(shop: Shop, tmp_path: Path) -> None:
    with installation(shop, tmp_path, scenario=faults(HAIKU, 529, times=9)) as rig:
        site = rig.site()
        job_id = rig.shop.accept(prompt=EDIT, site_id=site)
        rig.work(job_id)
        waited = """
            UPDATE event SET data = data || jsonb_build_object('held_seconds', :seconds), at = at - interval '1 hour'
             WHERE id = (SELECT max(id) FROM event WHERE data ->> 'held_for' = 'provider')"""
        rig.shop.execute(waited, seconds=3000)
        rig.later()
        assert rig.work(job_id).state == "queued"
        rig.shop.execute(waited, seconds=600)
        rig.later()
        job = rig.work(job_id)
        assert (job.state, job.reason) == ("failed", "provider_busy")
        assert "waited as long as it may" in str(job.detail)
        row: Site = rig.shop.find(Site, site)
        assert row.lock_job_id is None
        rig.check_books()


def test_the_time_that_a_job_stood_in_its_queue_after_its_pause_does_not_count_as_a_wait_for_its_lane(
    shop: Shop, tmp_path: Path
) -> None:
    with installation(shop, tmp_path, scenario=faults(HAIKU, 529, times=2)) as rig:
        job_id = rig.shop.accept(prompt=EDIT, site_id=rig.site())
        for _ in range(2):
            assert rig.work(job_id).held_for == "provider"
            rig.shop.execute("UPDATE event SET at = at - interval '2 hours'")
            rig.shop.execute("UPDATE attempt SET ended_at = ended_at - interval '2 hours' WHERE ended_at IS NOT NULL")
            rig.later()
        assert rig.work(job_id).state == "awaiting_approval"
        rig.check_books()


def test_a_deferred_edit_gives_up_its_site_and_begins_from_what_the_site_shows_then(shop: Shop, tmp_path: Path) -> None:
    with installation(shop, tmp_path, scenario=faults(HAIKU, 529, times=1)) as rig:
        site = rig.site()
        job_id = rig.shop.accept(prompt=EDIT, site_id=site)
        job = rig.work(job_id)
        row: Site = rig.shop.find(Site, site)
        assert (row.lock_job_id, job.base_release_id) == (None, None)
        newer = rig.shop.show(site).id
        rig.later()
        assert rig.work(job_id).base_release_id == newer


AGENT = """
init()
if pathlib.Path("second.txt").exists():
    [conversation] = [word.partition("=")[2] for word in sys.argv if word.startswith("--resume=")]
    assert "second.txt" in pathlib.Path(conversation).read_text() and "multi-page" not in prompt, prompt
    result("I finished it.")
else:
    write("second.txt", "half of the work")
    status, body = call()
    result(is_error=True, text=f"API Error {status}")
"""


def test_an_agent_whose_circuit_is_open_goes_on_from_the_files_it_had_written(shop: Shop, tmp_path: Path) -> None:
    with installation(shop, tmp_path, scenario=faults(SONNET, 529, times=1)) as rig:
        port = urlsplit(rig.resources.gateway_url).port
        assert port is not None
        programs = tmp_path / "programs"
        programs.mkdir()
        maker = PlayedMaker(programs, gateway_port=port)
        maker.program("claude", AGENT)
        rig.resources = replace(rig.resources, boxes=maker)
        files = tmp_path / "files"
        files.mkdir()
        site = plain_site(rig, files)
        job_id = rig.shop.accept(prompt="Convert to a multi-page site", site_id=site, tier=Tier.AGENT)
        job = rig.work(job_id)
        assert (job.state, job.held_for, rig.attempts(job_id)) == (
            "queued",
            "provider",
            [("deferred_kept", "provider_busy")],
        )
        assert rig.files(job.start_release_id)["second.txt"] == b"half of the work"
        row: Site = rig.shop.find(Site, site)
        assert row.lock_job_id == job_id, "another release would make the kept work worthless"

        rig.shop.execute("UPDATE job SET held_until = clock_timestamp() WHERE held_until IS NOT NULL")
        with rig.shop.ledger.begin() as session:
            release_due(session)
        boxes = len(maker.boxes)
        assert rig.work(job_id).held_for == "provider"
        assert len(maker.boxes) == boxes, "no box is made for a circuit that is open"

        rig.later()
        done = rig.work(job_id)
        assert (done.state, done.detail) == ("awaiting_approval", None)
        release: Release = rig.shop.find(Release, done.release_id)
        assert "second.txt" in release.manifest["files"]
        assert rig.shop.scalar("SELECT coalesce(sum((data->>'wasted_nanousd')::bigint), 0) FROM event") == 0


def test_a_deferred_job_is_cancelled_at_once(shop: Shop, tmp_path: Path) -> None:
    with installation(shop, tmp_path, scenario=faults(HAIKU, 529, times=9)) as rig:
        job_id = rig.shop.accept(prompt=EDIT, site_id=rig.site())
        rig.work(job_id)
        with rig.shop.ledger.begin() as session:
            request_cancel(session, lock_job(session, job_id), actor="ann")
        job = rig.shop.job(job_id)
        assert (job.state, job.held_for, job.held_until) == ("cancelled", None, None)
        rig.later()
        assert rig.run(job_id).state == "cancelled"


def test_an_operator_opens_a_lane_and_its_jobs_go_on_at_once(shop: Shop, tmp_path: Path) -> None:
    with installation(shop, tmp_path, scenario=faults(HAIKU, 429, times=1, after=500)) as rig:
        job_id = rig.shop.accept(prompt=EDIT, site_id=rig.site())
        rig.work(job_id)
        with rig.shop.ledger.begin() as session:
            assert release_due(session) == []
            assert reset_circuit(session, "fake", HAIKU)
            assert not reset_circuit(session, "fake", "unknown")
        with rig.shop.ledger.begin() as session:
            assert release_due(session) == [job_id]
        assert rig.work(job_id).state == "awaiting_approval"


def test_a_step_of_a_run_that_is_deferred_has_not_failed(shop: Shop, tmp_path: Path) -> None:
    with installation(shop, tmp_path, scenario=faults(SONNET, 529, times=1)) as rig:
        rig.resources = replace(rig.resources, runs=StepYard.runs_config(tmp_path))
        yard = StepYard(shop, rig.resources, tmp_path)
        done = yard.do("research", "Find out what to build")
        assert (done.job.state, done.job.held_for) == ("queued", "provider")
        assert (done.execution.status, done.execution.settled_at) == ("queued", None)
        rig.later()
        run_attempt(shop.message(done.job.id), QueueName.STEPS, run_step, rig.resources)
        execution: AgentExecution = shop.find(AgentExecution, done.job.id)
        assert execution.attempt == 1
        assert execution.settled_at is not None
        assert shop.job(done.job.id).reason != "provider_busy"
