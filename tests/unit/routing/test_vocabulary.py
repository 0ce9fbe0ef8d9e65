"""The vocabulary file: how phrases are written, found and refused."""

from __future__ import annotations

import pytest

from routing.errors import PolicyError
from routing.text import canonicalise
from routing.vocabulary import Vocabulary, parse_vocabulary, shipped_vocabulary


def vocabulary(*phrases: str) -> Vocabulary:
    lines = "\n".join(f"      - {phrase!r}" for phrase in phrases)
    return parse_vocabulary(f"words:\n  thing: [page, logo]\nphrases:\n  g:\n    match:\n{lines}\n", source="test.yaml")


def found(prompt: str, *phrases: str) -> list[str]:
    text = canonicalise(prompt)
    hits = vocabulary(*phrases).find(text.tokens, text.shown)
    return [" ".join(token.word for token in text.tokens[hit.first : hit.last + 1]) for hit in hits.get("g", ())]


def test_a_phrase_is_found_whatever_its_case_accents_and_number() -> None:
    assert found("Neue SEÇÕES", "secoes") == ["secoes"]
    assert found("two Buttons", "button") == ["buttons"]


def test_a_choice_matches_each_of_its_words() -> None:
    assert found("hide it, show it", "hide|show it") == ["hide it", "show it"]


def test_a_tilde_matches_all_forms_of_a_verb() -> None:
    assert found("remove removes removed removing removal", "remove~") == ["remove", "removes", "removed", "removing"]
    assert found("stopped copying tries", "stop~", "copy~", "try~") == ["stopped", "copying", "tries"]


def test_an_optional_word_may_be_missing() -> None:
    assert found("in head and in the head", "in the? head") == ["in head", "in the head"]


def test_a_gap_reaches_over_six_tokens_and_never_over_a_sentence() -> None:
    assert found("split it here into pages", "split .. into") == ["split it here into"]
    assert found("split a b c d e f g h into", "split .. into") == []
    assert found("split it. into pages", "split .. into") == []


def test_kinds_and_lists_stand_for_words() -> None:
    assert found("close the <div>", "close the <tag>") == ["close the <div>"]
    assert found("move the logo", "the @thing") == ["the logo"]


def test_a_word_inside_another_is_not_found() -> None:
    assert found("testimonials and brunch", "test~", "run~") == []


def test_scripts_without_blanks_are_searched_inside_their_words() -> None:
    assert found("予約フォームを追加", "予約") != []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("words: {}\nphrases: {}\nmore: {}\n", "`more` is not a section"),
        ("words: {}\n", "`phrases` is missing"),
        ("words: []\nphrases: {}\n", "line 1: words must be a mapping"),
        ("words:\n  a: [two words]\nphrases: {}\n", "line 2: a: `two words` must be one word"),
        ("words: {}\nphrases:\n  g:\n    match:\n      - ok\n      - ..\n", "line 6"),
        ("words: {}\nphrases:\n  g:\n    match:\n      - a @none\n", "line 5: `@none` is not a list"),
        ("words: {}\nphrases:\n  g:\n    match:\n      - a(b\n", "line 5"),
        ("words: {}\nphrases:\n  g:\n    other: [a]\n", "`other` is not a field"),
        ("words: {}\nphrases:\n  g: {because: x}\n", "the list `match` is missing"),
        ("words: {}\nphrases:\n  g:\n    match: [a]\n  g:\n    match: [b]\n", "line 5: `g` stands twice"),
        ("words: {}\nphrases:\n  g:\n    match: [a\n", "line"),
        ("words: {}\nphrases:\n  g:\n    match:\n      - [a]\n", "line 5"),
    ],
)
def test_a_bad_file_is_refused_with_the_line_and_the_rule(text: str, said: str) -> None:
    with pytest.raises(PolicyError, match=r"v\.yaml") as refusal:
        parse_vocabulary(text, source="v.yaml")
    assert said in str(refusal.value)


@pytest.mark.req("R-104")
def test_the_keyword_groups_are_those_of_the_document() -> None:
    words = shipped_vocabulary().words
    assert {"fix", "debug", "implement", "create", "update", "delete", "refactor", "test", "tests"} <= words[
        "operation"
    ]
    assert {"search", "find", "grep", "locate"} <= words["search"]
    assert {"run", "execute", "deploy", "start", "stop", "restart"} <= words["execution"]
    assert {"remember", "save", "store", "recall", "note"} <= words["memory"]
    assert {"fetch", "download", "scrape", "browse"} <= words["web"]
    assert "bug" not in words["operation"]
