from __future__ import annotations

import pytest

from producers.harmless import harmless


@pytest.mark.parametrize(
    "sign", ["\x1b", "\x00", "\r", "\x7f", "\x9b", "\u061c", "\u200f", "\u2028", "\u202e", "\u2067"]
)
def test_what_would_control_how_text_is_shown_is_a_mark_in_its_place(sign: str) -> None:
    assert harmless(f"if {sign}admin") == "if \ufffdadmin"


def test_code_indented_by_tabs_is_shown_as_it_is() -> None:
    assert harmless("+\tif x {\n") == "+\tif x {\n"
