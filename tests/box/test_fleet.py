"""The whole product on a machine with an engine: `pointsman up`, and what is left when parts of it die in mid-session.

Everything is real: processes, engine, command line, CLI in the box; only Claude is played. See `fleet.py`.
"""

import gc
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import inet_aton
from uuid import UUID, uuid4

import pytest

from benchmarks.box import acquire_times, answer, bare_session, session_steps
from gateway.fake_provider.config import billed_nanousd, read_log
from routing.jobs import ENDS
from routing.policy.platform import platform_policy
from tests.acceptance.installation import settle
from tests.box.fleet import HOOK_PORT, Fleet, running_fleet
from tests.engine import Listener, TestEngine
from tests.services import wait_until

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(400),
    # The SDK leaves a socket to the garbage collector when the engine behind it was killed.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

KILLS = int(os.environ.get("KILLS", "0"))
"""How many kills at random moments `make chaos` asks for; a few by name are made always."""
SEED = int(os.environ.get("SEED", "5"))
in_chaos = pytest.mark.skipif(not KILLS, reason="`make chaos` asks for it")
"""Every check has half a minute for the likes of it, and no more."""
EDIT = "Add our opening hours to index.html"
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Cafe</title></head>
<body>
<main>
  <h1>Welcome</h1>
  <section id="menu"><h2>Menu</h2><p>Coffee and cake.</p></section>
</main>
</body>
</html>
"""
SWEPT_SECONDS = 60
SESSION_SECONDS = 120
_RESTS = ("awaiting_approval", *sorted(ENDS))


@pytest.fixture(scope="module")
def hook(daemon: TestEngine) -> Listener:
    """Where the owners of jobs are told about their ends."""
    return daemon.listen(HOOK_PORT, says="thanks")


@pytest.fixture(scope="module")
def fleet(daemon: TestEngine, hook: Listener) -> Iterator[Fleet]:
    with running_fleet(daemon) as running:
        yield running
        install, url = running.engine.install, running.daemon
    left = url.open(install=install)
    assert list(left.leftovers()) == []  # `up` clears the engine when it ends
    left.close()
    gc.collect()


@pytest.fixture
def site(fleet: Fleet, tmp_path: Path) -> str:
    """A site of the test's own."""
    (tmp_path / "index.html").write_text(PAGE)
    name = f"cafe-{uuid4().hex[:8]}"
    fleet.run("site", "import", name, str(tmp_path), "--publish")
    return name


def start_session(fleet: Fleet, site: str) -> tuple[UUID, frozenset[str]]:
    """Submit a job and wait until the agent works; returns the job, and the boxes that stand by then."""
    before = frozenset(fleet.slots())
    job_id = fleet.submit(EDIT, site=site, tier="agent", pin=True)
    fleet.wait_for_session(job_id)
    return job_id, before | frozenset(fleet.slots())


def live_release(fleet: Fleet, site: str) -> str:
    [[release]] = fleet.rows("SELECT active_release_id FROM site WHERE name = :name", name=site)
    return str(release)


def end(fleet: Fleet, hook: Listener, job_id: UUID) -> str:
    """Bring a job to its end, and check what holds for every end, whatever was killed before it."""
    if fleet.state(job_id) == "awaiting_approval":
        fleet.run("reject", str(job_id), "--reason", "only a trial")
    state = fleet.state(job_id)
    assert state in ENDS
    ends = "SELECT count(*) FROM event WHERE job_id = :id AND kind = 'state' AND data ->> 'target' = ANY(:ends)"
    assert fleet.rows(ends, id=job_id, ends=sorted(ENDS)) == [(1,)]
    told = wait_until(lambda: calls_about(hook, job_id), seconds=15, what="the owner is told")
    assert len(told) == 1
    assert fleet.rows("SELECT lock_job_id FROM site JOIN job ON site_id = site.id WHERE job.id = :id", id=job_id) == [
        (None,)
    ]
    check_bill(fleet)
    wait_until(lambda: len(fleet.slots()) <= 1, seconds=SWEPT_SECONDS, what="nothing stands but one spare")
    return state


def calls_about(hook: Listener, job_id: UUID) -> list[str]:
    return [call["body"] for call in hook.requests() if str(job_id) in call["body"]]


def check_bill(fleet: Fleet) -> None:
    """No call that the model served is unbilled, or billed for less than what it sent."""
    settled = "SELECT count(*) = 0 FROM call WHERE state = 'reserved'"
    wait_until(lambda: fleet.rows(settled) == [(True,)], seconds=60, what="every call is settled")
    billed = {str(call): cost for call, cost in fleet.rows("SELECT id, cost_nanousd FROM call")}
    prices = platform_policy().prices
    for served in read_log(fleet.request_log):
        assert served.call is not None
        assert billed[served.call] >= billed_nanousd(served, prices)


def wait_until_gone(fleet: Fleet, slots: frozenset[str]) -> None:
    """Nothing is left of what stood when something was killed."""
    wait_until(lambda: slots.isdisjoint(fleet.slots()), seconds=SWEPT_SECONDS, what=f"{set(slots)} are swept")


@pytest.mark.req("H-038", "H-079")
def test_up_runs_a_code_agents_job_to_a_published_release(fleet: Fleet, hook: Listener, site: str) -> None:
    assert fleet.line("tier 3").startswith("on, in sandboxes of unix://")
    before = live_release(fleet, site)
    prompt = "Convert to a multi-page site with shared nav"
    submitted = fleet.cli("submit", prompt, "--site", site, "--tier", "agent", "--pin", "--wait", "--json")
    job_id = UUID(submitted["id"])
    assert (submitted["state"], live_release(fleet, site)) == ("awaiting_approval", before)
    assert submitted["bill"]["spent_nanousd"] == fleet.billed() == fleet.provided() > 0
    fleet.run("approve", str(job_id))
    assert fleet.wait_for_state(job_id, *ENDS, seconds=30) == "published"
    assert live_release(fleet, site) == str(fleet.job(job_id)["release_id"]) != before


def test_the_doctor_finds_nothing_amiss_beside_it(fleet: Fleet) -> None:
    told = fleet.cli("doctor", "--json")
    amiss = {found["name"] for found in told["findings"] if found["verdict"] != "OK"} - {"content store disk"}
    assert amiss == {"broker persistence"}  # an embedded broker keeps nothing, and the ledger has all of it
    names = {found["name"] for found in told["findings"]}
    assert {"ledger", "gateway", "dispatcher", "package registry", "box engine", "box image"} <= names


@in_chaos
def test_the_benchmark_of_boxes_measures_both_starts_and_every_step(fleet: Fleet, tmp_path: Path) -> None:
    with bare_session(fleet.daemon) as bare:
        [sessions], calls = session_steps([fleet], 1, between=bare)
    figures = answer(acquire_times(fleet.daemon, 1), sessions, sessions, bare=calls)
    shown = figures.table()
    assert "acquire to first exec, cold" in shown
    names = ("lock", "snapshot", "provision", "inject", "execute", "extract", "teardown", "scan", "preview", "publish")
    assert [name for name in names if f"step {name} " not in shown] == []
    medians = {row[0]: float(row[1]) for row in figures.rows}
    assert 0 < medians["session outside the CLI"] < medians["session"]
    assert json.loads(figures.write(tmp_path, "box").read_text())["is_good"] == figures.is_good


def test_what_up_starts_listens_for_this_machine_and_for_boxes_alone(fleet: Fleet) -> None:
    outer = as_hex(fleet.engine.outer(has_masquerade=False).host)
    found = fleet.listening()
    assert {address for address, _ in found} == {as_hex("127.0.0.1"), outer}
    ports = {int(fleet.wiring[f"POINTSMAN_BOX__{name}_PORT"]) for name in ("GATEWAY", "MIRROR")}
    assert {port for address, port in found if address == outer} == ports


def as_hex(address: str) -> str:
    """An IPv4 address as the kernel's table of connections writes it."""
    return inet_aton(address)[::-1].hex().upper()


@in_chaos
@pytest.mark.threat("A13")
def test_a_job_whose_worker_is_killed_is_done_again_from_its_lease(fleet: Fleet, hook: Listener, site: str) -> None:
    job_id, slots = start_session(fleet, site)
    fleet.kill(fleet.program("worker-agent"))
    wait_until_gone(fleet, slots)
    fleet.wait_for_state(job_id, *_RESTS, seconds=SESSION_SECONDS)
    assert fleet.attempts(job_id) == ["lost worker_lost", "awaiting_approval done"]
    assert end(fleet, hook, job_id) == "rejected"


@in_chaos
def test_a_session_outlives_its_gateway_and_all_that_was_streamed_is_billed(
    fleet: Fleet, hook: Listener, site: str
) -> None:
    job_id, _ = start_session(fleet, site)
    fleet.kill(fleet.program("gateway"))
    state = fleet.wait_for_state(job_id, *_RESTS, seconds=SESSION_SECONDS)
    assert (state, fleet.attempts(job_id)) == ("awaiting_approval", ["awaiting_approval done"])
    end(fleet, hook, job_id)


@pytest.mark.threat("A13")
def test_a_job_whose_engine_is_killed_ends_and_on_the_swept_engine_one_whose_pool_child_is_killed_is_done_again(
    fleet: Fleet, hook: Listener, site: str
) -> None:
    job_id, slots = start_session(fleet, site)
    kill_engine(fleet)
    wait_until_gone(fleet, slots)
    fleet.wait_for_state(job_id, *_RESTS, seconds=SESSION_SECONDS)
    assert fleet.attempts(job_id) == ["failed box_failed"]
    assert end(fleet, hook, job_id) == "failed"

    job_id, slots = start_session(fleet, site)
    release = live_release(fleet, site)
    fleet.kill(fleet.worker_child())
    wait_until_gone(fleet, slots)
    fleet.wait_for_state(job_id, *_RESTS, seconds=SESSION_SECONDS)
    assert fleet.attempts(job_id) == ["lost worker_lost", "awaiting_approval done"]
    assert end(fleet, hook, job_id) == "rejected"
    assert live_release(fleet, site) == release


def kill_engine(fleet: Fleet) -> None:
    fleet.daemon.kill()
    fleet.daemon.start()


VICTIMS: dict[str, Callable[[Fleet], None]] = {
    "pool child": lambda fleet: fleet.kill(fleet.worker_child()),
    "worker": lambda fleet: fleet.kill(fleet.program("worker-agent")),
    "gateway": lambda fleet: fleet.kill(fleet.program("gateway")),
    "dispatcher": lambda fleet: fleet.kill(fleet.program("dispatcher")),
    "engine": kill_engine,
}
_ALLOWED = frozenset({"awaiting_approval", "box_failed", "agent_failed"})


@in_chaos
@pytest.mark.parametrize("number", range(KILLS))
def test_whatever_dies_whenever_a_job_ends_once_on_a_whole_bill(
    fleet: Fleet, hook: Listener, site: str, number: int
) -> None:
    chosen = random.Random(f"{SEED} {number}")
    victim, seconds = chosen.choice(sorted(VICTIMS)), chosen.uniform(0, 8)
    before = frozenset(fleet.slots())
    job_id = fleet.submit(EDIT, site=site, tier="agent", pin=True)
    fleet.wait_for_state(job_id, "running", seconds=60)
    settle(seconds)
    state, slots = fleet.state(job_id), before | frozenset(fleet.slots())
    VICTIMS[victim](fleet)
    if victim in ("pool child", "worker", "engine"):
        wait_until_gone(fleet, slots)
    fleet.wait_for_state(job_id, *_RESTS, seconds=SESSION_SECONDS)
    [[rest, reason]] = fleet.rows("SELECT state, reason FROM job WHERE id = :id", id=job_id)
    print(f"{victim} killed after {seconds:.1f} s, the job {state}: {fleet.attempts(job_id)}")
    assert (reason or rest) in _ALLOWED
    end(fleet, hook, job_id)
