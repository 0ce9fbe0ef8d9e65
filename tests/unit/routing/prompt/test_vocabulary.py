"""The vocabulary file: how phrases are written, found and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from routing.decision.router import Mode, Route, Signals, SiteSignals, decide
from routing.errors import PolicyError
from routing.policy.platform import platform_policy
from routing.prompt.tokens import canonicalise
from routing.prompt.vocabulary import (
    Vocabulary,
    VocabularyWords,
    load_vocabularies,
    parse_vocabulary,
    shipped_vocabulary,
)
from routing.queues import Tier


def vocabulary(*phrases: str) -> Vocabulary:
    lines = "\n".join(f"      - {phrase!r}" for phrase in phrases)
    text = f"words:\n  thing: [page, logo]\nphrases:\n  g:\n    match:\n{lines}\n"
    return parse_vocabulary(VocabularyWords(text, "test.yaml"))


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
        parse_vocabulary(VocabularyWords(text, "v.yaml"))
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


# --- an operator's own words ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
    path = tmp_path_factory.mktemp("words") / "words.yaml"
    path.write_text(
        "words:\n"
        "  order: [zap]\n"
        "  operation: [frobnicate~]\n"
        "phrases:\n"
        "  logic:\n"
        "    match: [seat map, '予約']\n"
        "  suggestion:\n"
        "    match: [could we perhaps @order]\n"
    )
    return load_vocabularies(path).shared


def route(prompt: str, vocabulary: Vocabulary | None = None, *, site: bool = True) -> Route:
    signals = Signals(prompt=prompt, site=SiteSignals(files=4) if site else None)
    return decide(signals, platform_policy(), vocabulary)


def test_without_a_file_the_shipped_words_hold() -> None:
    assert load_vocabularies(None).of("any") is shipped_vocabulary()


def test_a_phrase_that_is_added_to_a_group_changes_the_tier(extended: Vocabulary) -> None:
    assert route("Add a seat map").tier is Tier.SPEC
    changed = route("Add a seat map", extended)
    assert (changed.tier, changed.rule) == (Tier.AGENT, "V1-2")
    assert extended.because["logic"] in changed.reason


def test_a_word_that_is_added_to_a_keyword_group_is_a_trigger_in_all_its_forms(extended: Vocabulary) -> None:
    assert route("frobnicating the widgetry", site=False).mode is Mode.ANSWER
    changed = route("frobnicating the widgetry", extended, site=False)
    assert (changed.mode, [trigger.shown for trigger in changed.triggers]) == (Mode.ACTION, ["frobnicating"])


def test_a_word_that_is_added_to_a_list_counts_in_the_shipped_phrases_that_name_the_list(extended: Vocabulary) -> None:
    text = canonicalise("can we please zap it")
    shown = [vocabulary.find(text.tokens, text.shown) for vocabulary in (shipped_vocabulary(), extended)]
    assert [any(hit.last == 3 for hit in hits.get("suggestion", ())) for hits in shown] == [False, True]


def test_all_that_the_shipped_words_decide_is_decided_as_before(extended: Vocabulary) -> None:
    for prompt in ("What is HPOS?", "fix the E2E tests in zbooks repo", "Add a quiz", "Delete all posts", "pwd"):
        unchanged = route(prompt).model_copy(update={"vocabulary_version": extended.version})
        assert route(prompt, extended) == unchanged


def test_other_words_are_another_version(extended: Vocabulary) -> None:
    assert extended.version != shipped_vocabulary().version


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("words:\n  order: [zap]\n  orders: [zip]\n", 3, "`orders` is not a list of words"),
        ("phrases:\n  logik:\n    match: [quiz]\n", 3, "`logik` is not a group of phrases"),
        ("phrases:\n  logic:\n    because: it is hard\n    match: [quiz]\n", 3, "cannot change `because`"),
        ("words:\n  order:\n    - zap\n    - two words\n", 4, "`two words` must be one word"),
        ("phrases:\n  logic:\n    match:\n      - seat map\n      - a(b\n", 5, "is not a word"),
        ("phrases:\n  logic:\n    match: [a @none]\n", 3, "`@none` is not a list"),
        ("phrases:\n  logic: [quiz]\n", 2, "logic must be a mapping"),
        ("words:\n  order: [{a: b}]\n", 2, "must be text"),
        ("words:\n  ? [a]\n  : [b]\n", 2, "every name in words must be text"),
        ("more: {}\n", 1, "`more` is not a section"),
        ("words:\n  order: [zap\n", 3, "expected"),
        ("", 1, "the document must be a mapping"),
    ],
)
def test_a_bad_extension_is_refused_with_its_file_and_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    path = tmp_path / "words.yaml"
    path.write_text(text)
    with pytest.raises(PolicyError) as refusal:
        load_vocabularies(path)
    assert f"words.yaml, line {line}: " in str(refusal.value)
    assert said in str(refusal.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"words:\n  order: [\x07]\n"])
def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "words.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PolicyError, match=r"words\.yaml"):
        load_vocabularies(path)


def test_a_project_s_own_words_go_over_those_for_all_and_hold_for_it_alone(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text("phrases:\n  logic:\n    match: [seat map]\n")
    (tmp_path / "acme.yaml").write_text("phrases:\n  logic:\n    match: [tasting wheel]\n")
    words = load_vocabularies(tmp_path)
    with_both, with_one = words.of("acme"), words.of("other")
    usual = route("Add a seat map").tier
    assert route("Add a seat map", with_both).tier is route("Add a seat map", with_one).tier is not usual
    assert route("Add a tasting wheel", with_both).tier is not route("Add a tasting wheel", with_one).tier
    assert len({with_both.version, with_one.version, shipped_vocabulary().version}) == 3


def test_a_fault_in_a_project_s_words_names_its_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "acme.yaml").write_text("phrases:\n  no-such-group:\n    match: [x]\n")
    with pytest.raises(PolicyError, match=r"acme\.yaml, line 3"):
        load_vocabularies(tmp_path)


def test_a_directory_without_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no YAML file"):
        load_vocabularies(tmp_path)


def test_words_met_so_far_are_kept_up_to_a_bound_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("routing.prompt.vocabulary._MOST_ENTRIES", 2)
    words = vocabulary("red page")
    for _ in range(3):
        for text in ("one two three", "the red pages", "four five"):
            hits = words.find(canonicalise(text).tokens, text)
            assert hits == ({"g": [(1, 2)]} if "red" in text else {})
            assert len(words._entries) <= 2
