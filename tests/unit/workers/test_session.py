"""What is kept of what a session printed."""

import gzip

import pytest

from workers.session import MAX_BYTES, TokenMasker, Transcript


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


def test_of_a_long_session_the_beginning_and_the_end_are_kept() -> None:
    transcript = Transcript()
    for number in range(60):
        transcript.add(f"{number:04}".encode() + b"x" * 100_000)
    kept = gzip.decompress(transcript.packed())
    assert len(kept) <= MAX_BYTES
    assert kept.startswith(b"0000")
    assert b"0059" in kept


def test_equal_sessions_give_equal_bytes() -> None:
    first, second = Transcript(), Transcript()
    first.add(b"a")
    second.add(b"a")
    assert first.packed() == second.packed()
