"""Cycles, ancestors and what may run at the same time, against their definitions."""

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.policy.agents import check_path_rule, is_covered
from tests.unit.workers.runs.scheduling.fake_run import BOOK
from workers.runs.scheduling import plan
from workers.runs.scheduling.plan import find_ancestors, find_concurrent, find_cycle, find_overlap, narrows

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
        plan.service_key(0, "plan", 1),
        plan.service_key(1, "plan", 1),
        plan.service_key(0, "m1", "fix", "qa"),
        plan.work_key(1, "plan-1"),
        plan.work_key(2, "plan-1"),
        plan.work_key(0, "plan-1"),
        plan.SUMMARY,
        plan.CLASSIFY,
        plan.service_key(0, "gate", 1),
        plan.service_key(1, "m1", "qa"),
        plan.service_key(0, "m1", "qa"),
        plan.work_key(1, "m1-qa"),
        plan.service_key(0, "build", 0),
        plan.service_key(0, "m1", "fix", "a:b"),
    ]

    assert len(set(made)) == len(made)
    assert all(plan.is_key(name) and ("_" in name or name == "plan-1") for name in made)


# Where steps may write: whether two could ever meet is decided on the rules alone.

NAMES = ["src", "Src", "app", "artifacts", "a.css", "b.module.css", "x.test.ts", "y.ts"]
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
RULES = st.one_of(
    PATHS, PATHS.map(lambda path: f"{path}/"), st.sampled_from(["*.css", "*.module.css", "*.ts", "*.test.ts"])
)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("src/", "src/app/", True),
        ("src/a/", "src/b/", False),
        ("src/a/", "src/ab/", False),
        ("src/a.ts", "src/", True),
        ("src/a.ts", "src/a.ts", True),
        ("src/a.ts", "src/b.ts", False),
        ("*.css", "src/", True),
        ("*.css", "artifacts/qa/", False),
        ("*.css", "artifacts/qa/a.css", False),
        ("*.css", "*.module.css", True),
        ("*.test.ts", "*.spec.ts", False),
        ("*.css", "a.css", True),
        ("*.css", "a.ts", False),
        ("src/App/", "src/app/page/", True),
    ],
)
def test_whether_two_rules_could_cover_one_file(one: str, other: str, meet: bool) -> None:
    assert bool(find_overlap((one,), (other,))) is meet
    assert bool(find_overlap((other,), (one,))) is meet


@given(one=RULES, other=RULES, path=PATHS)
def test_rules_that_do_not_overlap_share_no_path(one: str, other: str, path: str) -> None:
    check_path_rule(one)
    if is_covered(path, (one,)) and is_covered(path, (other,)):
        assert find_overlap((one,), (other,)) is not None


@given(rule=RULES, wider=RULES, path=PATHS)
def test_a_rule_within_another_covers_nothing_beyond_it(rule: str, wider: str, path: str) -> None:
    if narrows(rule, wider) and is_covered(path, (rule,)):
        assert is_covered(path, (wider,))


@given(rule=RULES)
def test_a_rule_is_within_itself(rule: str) -> None:
    assert narrows(rule, rule) or rule.startswith("*.")


@pytest.mark.req("S-047")
def test_the_agents_that_the_templates_run_side_by_side_write_nothing_in_common() -> None:
    for group in (("research", "architect"), ("code-review", "qa", "security")):
        rules = [BOOK.agents[agent].writes for agent in group]
        assert not any(find_overlap(one, other) for one in rules for other in rules if one is not other)
