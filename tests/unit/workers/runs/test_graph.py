"""Cycles, ancestors and what may run at the same time, against their definitions."""

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from workers.runs import keys
from workers.runs.graph import find_ancestors, find_concurrent, find_cycle

KEYS = [f"s{number}" for number in range(7)]
GRAPHS = st.fixed_dictionaries({key: st.lists(st.sampled_from(KEYS), max_size=3) for key in KEYS})
DAGS = st.fixed_dictionaries(
    {
        key: st.lists(st.sampled_from(KEYS[:number]), max_size=3) if number else st.just([])
        for number, key in enumerate(KEYS)
    }
)


@settings(max_examples=40)
@given(edges=GRAPHS)
def test_a_cycle_that_is_named_is_one_and_none_is_missed(edges: dict[str, list[str]]) -> None:
    cycle = find_cycle(edges)

    if cycle is None:
        order = list(find_ancestors(edges))
        assert all(order.index(need) < order.index(key) for key, needs in edges.items() for need in needs)
    else:
        assert all(after in edges[one] for one, after in zip(cycle, (*cycle[1:], cycle[0]), strict=True))


@settings(max_examples=40)
@given(edges=DAGS)
def test_ancestors_are_everything_that_is_reached(edges: dict[str, list[str]]) -> None:
    def reach(key: str) -> set[str]:
        return set(edges[key]).union(*(reach(need) for need in edges[key]))

    assert find_cycle(edges) is None
    assert {key: set(found) for key, found in find_ancestors(edges).items()} == {key: reach(key) for key in edges}


@settings(max_examples=40)
@given(edges=DAGS)
def test_two_steps_are_concurrent_exactly_if_neither_reaches_the_other(edges: dict[str, list[str]]) -> None:
    ancestors = find_ancestors(edges)
    pairs = {frozenset(pair) for pair in find_concurrent(edges)}

    for one, other in permutations(edges, 2):
        apart = one not in ancestors[other] and other not in ancestors[one]
        assert (frozenset({one, other}) in pairs) is apart


def test_no_name_of_the_service_can_be_an_id_of_a_plan_or_of_another_round() -> None:
    made = [
        keys.service_key(0, "plan", 1), keys.service_key(1, "plan", 1), keys.service_key(0, "m1", "fix", "qa"),
        keys.work_key(1, "plan-1"), keys.work_key(2, "plan-1"), keys.work_key(0, "plan-1"), keys.SUMMARY, keys.CLASSIFY,
        keys.service_key(0, "gate", 1), keys.service_key(1, "m1", "qa"), keys.service_key(0, "m1", "qa"),
        keys.work_key(1, "m1-qa"), keys.service_key(0, "build", 0), keys.service_key(0, "m1", "fix", "a:b"),
    ]  # fmt: skip

    assert len(set(made)) == len(made)
    assert all(keys.is_key(name) and ("_" in name or name == "plan-1") for name in made)
