"""What is left on an engine when workers, boxes or the engine itself die: nothing, and nobody else loses anything."""

import gc
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from docker.errors import NotFound

from sandbox.box import Box
from sandbox.docker import recipe
from sandbox.docker.box import DockerBox, DockerMaker
from sandbox.docker.engine import Engine, is_outer_network
from sandbox.docker.recipe import Slot
from sandbox.errors import BoxLostError, SandboxStartupError, SandboxUnavailableError
from sandbox.execution import Clocks, Ending
from sandbox.pool import Pool, Reaper, build_maker, build_pool, check_boxes
from tests.acceptance.installation import settle
from tests.engine import TestEngine
from tests.services import wait_until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

CLOCKS = Clocks(soft_seconds=60, hard_seconds=70, grace_seconds=2)
ROOT = Path(__file__).parents[2]


def standing(engine: Engine) -> Counter[str]:
    """What an installation has on the engine, but for its outer network."""
    return Counter(found.sort for found in engine.leftovers() if not is_outer_network(found))


@pytest.fixture
def worker(daemon: TestEngine, engine: Engine) -> Iterator[subprocess.Popen[str]]:
    """A worker process of the same installation, with one box at work and one spare."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.box.worker", daemon.url, engine.install],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        yield process
        process.kill()


@pytest.mark.threat("A13")
def test_a_killed_worker_leaves_nothing_after_the_next_sweep_and_the_living_keep_theirs(
    daemon: TestEngine, engine: Engine, maker: DockerMaker, worker: subprocess.Popen[str]
) -> None:
    own = maker.create()
    neighbour = daemon.open(install="other")
    others = build_maker(daemon.config(install="other"), neighbour).create()
    try:
        assert standing(engine) == {"container": 6, "network": 3, "volume": 3}
        assert Reaper(engine).sweep().total == 0

        worker.send_signal(signal.SIGKILL)
        worker.wait()
        began = time.monotonic()
        swept = Reaper(engine).sweep()

        assert swept == (4, 2, 2)
        assert time.monotonic() - began < 60
        assert standing(engine) == {"container": 2, "network": 1, "volume": 1}
        assert own.run(["true"], clocks=CLOCKS).is_success
        assert others.run(["true"], clocks=CLOCKS).is_success
    finally:
        own.close()
        others.close()
        Reaper(neighbour).clear()
        neighbour.close()
    assert standing(engine) == {}


@pytest.mark.req("H-079")
def test_a_closed_box_leaves_nothing_at_once(engine: Engine, maker: DockerMaker) -> None:
    box = maker.create()
    assert standing(engine) == {"container": 2, "network": 1, "volume": 1}

    box.close()
    box.close()
    assert standing(engine) == {}


@pytest.mark.threat("A13")
def test_a_box_that_everybody_forgot_ends_by_itself(daemon: TestEngine, engine: Engine, maker: DockerMaker) -> None:
    short = DockerMaker(engine, replace(maker.spec, limits=replace(maker.spec.limits, lifetime_seconds=3)))
    box = short.create()

    def is_gone() -> bool:
        return box.container not in [found.id for found in engine.leftovers()]

    assert wait_until(is_gone, seconds=30, what="the container has ended and removed itself")
    box.close()
    assert standing(engine) == {}


@pytest.mark.threat("B2")
def test_a_bridge_that_cannot_be_closed_starts_no_box(engine: Engine, maker: DockerMaker) -> None:
    slot = Slot.new(engine.install, "nobody", lifetime_seconds=0)
    with pytest.raises(SandboxStartupError) as caught:
        engine.close_bridge(slot, maker.spec.image)  # there is no such bridge

    assert caught.value.reason == "bridge_open"
    assert standing(engine) == {}


@pytest.mark.threat("A15")
def test_an_option_that_the_engine_refuses_is_never_left_out(
    daemon: TestEngine, engine: Engine, maker: DockerMaker
) -> None:
    config = daemon.config(runtime="runsc")
    with pytest.raises(SandboxStartupError) as caught:
        build_maker(config, engine).create()

    assert caught.value.reason == "runtime_missing"
    assert standing(engine) == {}


def outer_networks(engine: Engine) -> list[str]:
    return [found.id for found in engine.leftovers() if is_outer_network(found)]


def add_twin(engine: Engine) -> str:
    """What two workers left that created the outer network in the same moment."""
    wanted = recipe.outer_network(engine.install, has_masquerade=False) | {"check_duplicate": False}
    network = engine.client.networks.create(**wanted)
    assert network.id is not None
    return str(network.id)


def test_a_twin_of_the_outer_network_is_removed_and_boxes_start(
    daemon: TestEngine, engine: Engine, maker: DockerMaker
) -> None:
    twins = {add_twin(engine), add_twin(engine)}
    assert "2 networks are named pointsman-test-outer" in dict(check_boxes(daemon.config()))["box networks"]

    first = maker.create()
    try:
        (kept,) = outer_networks(engine)
        assert kept in twins
        assert dict(check_boxes(daemon.config()))["box networks"] == ""

        add_twin(engine)
        second = maker.create()
        second.close()
        assert outer_networks(engine) == [kept], "the one that is in use stays"
        assert first.run(["true"], clocks=CLOCKS).is_success
    finally:
        first.close()


def test_workers_that_start_in_the_same_moment_share_one_outer_network(daemon: TestEngine, engine: Engine) -> None:
    workers = [daemon.open() for _ in range(8)]
    try:
        with ThreadPoolExecutor(len(workers)) as threads:
            found = [*threads.map(lambda worker: worker.outer(has_masquerade=False), workers)]
        assert len(set(found)) == 1
        assert len(outer_networks(engine)) == 1
    finally:
        for worker in workers:
            worker.close()


def test_a_missing_image_says_how_to_get_it(daemon: TestEngine, engine: Engine) -> None:
    with pytest.raises(SandboxUnavailableError, match=r"image_missing: .*pointsman image build"):
        build_maker(daemon.config(image="pointsman-box:none"), engine)


def test_without_an_engine_there_is_no_box(daemon: TestEngine) -> None:
    nowhere = Engine("unix:///nonexistent/docker.sock", install="test", subnets=daemon.config().subnets)

    with pytest.raises(SandboxUnavailableError, match="engine_missing"):
        build_maker(daemon.config(), nowhere)


def test_the_doctor_finds_all_that_boxes_need(daemon: TestEngine) -> None:
    found = dict(check_boxes(daemon.config()))

    assert {name: hint for name, hint in found.items() if hint} == {}
    parts = ("engine", "cgroups", "seccomp", "users", "disk", "memory", "networks", "image", "bridge")
    assert set(found) == {f"box {part}" for part in parts}


def test_the_doctor_names_what_is_missing(daemon: TestEngine) -> None:
    found = dict(check_boxes(daemon.config(runtime="runsc", base_image="none:none", memory_mib=10_000_000)))

    assert {name for name, hint in found.items() if hint} == {"box runtime", "box image", "box memory"}
    assert "pointsman image build" in found["box image"]


def test_an_image_that_is_there_is_not_built_again(daemon: TestEngine) -> None:
    built = daemon.build_image()

    assert not built.is_new
    assert built.seconds < 20


@pytest.mark.threat("C1")
def test_the_image_and_the_inspection_of_a_box_hold_no_environment_but_the_path(engine: Engine, box: DockerBox) -> None:
    image = engine.client.api.inspect_image(engine.client.api.inspect_container(box.container)["Image"])

    assert [entry.split("=")[0] for entry in image["Config"]["Env"]] == ["PATH"]
    assert len(engine.client.api.history(image["Id"])) == 1
    result = box.run(["env"], clocks=CLOCKS, env={"ANTHROPIC_AUTH_TOKEN": "of-this-attempt"})
    assert b"ANTHROPIC_AUTH_TOKEN=of-this-attempt\n" in result.stdout
    assert "of-this-attempt" not in str(engine.client.api.inspect_container(box.container))


def first_command(box: Box) -> None:
    assert box.run(["true"], clocks=CLOCKS).is_success


@pytest.mark.req("H-075")
def test_a_warm_box_takes_at_most_a_third_of_the_time_of_a_cold_one(
    daemon: TestEngine, engine: Engine, maker: DockerMaker
) -> None:
    pool: Pool = build_pool(daemon.config(), engine)
    times: dict[str, list[float]] = {"cold": [], "warm": []}
    for _ in range(3):
        for kind in ("cold", "warm"):
            if kind == "warm":
                pool.fill()
                assert pool.wait_until_filled(seconds=120)
            began = time.monotonic()
            box = pool.acquire() if kind == "warm" else maker.create()
            first_command(box)
            times[kind].append(time.monotonic() - began)
            assert getattr(box, "is_warm", False) == (kind == "warm")
            pool.wait_until_filled(seconds=120)
            box.close()
    pool.close()
    cold, warm = (statistics.median(times[kind]) for kind in ("cold", "warm"))
    print(f"\nacquire to first exec, p50 of 3: cold {cold:.3f} s, warm {warm:.3f} s, ratio {warm / cold:.2f}")

    assert standing(engine) == {}
    assert warm <= cold / 3


@pytest.fixture
def collected() -> Iterator[None]:
    """Collect what a test leaves to the garbage collector while the test still answers for it."""
    yield
    gc.collect()


# The SDK leaves a socket to the garbage collector when nobody answers on it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.threat("A13")
def test_an_engine_that_is_killed_and_comes_back_is_swept_clean(
    daemon: TestEngine, engine: Engine, maker: DockerMaker, collected: None
) -> None:
    box = maker.create()
    result = box.run(["bash", "-c", "echo on; sleep 60"], clocks=CLOCKS, on_line=lambda line: daemon.kill())
    assert result.ending is Ending.BOX_LOST
    box.close()

    daemon.start()
    reaper = Reaper(engine, judge=lambda owner: False)

    def is_swept() -> bool:
        try:
            reaper.sweep()
            return not standing(engine)
        except (BoxLostError, SandboxUnavailableError):
            settle(1)
            return False

    assert wait_until(is_swept, seconds=60, what="nothing is left on the engine that came back")


def runs(engine: Engine, name: str) -> bool:
    try:
        return bool(engine.client.api.inspect_container(name)["State"]["Running"])
    except NotFound:
        return False


@pytest.mark.threat("A14", "B11")
def test_a_spare_that_is_not_what_it_was_is_not_handed_out(
    daemon: TestEngine, engine: Engine, maker: DockerMaker
) -> None:
    pool = Pool(maker, size=3)
    try:
        pool.fill()
        assert pool.wait_until_filled(seconds=60)
        slots = {found.labels["pointsman.slot"] for found in engine.leftovers() if not is_outer_network(found)}
        without_forwarder, ended, on_two_networks = (f"pointsman-test-{slot}" for slot in slots)
        engine.client.networks.create("alien", driver="bridge").connect(f"{on_two_networks}-box")
        for name in (f"{without_forwarder}-forwarder", f"{ended}-box"):
            engine.client.api.kill(name)
            wait_until(lambda name=name: not runs(engine, name), seconds=10, what="the engine has noticed")
        box = pool.acquire()
        assert (box.id in slots, box.is_warm) == (False, False)
        assert box.run(["true"], clocks=CLOCKS).is_success
        box.close()
    finally:
        pool.close()
        for network in engine.client.networks.list(names=["alien"]):
            network.remove()
