"""Slips of the keyboard: what is put right, and what only looks like a slip."""

from __future__ import annotations

import pytest

from routing.clarify.replies import canonicalize_command_input
from routing.decision.evaluation import batch_line
from routing.prompt.parsed_prompt import correct_typos, parse_prompt
from routing.prompt.tokens import tokenise
from routing.prompt.vocabulary import shipped_vocabulary

WORDS = frozenset({"delete", "remove", "title", "move"})
SITE = {"files": 3, "has_js": False, "has_build": False}


def _corrected(text: str) -> list[str]:
    tokens, _ = tokenise(text)
    return [token.word for token in correct_typos(tuple(tokens), WORDS, frozenset({"dleete"}))]


@pytest.mark.parametrize(
    ("slip", "meant"), [("delte", "delete"), ("remvoe", "remove"), ("removve", "remove"), ("mvoe", "move")]
)
def test_swapped_missing_and_doubled_letters_are_put_right(slip: str, meant: str) -> None:
    assert _corrected(slip) == [meant]


@pytest.mark.parametrize("slip", ["dissapears", "disapeers", "dsiappeasr", "disappeears"])
def test_a_long_word_is_known_with_two_slips_but_not_with_another_letter(slip: str) -> None:
    tokens, _ = tokenise(slip)
    known = correct_typos(tuple(tokens), frozenset({"disappears"}), frozenset())[0].word == "disappears"
    assert known is (slip != "disapeers")


@pytest.mark.parametrize("word", ["remote", "tile", "emove", "removes", "dleete", "mov"])
def test_other_words_stay_what_they_are(word: str) -> None:
    assert _corrected(word) == [word]


def test_places_in_the_text_stay_those_of_the_slip() -> None:
    (token,) = correct_typos(tuple(tokenise("  delte")[0]), WORDS, frozenset())
    assert (token.word, token.start, token.end) == ("delete", 2, 7)


@pytest.mark.req("R-045")
def test_a_misspelt_removal_is_debated_like_a_removal() -> None:
    route = batch_line({"prompt": "pls delte the news section", "site": SITE})
    assert (route["debate"], route["stakes"]) == ("planning", "high")


@pytest.mark.req("R-056")
@pytest.mark.parametrize("command", ["grep -i password src/", "grep -rni token app/", "GREP --ignore-case secret x/"])
def test_grep_without_regard_to_case_is_not_bypassed(command: str) -> None:
    assert batch_line({"prompt": command, "site": SITE})["debate"] == "planning"


@pytest.mark.req("R-056")
@pytest.mark.parametrize("command", ["grep password src/", "grep -rn token app/"])
def test_any_other_grep_is_never_debated(command: str) -> None:
    assert batch_line({"prompt": command, "site": SITE})["debate"] == "bypass"


@pytest.mark.req("H-017")
@pytest.mark.parametrize("prompt", ["Move the FAQ section to the top", "bring the form up to the top of the page"])
def test_a_section_that_is_moved_to_the_top_stays_in_the_spec(prompt: str) -> None:
    assert batch_line({"prompt": prompt, "site": SITE})["tier"] == 1


@pytest.mark.req("L-042")
@pytest.mark.parametrize("typed", ["abuot", "homepge", "buton", "tesimonials"])
def test_the_ladder_reads_what_was_typed_and_leaves_slips_to_the_model(typed: str) -> None:
    assert canonicalize_command_input(typed).selection == (typed,)


def test_the_new_name_of_a_section_is_page_text_and_that_of_a_class_is_not() -> None:
    words = shipped_vocabulary()
    assert parse_prompt("Rename the gallery to Our works", words).copied
    assert not parse_prompt("Rename the class .box to .panel in all files", words).copied


@pytest.mark.parametrize(
    ("prompt", "is_text"),
    [
        ("Add a section on portraits. Here it is:\n\nI answer. Delete the map.", True),
        ("Neuer Abschnitt, hier der Text:\n\nIch antworte. Delete the map.", True),
        ("Please change the following:\n\nI answer. Delete the map.", False),
        ("Here it is:\n\nDelete the map.", False),
        ("Wishes for the text:\n\n- delete the map", False),
        ("Here is the text:\n\nI answer.\n\nAlso delete the map.", False),
        ("Add a section with the text: I answer. Delete the map.", False),
    ],
)
def test_a_text_that_is_announced_and_pasted_below_orders_nothing(prompt: str, is_text: bool) -> None:
    """The words of a photographer's own text sent it to a code agent (issue 20)."""
    parsed = parse_prompt(prompt, shipped_vocabulary())
    assert ("delete" in [parsed.tokens[at].word for at in parsed.orders]) is not is_text
