"""A text without a mark holds no secret: each pattern's marks stand in everything that it finds."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.redaction import HIDDEN, MARKED, may_hide


@pytest.mark.parametrize(("marks", "pattern"), MARKED, ids=lambda part: part[0] if isinstance(part, tuple) else "")
def test_whatever_a_pattern_finds_holds_one_of_its_marks(marks: tuple[str, ...], pattern: str) -> None:
    # What has to stand before or behind a find becomes a part of it.
    whole = re.compile(pattern.replace("(?<=", "(?:").replace("(?=", "(?:"))

    @settings(max_examples=20)
    @given(text=st.from_regex(whole), before=st.text(max_size=5))
    def hold(text: str, before: str) -> None:
        assert any(mark in text.casefold() for mark in marks)
        assert may_hide(before + text)
        assert may_hide(repr({"before": [before + text]}))

    hold()


@given(text=st.text(alphabet="skpmghwear_-=:/@ \u017f\u212a\n'\"\\0", max_size=60))
def test_what_has_no_mark_has_nothing_to_hide(text: str) -> None:
    assert may_hide(text) or HIDDEN.search(text) is None


@pytest.mark.parametrize("text", ["my pa\u017f\u017fword=hunter2", "PASSWORD: x", "BEARER abcdefghijklmnop"])
def test_a_mark_is_one_whatever_the_case_of_its_letters(text: str) -> None:
    assert HIDDEN.search(text)
    assert may_hide(text)
