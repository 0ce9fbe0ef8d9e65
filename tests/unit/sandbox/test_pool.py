from collections.abc import Iterator

import pytest

from sandbox.box import BoxSpec, Target
from sandbox.errors import BoxLostError, SandboxStartupError
from sandbox.pool import Pool, PooledBox
from sandbox.unwalled import UnwalledBox, UnwalledMaker
from tests.services import wait_until


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


class Maker(UnwalledMaker):
    """Makes boxes, or fails as it is told."""

    fails = False

    def create(self) -> UnwalledBox:
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
    prepared: list[PooledBox] = []
    pool = Pool(maker, size=1, prepare=prepared.append)
    assert not pool.acquire().is_warm
    assert pool.wait_until_filled(seconds=10)
    assert prepared == maker.made[1:]
    assert pool.acquire() is prepared[0]
    pool.close()


def test_a_spare_that_cannot_be_prepared_is_destroyed_and_a_cold_start_takes_its_place(maker: Maker) -> None:
    def refuse(box: PooledBox) -> None:
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


def test_a_closed_pool_leaves_nothing(pool: Pool, maker: Maker) -> None:
    pool.close()
    pool.close()
    pool.fill()

    assert [box.is_usable() for box in maker.made] == [False]
    assert pool.waiting == 0
