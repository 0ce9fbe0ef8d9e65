import pytest

from routing.clarify.replies import is_bare_choice


@pytest.mark.parametrize("said", ["the second one", "The first one", "2", "number 2", "the last one, please", "3rd"])
def test_what_only_names_a_place_in_a_list_is_a_bare_choice(said: str) -> None:
    assert is_bare_choice(said)


@pytest.mark.parametrize(
    "said",
    [
        "remove the second one",
        "make the first heading red",
        "add one",
        "What about the second one?",
        "change 2 to 3",
        "the second headline",
        "last updated today",
        "Fresh bread",
    ],
)
def test_what_says_what_to_do_is_none(said: str) -> None:
    assert not is_bare_choice(said)
