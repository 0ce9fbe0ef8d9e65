"""What is wrong with how a page looks, by what a browser saw of it before and now."""

import pytest
from pydantic import ValidationError

from producers.evaluation.browser import Look, differences
from producers.evaluation.cases import Then, VisitStep


def look(
    *,
    places: dict[str, str] | None = None,
    axe: dict[str, int] | None = None,
    errors: tuple[str, ...] = (),
    **more: str,
) -> Look:
    asked = frozenset([more["asked"]] if "asked" in more else [])
    return Look(places or {"menu": "a", "visit": "b"}, axe or {}, errors, asked, b"")


OTHER = {"menu": "a2", "visit": "b2"}


@pytest.mark.parametrize(
    ("then", "findings"),
    [
        ({}, []),
        ({"only": ["index.html menu", "styles.css"]}, ["index.html visit looks different, which nobody asked for"]),
        ({"only": ["styles.css"], "looks": ["index.html *"]}, []),
        (
            {"only": ["index.html *"], "looks": ["index.html menu"]},
            ["index.html visit looks different, which nobody asked for"],
        ),
    ],
)
def test_only_places_of_which_the_case_says_so_may_look_different(
    then: dict[str, list[str]], findings: list[str]
) -> None:
    assert differences(Then.model_validate(then), {"index.html": (look(), look(places=OTHER))}) == findings


def test_what_got_worse_is_found_and_what_was_there_before_is_not() -> None:
    was = look(axe={"image-alt": 2}, errors=("old",), asked="fonts.example")
    now = look(axe={"image-alt": 2, "label": 1}, errors=("old", "x is not defined"), asked="cdn.example")
    new = look(axe={"image-alt": 3})
    assert differences(Then(), {"index.html": (was, was), "new.html": (None, look(axe={"image-alt": 2}))}) == []
    assert differences(Then(), {"index.html": (was, now), "new.html": (None, new)}) == [
        "index.html: axe: label, 1 places",
        "index.html: script: x is not defined",
        "index.html asks cdn.example as it opens",
        "new.html: axe: image-alt, 3 places",
    ]


def test_a_step_of_a_visit_does_or_expects_one_thing() -> None:
    assert str(VisitStep(scroll=0)) == '{"scroll": 0}'
    for step in ({}, {"click": "a", "sees": "b"}):
        with pytest.raises(ValidationError, match="exactly one field"):
            VisitStep.model_validate(step)
