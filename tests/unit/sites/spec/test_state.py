from __future__ import annotations

from typing import Any

import pytest

from sites.spec.state import MISSING, is_equal, is_same, is_truthy, parse_int, text_of, trim


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (1.0, "1"),
        (-0.0, "0"),
        (0.5, "0.5"),
        (-2.5, "-2.5"),
        (1e21, "1e+21"),
        (1e20, "1" + "0" * 20),
        (1.5e300, "1.5e+300"),
        (1e-6, "0.000001"),
        (2.5e-7, "2.5e-7"),
        (123456.789, "123456.789"),
        (True, "true"),
        (None, ""),
        (MISSING, ""),
        ([1, None, [2, "x"]], "1,,2,x"),
        ({}, "[object Object]"),
        ("a", "a"),
    ],
)
def test_values_print_as_in_javascript(value: Any, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        ("01", 1),
        ("1x", 1),
        (" 1", 1),
        ("-1", -1),
        ("", None),
        ("x1", None),
        ("²", None),
        ("9" * 5000, 10**15),
    ],
)
def test_indexes_are_read_as_parse_int_reads_them(text: str, number: int | None) -> None:
    assert parse_int(text) == number


def test_true_is_not_one_and_equal_lists_are_two_things() -> None:
    items = [1]
    assert (is_same(True, 1), is_same(1, 1.0), is_same([1], [1]), is_same(items, items)) == (False, True, False, True)
    assert is_same(MISSING, MISSING)
    assert not is_same(MISSING, None)


def test_empty_containers_are_true() -> None:
    assert [is_truthy(value) for value in ([], {}, 0, "", "0", None, MISSING)] == [
        True,
        True,
        *[False] * 2,
        True,
        *[False] * 2,
    ]


def test_deep_equality_is_upstreams() -> None:
    assert is_equal({"a": [1, {"b": None}]}, {"a": [1.0, {"b": None}]})
    assert is_equal({"0": 1}, [1])
    assert not is_equal([1], {"0": 1})
    assert not is_equal({"a": 1}, {"b": 1})


def test_blanks_are_javascripts() -> None:
    assert trim("\ufeff\u00a0 x \u2003\n") == "x"
    assert trim("\x1cx") == "\x1cx"
