"""What tells a thing to be built from one that is merely named: the cases behind the tier rules."""

from __future__ import annotations

import pytest

from routing.decision.evaluation import batch_line

SITE = {"files": 4, "has_js": False, "has_build": False}


def tier(prompt: str) -> int | None:
    found: int | None = batch_line({"id": "t", "prompt": prompt, "site": SITE})["tier"]
    return found


@pytest.mark.parametrize(
    "prompt",
    [
        "Add a photo of two people in a 3D cinema",
        "class names: 'Power Loop', 'Database'",
        "We mend broken toys. Use this as the tagline.",
        "we fix bugs in old synthesizers - make that the subtitle",
        "Split the long about paragraph into three short ones",
        "new service: Database migration, from 900",
    ],
)
def test_what_is_only_shown_named_or_worded_stays_with_the_spec(prompt: str) -> None:
    assert tier(prompt) == 1


@pytest.mark.parametrize(
    "prompt",
    [
        "playable demo of level 1 in the browser with WebGL",
        "show the level of the river as given at https://api.example.org/river",
        "a page that works on the underground without reception",
        "split the long about page into three pages",
    ],
)
def test_a_new_thing_beside_one_that_is_there_is_still_new(prompt: str) -> None:
    assert tier(prompt) == 3


def test_live_data_that_stopped_is_a_fault_of_what_is_there() -> None:
    assert tier("the live scores from the api are broken") == 2
