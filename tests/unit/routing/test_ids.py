from uuid import RFC_4122

from routing.ids import new_id
from tests.services import wait_until


def test_ids_are_uuids_of_version_7_with_74_random_bits() -> None:
    made = [new_id() for _ in range(500)]
    assert {(each.version, each.variant) for each in made} == {(7, RFC_4122)}
    varied = 0
    for each in made:
        varied |= each.int ^ made[0].int
    assert (varied & (1 << 80) - 1).bit_count() == 74
    assert len(set(made)) == len(made)


def test_an_id_sorts_after_those_of_the_milliseconds_before_it() -> None:
    first = new_id()
    wait_until(lambda: new_id().int >> 80 > first.int >> 80, seconds=1, what="a later millisecond")
    assert str(first) < str(new_id())
    assert first < new_id()
