"""The money of a run of cases, and its policy."""

import threading
from pathlib import Path

import pytest

from producers.evaluation.run import Purse, count_tries, edits_of, policy_with_model
from routing.errors import PolicyError
from routing.jobs import Reason
from routing.policy.platform import load_policy

USD = 10**9


def test_calls_side_by_side_are_one_try() -> None:
    def tries(*calls: tuple[float, float]) -> int:
        return count_tries(("model:spec_edit", *call) for call in calls)

    assert tries() == 0
    assert tries((10.0, 2.0)) == 1
    assert tries((10.0, 2.0), (10.5, 2.4), (9.0, 1.0)) == 1
    assert tries((10.0, 2.0), (12.001, 2.003)) == 2


def test_a_new_site_and_its_translation_after_it_are_one_try() -> None:
    made, first, second = (
        ("model:spec_create", 10.0, 2.0),
        ("model:spec_edit", 13.0, 2.0),
        ("model:spec_edit", 13.1, 2.1),
    )
    assert count_tries([made, first, second]) == 1
    assert count_tries([made, first, second, ("model:spec_edit", 16.0, 2.0)]) == 2
    assert count_tries([made, ("model:spec_create", 13.0, 2.0), first]) == 2
    assert count_tries([made, ("model:patch_edit", 13.0, 2.0)]) == 2


def test_an_edit_after_a_translation_is_no_second_try_of_it() -> None:
    translated, edited = ("model:spec_edit@one", 10.0, 2.0), ("model:spec_edit@two", 13.0, 2.0)
    assert count_tries([translated, edited]) == 1
    assert count_tries([translated, edited, ("model:spec_edit@two", 16.0, 2.0)]) == 2
    assert count_tries([translated, ("model:patch_edit@two", 13.0, 2.0)]) == 2


def test_a_case_waits_for_money_that_another_puts_back_and_is_skipped_when_it_is_spent() -> None:
    purse = Purse(10)
    is_taken, may_end, got = threading.Event(), threading.Event(), []

    def first() -> None:
        with purse.take(8 * USD) as share:
            assert share is not None
            is_taken.set()
            may_end.wait(5)
            share.spent = 1 * USD

    def second() -> None:
        is_taken.wait(5)
        threading.Timer(0.05, may_end.set).start()
        with purse.take(8 * USD) as share:
            got.append(share is not None)
            if share is not None:
                share.spent = 8 * USD

    threads = [threading.Thread(target=each) for each in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert got == [True]
    with purse.take(2 * USD) as share:
        assert share is None
    with Purse(None).take(10**6 * USD) as share:
        assert share is not None


def test_only_a_case_that_the_run_gives_less_than_its_own_limit_is_cut_off_by_the_budget() -> None:
    with Purse(1).take(3 * USD) as short, Purse(5).take(3 * USD) as whole:
        assert short is not None
        assert whole is not None
        assert (short.nanousd, whole.nanousd) == (1 * USD, 3 * USD)
        assert [share.was_cut(Reason.COST_CAP) for share in (short, whole)] == [True, False]
        assert not any(short.was_cut(reason) for reason in (None, Reason.TIME_LIMIT))


def test_one_model_makes_every_call_and_is_every_agents_if_it_has_a_price(tmp_path: Path) -> None:
    path = policy_with_model(None, "claude-sonnet-4-6", home=tmp_path)
    assert path is not None
    policy = load_policy(path)
    assert {each.model for each in (*policy.calls.values(), *policy.agents.values())} == {"claude-sonnet-4-6"}
    with pytest.raises(PolicyError, match="the policy with gpt-none"):
        policy_with_model(None, "gpt-none", home=tmp_path)


def test_a_call_that_asks_to_see_a_file_or_hands_the_work_on_is_no_try_of_an_edit() -> None:
    step = {"step": "model:patch_edit", "seconds": 2.0, "prompt": "one"}
    events = [{"kind": "step", "at": f"2026-11-29T12:00:{at:02}+00:00", "data": step} for at in (10, 20, 30)]
    assert count_tries(edits_of(events[:2])) == 2
    looked = {"kind": "progress", "at": "2026-11-29T12:00:11+00:00", "data": {"text": "it looks", "asked_to_see": 1}}
    assert count_tries(edits_of([events[0], looked, events[1]])) == 1
    assert count_tries(edits_of([events[0], looked, *events[1:]])) == 2
    for reason, tries in (("beyond_tier", 1), ("spec_invalid", 2)):
        left = {"kind": "escalated", "at": "2026-11-29T12:00:11+00:00", "data": {"reason": reason}}
        assert count_tries(edits_of([events[0], left, events[1]])) == tries
