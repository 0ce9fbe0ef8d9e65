"""YAML from outside: every part knows its line, and what could blow up or deceive is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.errors import YamlRefusedError
from routing.policy.yaml_positions import MAX_BYTES, read_located


def refusal(text: str) -> str:
    with pytest.raises(YamlRefusedError) as refused:
        read_located(text)
    return str(refused.value)


def test_every_part_knows_its_line() -> None:
    document = read_located("a: 1\nb:\n  - x\n  - c: 2\n    d: 3\n")
    assert document.value == {"a": 1, "b": ["x", {"c": 2, "d": 3}]}
    assert [document.line_of(place) for place in [("a",), ("b", 0), ("b", 1, "d")]] == [1, 3, 5]


def test_a_place_that_is_not_there_has_the_line_of_what_is_around_it() -> None:
    document = read_located("a: 1\nb:\n  c: 2\n")
    assert document.line_of(("b", "missing", 3)) == 2
    assert document.line_of(("missing",)) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2", "line 2: the same key stands twice"),
        ("a: &x 1\nb: *x", "line 1: anchors and aliases are not taken"),
        ("a: 1\nb: *x", "line 2: anchors and aliases are not taken"),
        ("a: !!python/object:os.system x", "line 1: tags are not taken"),
        ("a: 1\nb: [1, 2", "line 2: expected ',' or ']'"),
        ("a: b: c", "line 1: mapping values are not allowed here"),
        ("? [a, b]\n: 1", "line 1: a key must be a word"),
        ("a: 2026-99-99", "line 1: is no value that can be read"),
        ("n: " + "9" * 5000, "line 1: is no value that can be read"),
        ("", "is empty"),
        ("a: 1\n---\nb: 2", "line 2: but found another document"),
        ("a: \x00", "is no YAML text"),
        ("[" * 500, "line 1: is nested deeper than 20 levels"),
        ("a: [" + "1," * 9000 + "]", "line 1: has too many values"),
        ("#" * (MAX_BYTES + 1), f"has more than {MAX_BYTES} bytes"),
    ],
)
def test_what_is_not_taken_is_told_with_its_line(text: str, said: str) -> None:
    assert refusal(text).startswith(said)


@given(st.text(alphabet="ab:-[]{}&*!|>'\" \n#?,0123456789", max_size=60))
def test_whatever_is_written_there_is_a_value_or_a_refusal(text: str) -> None:
    try:
        document = read_located(text)
    except YamlRefusedError:
        return
    assert document.line_of(()) >= 1
