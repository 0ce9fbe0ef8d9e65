"""The canonical text: what is stripped, what is set apart, and where everything stood."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.prompt.tokens import READ_LIMIT, Kind, canonicalise, singular


def kinds(prompt: str) -> list[tuple[str, Kind]]:
    return [(token.word, token.kind) for token in canonicalise(prompt).tokens]


@pytest.mark.parametrize("sent", ["de\u200blete", "\u202edelete\u202c", "ＤＥＬＥＴＥ", "DELETE", "del\u00adete"])
def test_invisible_characters_width_and_case_do_not_hide_a_word(sent: str) -> None:
    assert kinds(sent) == [("delete", Kind.WORD)]


def test_accents_and_composition_do_not_matter() -> None:
    assert kinds("Sección") == kinds("Seccio\u0301n") == kinds("seccion")


@pytest.mark.parametrize(
    "prompt",
    [
        "set the title to 'Just do it'",
        'set the title to "Just do it"',
        "set the title to “Just do it”",
        "set the title to «Just do it»",
        "set the title to „Just do it“",
    ],
)
def test_a_quotation_is_one_token(prompt: str) -> None:
    assert kinds(prompt)[-1] == ("just do it", Kind.QUOTE)


def test_apostrophes_and_inches_open_no_quotation() -> None:
    found = kinds("don't move the dogs' photo, it's 27\" wide")
    assert Kind.QUOTE not in {kind for _, kind in found}
    assert ("don't", Kind.WORD) in found


def test_code_is_set_apart_and_an_open_fence_reaches_to_the_end() -> None:
    assert kinds("add `top: 0` here") == [("add", Kind.WORD), ("top: 0", Kind.CODE), ("here", Kind.WORD)]
    assert kinds("paste ```<b>delete")[-1][1] is Kind.FENCE


def test_a_prompt_that_is_one_quotation_quotes_nothing() -> None:
    assert ("make", Kind.WORD) in kinds('"make the header blue"')


@pytest.mark.req("R-020")
@pytest.mark.parametrize("extension", ["ts", "md", "js", "py", "json", "yml", "yaml", "tsx", "jsx"])
def test_a_file_extension_makes_a_reference(extension: str) -> None:
    assert kinds(f"main.{extension}")[0][1] is Kind.PATH
    assert kinds(f".{extension}")[0][1] is Kind.EXTENSION


@pytest.mark.req("R-021", "R-083")
@pytest.mark.parametrize("path", ["src/", "/", "~/", "./", "../", "/etc/hosts", "~/notes", "./a", "../b"])
def test_a_path_makes_a_reference(path: str) -> None:
    assert kinds(path)[0][1] is Kind.PATH


@pytest.mark.req("R-027", "R-083")
@pytest.mark.parametrize("url", ["http://a.b", "https://a.b/c", "example.com", "shop.io", "web.dev", "garden.org"])
def test_a_url_or_a_domain_makes_a_reference(url: str) -> None:
    assert kinds(url)[0][1] in (Kind.URL, Kind.DOMAIN)


@pytest.mark.parametrize(
    "prose", ["and/or", "24/7", "A/B", "CI/CD", "HTML/CSS", "Next.js", "me@example.com", "3/4", "12.5", "v2.0", "e.g."]
)
def test_prose_with_slashes_and_dots_is_no_reference(prose: str) -> None:
    references = {Kind.PATH, Kind.URL, Kind.DOMAIN, Kind.EXTENSION, Kind.FENCE}
    assert not references & {kind for _, kind in kinds(prose)}


@pytest.mark.parametrize(("plural", "one"), [("pages", "page"), ("entries", "entry"), ("boxes", "box"), ("css", "css")])
def test_singular_takes_a_plural_ending_off(plural: str, one: str) -> None:
    assert singular(plural) == one


def test_the_place_of_a_word_is_that_in_the_prompt_as_sent() -> None:
    prompt = "e\u0301e\u0301 \u200b\u200bﬁx delete"
    text = canonicalise(prompt)
    last = text.tokens[-1]
    assert prompt[text.original_offset(last.start) :] == "delete"


def test_the_end_of_a_long_prompt_is_read_and_keeps_its_place() -> None:
    prompt = "word " * 6000 + "delete"
    text = canonicalise(prompt)
    assert text.cut
    assert text.tokens[-1].word == "delete"
    assert text.original_offset(text.tokens[-1].start) == len(prompt) - 6


def test_the_order_in_a_payload_and_its_key_are_read_and_all_else_is_quoted() -> None:
    tokens = canonicalise('POST /v1/build {"feature":"price_calculator","title":"Delete it"}').tokens
    assert [token.word for token in tokens if token.kind is Kind.WORD] == ["post", "feature", "price", "calculator"]


@pytest.mark.parametrize("prompt", ["", " ", "\n\n", "?", "'", "`", "```", "\u0301", "\ud800"])
def test_odd_prompts_are_read(prompt: str) -> None:
    assert len(canonicalise(prompt).tokens) <= 1


@given(st.text(max_size=300))
def test_places_never_leave_the_text(prompt: str) -> None:
    text = canonicalise(prompt)
    for token in text.tokens:
        assert 0 <= token.start < token.end <= len(text.shown)


@given(st.text(max_size=200))
def test_canonicalising_is_deterministic(prompt: str) -> None:
    assert canonicalise(prompt) == canonicalise(prompt)


HOSTILE = {
    "blanks around a line end": "x" + " " * 2300 + "\n" + " " * 2300 + "x",
    "combining marks": "a" + "\u0301\u0327" * 8000,
    "starters that decompose to marks": "\u0f73" * 10_000,
    "ligatures that expand": "\ufdfa" * 10_000,
    "double quotes": '"' * 32_000,
    "single quotes": "'a " * 10_000,
    "spaces": " " * 32_000 + "x",
    "brackets": "([" * 16_000,
    "angle brackets": "<a" * 16_000,
    "slashes": "/" * 32_000,
    "directories": "a/" * 16_000,
    "dots": "a." * 16_000,
    "at signs": "a@" * 16_000,
    "backticks": "` " * 16_000,
    "payload": '"op":"a" {' * 3000,
}


@pytest.mark.parametrize("prompt", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_prompt_is_read_in_bounded_time(prompt: str) -> None:
    begun = time.process_time()
    text = canonicalise(prompt)
    assert time.process_time() - begun < 0.5
    assert len(text.shown) <= 3 * READ_LIMIT
