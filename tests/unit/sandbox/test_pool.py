"""What the doctor says of an engine that does not answer: what is wrong, and what helps here."""

import threading
from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import Any

import pytest

from sandbox.box import Box
from sandbox.box_spec import BoxSpec, Target
from sandbox.config import BoxConfig
from sandbox.docker.engine import Engine, Leftover
from sandbox.errors import BoxLostError, SandboxStartupError, SandboxUnavailableError
from sandbox.local_box import LocalBox
from sandbox.pool import Pool, Reaper, check_boxes, engine_hint, is_due, sweep_periodically
from tests.played_cli import LocalBoxMaker
from tests.services import wait_until


@pytest.mark.parametrize(
    ("reason", "is_installed", "way"),
    [
        ("engine_missing", False, "apt-get install docker.io"),
        ("engine_missing", True, "systemctl start docker"),
        ("engine_unreachable", True, "systemctl start docker"),
        ("engine_forbidden", True, "usermod -aG docker"),
        ("engine_forbidden", False, "usermod -aG docker"),
    ],
)
def test_the_way_to_an_engine_depends_on_what_is_missing(reason: str, is_installed: bool, way: str) -> None:
    hint = engine_hint(SandboxUnavailableError(reason, "what is wrong"), is_installed=is_installed)
    assert hint.startswith("what is wrong; ")
    assert way in hint
    assert hint.endswith("or set POINTSMAN_BOX__ENGINE")


def test_without_an_engine_nothing_else_is_looked_at() -> None:
    [found] = check_boxes(BoxConfig(engine="unix:///nonexistent/docker.sock"))
    assert found.name == "box engine"
    assert found.hint.startswith("there is no socket /nonexistent/docker.sock; ")


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


class Maker(LocalBoxMaker):
    """Makes boxes, or fails as it is told."""

    fails = False

    def create(self, asked: Any = (), *, image: Any = None, watch: Any = None) -> LocalBox:
        if self.fails:
            raise SandboxStartupError("no_room", "told to")
        return super().create()

    def change(self) -> None:
        self._spec = BoxSpec(image="another", gateway=Target("", 8090))


@pytest.fixture
def maker() -> Iterator[Maker]:
    made = Maker()
    yield made
    for box in made.made:
        box.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool(maker: Maker, clock: Clock) -> Iterator[Pool]:
    made = Pool(maker, size=1, spare_seconds=60, now=clock)
    made.fill()
    assert made.wait_until_filled(seconds=10)
    yield made
    made.close()


@pytest.mark.req("H-075")
def test_a_full_pool_gives_the_box_that_waited_and_makes_the_next(pool: Pool, maker: Maker) -> None:
    box = pool.acquire()

    assert box.is_warm
    assert box is maker.made[0]
    assert pool.wait_until_filled(seconds=10)
    assert pool.acquire() is maker.made[1]


@pytest.mark.req("H-075")
def test_an_empty_pool_starts_one_cold(maker: Maker) -> None:
    pool = Pool(maker, size=0)

    assert not pool.acquire().is_warm
    assert pool.waiting == 0
    pool.close()


def test_a_box_is_used_once_and_never_comes_back(pool: Pool, maker: Maker) -> None:
    first = pool.acquire()
    first.close()
    pool.wait_until_filled(seconds=10)

    assert pool.acquire() is not first


def test_a_spare_that_waited_too_long_is_destroyed_not_handed_out(pool: Pool, maker: Maker, clock: Clock) -> None:
    clock.time = 60

    assert not pool.acquire().is_warm
    assert not maker.made[0].is_usable()


def test_a_spare_of_another_recipe_is_destroyed(pool: Pool, maker: Maker) -> None:
    maker.change()

    assert not pool.acquire().is_warm
    assert not maker.made[0].is_usable()


def test_a_spare_that_died_while_it_waited_is_replaced(pool: Pool, maker: Maker) -> None:
    maker.made[0].close()

    assert not pool.acquire().is_warm


def test_a_spare_that_cannot_be_made_harms_nobody_and_a_cold_start_says_why(maker: Maker) -> None:
    maker.fails = True
    pool = Pool(maker, size=1)
    pool.fill()

    assert not pool.wait_until_filled(seconds=10)
    with pytest.raises(SandboxStartupError):
        pool.acquire()
    maker.fails = False
    assert not pool.acquire().is_warm
    pool.close()


def test_a_spare_is_prepared_and_a_cold_start_waits_for_no_such_thing(maker: Maker) -> None:
    prepared: list[Box] = []
    pool = Pool(maker, size=1, prepare=prepared.append)
    assert not pool.acquire().is_warm
    assert pool.wait_until_filled(seconds=10)
    assert prepared == maker.made[1:]
    assert pool.acquire() is prepared[0]
    pool.close()


def test_a_spare_that_cannot_be_prepared_is_destroyed_and_a_cold_start_takes_its_place(maker: Maker) -> None:
    def refuse(box: Box) -> None:
        raise BoxLostError("told to")

    pool = Pool(maker, size=1, prepare=refuse)
    pool.fill()
    assert not pool.wait_until_filled(seconds=10)
    assert not maker.made[0].is_usable()
    assert pool.acquire().is_usable()
    pool.close()


def test_a_spare_whose_command_has_ended_is_replaced(maker: Maker) -> None:
    pool = Pool(maker, size=1, prepare=lambda box: box.stand_by(["true"], env={}))
    pool.fill()
    assert pool.wait_until_filled(seconds=10)
    wait_until(lambda: not maker.made[0].is_usable(), seconds=10, what="the command has ended")
    assert not pool.acquire().is_warm
    pool.close()


def test_spares_that_died_are_replaced_before_anybody_wants_one_and_the_living_stay(pool: Pool, maker: Maker) -> None:
    pool.renew()
    assert len(maker.made) == 1
    maker.made[0].close()
    pool.renew()
    assert pool.wait_until_filled(seconds=10)
    assert [box.is_usable() for box in maker.made] == [False, True]


def test_a_box_is_handed_out_though_no_thread_can_be_had_for_the_next(
    pool: Pool, maker: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        warm, cold = pool.acquire(), pool.acquire()
    assert maker.made == [warm, cold]
    pool.fill()
    assert pool.wait_until_filled(seconds=10)


def test_a_box_that_its_job_did_not_get_is_destroyed(pool: Pool, maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(thread: threading.Thread) -> None:
        raise TimeoutError

    monkeypatch.setattr(threading.Thread, "start", end)
    for _ in ("warm", "cold"):
        with pytest.raises(TimeoutError):
            pool.acquire()
    assert [box.is_usable() for box in maker.made] == [False, False]


def test_a_closed_pool_leaves_nothing(pool: Pool, maker: Maker) -> None:
    pool.close()
    pool.close()
    pool.fill()

    assert [box.is_usable() for box in maker.made] == [False]
    assert pool.waiting == 0


LABELS = {"pointsman.install": "test", "pointsman.slot": "1", "pointsman.owner": "me", "pointsman.deadline": "1000"}


def due(*, now: float = 999, owner_lives: bool | None = True, **labels: str | None) -> bool:
    kept = {name: value for name, value in (LABELS | {f"pointsman.{k}": v for k, v in labels.items()}).items() if value}
    return is_due(Leftover("container", "x", kept), now=now, judge=lambda owner: owner_lives)


@pytest.mark.threat("A13")
def test_what_a_living_worker_uses_stays_until_its_deadline_and_what_a_dead_one_left_goes() -> None:
    assert not due()
    assert due(owner_lives=False)
    assert due(now=1000)


@pytest.mark.threat("A13")
def test_what_its_owner_could_not_remove_goes_though_the_owner_lives() -> None:
    given_up = Leftover("volume", "x", LABELS)
    assert is_due(given_up, now=999, judge=lambda owner: True, given_up={"1"})
    assert not is_due(given_up, now=999, judge=lambda owner: True, given_up={"2"})


def test_an_owner_whom_nobody_here_can_judge_is_left_to_the_deadline() -> None:
    assert not due(owner_lives=None)
    assert due(owner_lives=None, now=1000)


@pytest.mark.parametrize("deadline", [None, "soon", "-5", ""])
def test_a_label_that_says_nothing_protects_nothing(deadline: str | None) -> None:
    assert due(deadline=deadline)


def test_the_outer_network_is_the_installations_and_stays() -> None:
    assert not due(kind="outer", owner=None, deadline=None, now=10**12)


def test_a_sweep_that_finds_no_engine_is_tried_again_until_told_to_stop(caplog: pytest.LogCaptureFixture) -> None:
    class Stopping(threading.Event):
        waits = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.waits += 1
            return self.waits == 3

    nowhere = Engine("unix:///nonexistent/docker.sock", install="test", subnets=IPv4Network("10.213.0.0/16"))
    sweep_periodically(Reaper(nowhere), Stopping())

    assert [record.message for record in caplog.records] == ["sweep_failed"] * 3
    assert {record.__dict__["reason"] for record in caplog.records} == {"engine_missing"}
