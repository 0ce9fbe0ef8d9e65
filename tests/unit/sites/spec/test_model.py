from __future__ import annotations

import json
import pickle
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sites.errors import SpecError
from sites.spec import model
from sites.spec.model import INDEX, MAX_JSON_DEPTH, MAX_SITE_BYTES, Site, check_json, loads_strict, parse_site
from tests.unit.sites.spec.samples import demo_site, demo_text, element, page, reordered

quoted = st.text(alphabet='"\\\\ab/', max_size=6)


def refusal(source: object) -> str:
    with pytest.raises(SpecError) as caught:
        parse_site(source)  # type: ignore[arg-type]
    return caught.value.code


def test_one_plain_json_render_spec_becomes_the_index_page() -> None:
    assert list(parse_site(page(hero=element("Hero", heading="Hi"))).pages) == [INDEX]


def test_text_bytes_and_objects_give_the_same_site() -> None:
    text = json.dumps({"pages": {INDEX: page()}})
    assert parse_site(text) == parse_site(text.encode()) == parse_site({"pages": {INDEX: page()}})


def test_the_canonical_text_does_not_depend_on_the_order_of_keys() -> None:
    site = demo_site()
    assert parse_site(reordered(site.to_dict())).digest == site.digest


def test_the_canonical_text_reads_back_as_the_same_site() -> None:
    assert parse_site(demo_site().canonical()) == demo_site()


def test_a_copy_of_the_document_can_be_changed_without_changing_the_site() -> None:
    site = demo_site()
    site.to_dict()["pages"][INDEX]["elements"].clear()
    assert site == demo_site()


HOSTILE_TEXTS = {
    "not_json": "{'root': 1}",
    "duplicate_key": '{"root": "page", "root": "other", "elements": {}}',
    "bad_number": '{"root": "page", "state": {"x": NaN}, "elements": {}}',
    "not_a_spec": "[1, 2]",
    "too_deep": "[" * 100_000,
    "forbidden_key": '{"root": "page", "elements": {"__proto__": {}}}',
    "bad_text": '{"root": "page\\u0000", "elements": {}}',
}


@pytest.mark.threat("F13")
@pytest.mark.parametrize(("code", "text"), HOSTILE_TEXTS.items(), ids=HOSTILE_TEXTS)
def test_hostile_json_is_refused_by_a_named_rule(code: str, text: str) -> None:
    assert refusal(text) == code


@pytest.mark.threat("F13")
@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "1e999", "123456789012345678901234567890"])
def test_numbers_that_other_readers_read_differently_are_refused(number: str) -> None:
    assert refusal(f'{{"root": "p", "state": {{"x": {number}}}, "elements": {{}}}}') == "bad_number"


@pytest.mark.threat("F13")
@pytest.mark.parametrize("key", ["__proto__", "prototype", "constructor"])
def test_prototype_keys_are_refused_at_any_depth(key: str) -> None:
    assert refusal(page(hero=element("Hero", heading="x", deep=[{"a": {key: 1}}]))) == "forbidden_key"


@pytest.mark.threat("F13")
def test_unterminated_quotes_do_not_make_the_reader_slow() -> None:
    assert refusal('"\\' * 200_000) == "not_json"


@pytest.mark.threat("F13")
@pytest.mark.parametrize("char", ["\x00", "\x1b", "\u202e", "\u2066", "\ud800", "\x9f"])
def test_characters_that_hide_or_turn_text_are_refused(char: str) -> None:
    assert refusal(page(hero=element("Hero", heading=f"a{char}b"))) == "bad_text"


@pytest.mark.threat("F13")
def test_every_refused_character_is_refused_where_nothing_else_is_wrong() -> None:
    ranges = [(0, 9), (0x0B, 0x0D), (0x0E, 0x20), (0x7F, 0xA0), (0x202A, 0x202F), (0x2066, 0x206A), (0xD800, 0xE000)]
    refused = [chr(point) for low, high in ranges for point in range(low, high)] + ["\ufffe", "\uffff"]
    for char in refused:
        with pytest.raises(SpecError, match="bad_text"):
            check_json(["fine", {"key": f"a{char}b"}])
    check_json("".join(map(chr, range(0x20, 0x7F))) + "\t\n\r\xa0\xad\u200b\u2028\ue000\U000e0001")


@pytest.mark.threat("F13")
@pytest.mark.parametrize(
    "text",
    [
        r'{"a": "one", "a": "two"}',
        r'[{"a": 1}, {"a": {"b\\": [], "c": "\"", "b\\": {"d": "\\"}}}]',
        r'{"a\"": 1, "b": "\\\"", "a\u0022": null}',
        r'{"": {}, "": {"x": 1}}',
    ],
)
def test_a_key_that_stands_twice_is_found_at_any_depth_and_among_any_quotes(text: str) -> None:
    with pytest.raises(SpecError, match="duplicate_key"):
        loads_strict(text)


@settings(max_examples=50)
@given(st.recursive(quoted, lambda inner: st.lists(inner) | st.dictionaries(quoted, inner), max_leaves=10))
def test_quotes_and_backslashes_are_no_second_keys(value: object) -> None:
    assert loads_strict(json.dumps(value)) == value


@pytest.mark.threat("F13")
def test_a_list_that_stands_in_many_places_is_counted_in_each_and_not_unrolled() -> None:
    wide = [0] * 20_000
    with pytest.raises(SpecError, match="too_large"):
        check_json([wide] * 20_000)


def test_a_site_that_is_too_large_is_refused_before_it_is_parsed() -> None:
    assert refusal('{"root": "' + "x" * MAX_SITE_BYTES + '"') == "too_large"


def test_an_object_that_is_nested_too_deep_is_refused() -> None:
    value: object = "end"
    for _ in range(MAX_JSON_DEPTH + 2):
        value = [value]
    assert refusal({"root": "p", "state": {"x": value}, "elements": {}}) == "too_deep"


def test_objects_that_are_not_json_are_refused() -> None:
    assert refusal({"root": "p", "elements": {1: {}}}) == "not_json"
    assert refusal({"root": "p", "elements": {"a": object()}}) == "not_json"


@pytest.mark.parametrize(
    "path",
    ["../index.html", "/index.html", "A.html", "index.php", "a/../b.html", "x" * 200 + ".html", ".html", "a b.html"],
)
def test_page_paths_that_are_not_plain_names_are_refused(path: str) -> None:
    assert refusal({"pages": {INDEX: page(), path: page()}}) == "bad_page_path"


def test_a_site_without_an_index_page_is_refused() -> None:
    assert refusal({"pages": {"about.html": page()}}) == "no_index"


def test_unknown_fields_beside_pages_are_refused() -> None:
    assert refusal({"pages": {INDEX: page()}, "scripts": []}) == "unknown_field"


def test_errors_survive_pickling_and_print_safely() -> None:
    with pytest.raises(SpecError) as caught:
        parse_site({"pages": {INDEX: page(), "\u202eevil.html": page()}})
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.findings == caught.value.findings
    assert "\u202e" not in str(again)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=30)
@given(json_values)
def test_any_json_value_is_read_or_refused_with_findings(value: object) -> None:
    with suppress(SpecError):
        site = parse_site(value)  # type: ignore[arg-type]
        assert isinstance(site, Site)
        assert parse_site(site.canonical()) == site


def test_the_demo_site_has_at_least_eight_sections_on_two_pages() -> None:
    pages = parse_site(demo_text()).pages
    assert len(pages) == 2
    assert all(len(spec["elements"]) > 8 for spec in pages.values())


_PIECES = (
    r'{ } [ ] : , " "a" "b": \ \u0000 \ud83d\ude00 -0 0.1 1e999 01 9007199254740993 NaN -Infinity null true [[[[ '
    '{"a":1,"a":2} {"__proto__":[]}'
)
json_like = st.lists(st.sampled_from([*_PIECES.split(), *" \n\x00\x7f\u202e\ufeff\ud800"]), max_size=8).map("".join)


@given(json_like | st.recursive(st.none() | st.floats() | st.integers() | quoted, st.lists).map(json.dumps))
@example('{"a":1,"a":2}')
@settings(max_examples=100, deadline=None)
def test_what_the_quick_reader_takes_the_careful_one_reads_alike(text: str) -> None:
    quick = model._read_if_plain(text)

    assert quick is None or repr(quick) == repr(model._read_carefully(text))
