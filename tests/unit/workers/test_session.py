"""A session's token, and what it may read of an earlier one."""

import pytest

from routing.policy.prices import Price
from sandbox.transcripts import MAX_RESUMED_BYTES
from workers.session import TokenMasker, readable_bytes


@pytest.mark.threat("C9")
def test_the_token_is_not_kept() -> None:
    hider = TokenMasker("pma_s3cret-0123456")
    line = b'{"a": "pma_s3cret-0123456", "b": "xpma_s3cret-0123456y"}'
    assert hider.line(line) == b'{"a": "[token]", "b": "x[token]y"}'
    assert hider.text("It is pma_s3cret-0123456.") == "It is [token]."


@pytest.mark.parametrize("token", ["", "t", "x" * 15])
def test_what_is_too_short_for_a_token_takes_no_words_with_it(token: str) -> None:
    assert TokenMasker(token).text("a text with t and x" + token) == "a text with t and x" + token
    assert TokenMasker(token).line(b"a text") == b"a text"


def test_reading_what_was_said_may_use_half_of_what_is_left() -> None:
    price = Price(input=3, output=15, cache_write=3.75, cache_read=0.3)
    assert readable_bytes(price, 0.05) == 20_000
    assert readable_bytes(price, 100) == MAX_RESUMED_BYTES
    assert readable_bytes(Price(input=0, output=0, cache_write=0, cache_read=0), 0.05) == MAX_RESUMED_BYTES
