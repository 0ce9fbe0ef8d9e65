"""Logins and wrong keys are counted per key and per address."""

from __future__ import annotations

import pytest

from producers.api.key_limits import PER_ADDRESS, PER_KEY, KeyLimits, Presented
from producers.errors import AuthenticationError, TooManyTriesError


class Source:
    """Keys that are right when they begin with `right`, tried on a clock that the test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.looked_at = 0
        self.limits = KeyLimits(clock=lambda: self.seconds)

    def call(self, key: str, address: str = "192.0.2.1", *, is_login: bool = False) -> str:
        try:
            with self.limits.counted(Presented(key, address), is_login=is_login):
                self.looked_at += 1
                if not key.startswith("right"):
                    raise AuthenticationError
        except AuthenticationError:
            return "wrong"
        except TooManyTriesError as error:
            return f"wait {error.retry_after_seconds}"
        return "in"


@pytest.fixture
def source() -> Source:
    return Source()


def test_a_wrong_key_is_looked_at_a_few_times_from_wherever_it_comes(source: Source) -> None:
    said = [source.call("wrong", f"192.0.2.{number}") for number in range(PER_KEY.tries + 2)]
    assert said == [*["wrong"] * PER_KEY.tries, "wait 6", "wait 6"]
    assert source.looked_at == PER_KEY.tries
    source.seconds += PER_KEY.seconds
    assert [source.call("wrong"), source.call("wrong")] == ["wrong", "wait 6"]


@pytest.mark.parametrize("address", ["192.0.2.{}", "2001:db8::{}"])
def test_an_address_tries_so_many_keys(source: Source, address: str) -> None:
    is_v6 = ":" in address
    for number in range(PER_ADDRESS.tries):
        assert source.call(f"wrong {number}", address.format(number if is_v6 else 1)) == "wrong"
    assert source.call("another", address.format(1)) == "wait 1"
    assert source.call("right", address.format(1)) == "wait 1", "what is not looked at is not told from a wrong one"
    assert source.call("right", "198.51.100.7") == "in"


def test_a_key_that_was_right_is_not_held_up_by_others_at_its_address(source: Source) -> None:
    assert source.call("right") == "in"
    for number in range(PER_ADDRESS.tries):
        source.call(f"wrong {number}")
    assert [source.call("right") for _ in range(100)] == ["in"] * 100
    said = [source.call("right", is_login=True) for _ in range(PER_KEY.tries + 1)]
    assert said == [*["in"] * PER_KEY.tries, "wait 6"], "its own logins alone hold it up"
    assert source.call("right too", is_login=True) == "wait 1"


def test_right_keys_may_come_in_any_number(source: Source) -> None:
    assert {source.call(f"right {number}") for number in range(5 * PER_ADDRESS.tries)} == {"in"}


def test_every_login_counts_for_its_key_and_a_wrong_one_for_its_address_too(source: Source) -> None:
    said = [source.call("right", is_login=True) for _ in range(PER_KEY.tries + 1)]
    assert said == [*["in"] * PER_KEY.tries, "wait 6"]
    said = [source.call(f"right {number}", is_login=True) for number in range(2 * PER_ADDRESS.tries)]
    assert set(said) == {"in"}
    said = [source.call(f"wrong {number}", is_login=True) for number in range(PER_ADDRESS.tries + 1)]
    assert said == [*["wrong"] * PER_ADDRESS.tries, "wait 1"]


def test_a_fault_of_ours_is_no_try_and_makes_no_key_right(source: Source) -> None:
    for _ in range(PER_KEY.tries + 1):
        with pytest.raises(ConnectionError), source.limits.counted(Presented("wrong", "192.0.2.1")):
            raise ConnectionError
    assert [source.call("wrong") for _ in range(PER_KEY.tries + 1)][-1] == "wait 6"
