"""What is taken for a key, and that hostile text costs no more time than any other."""

import time

import pytest

from routing.redaction import REDACTED, redact

TOKEN = "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"


@pytest.mark.parametrize("text", ["{}", "session={}", "a-{}", "_{} and more", "eyJeyJ.{}"])
def test_a_token_is_redacted_wherever_it_stands(text: str) -> None:
    assert redact(text.format(TOKEN)) == text.format(REDACTED)


@pytest.mark.parametrize("unit", ["eyJ", "eyJaaaaaaaaaa.", "://a:", "-----BEGIN ", "bearer ", "password="])
def test_text_that_is_made_to_be_slow_is_redacted_in_linear_time(unit: str) -> None:
    started = time.process_time()
    redact(unit * (131_072 // len(unit)))
    assert time.process_time() - started < 1  # of seven seconds
