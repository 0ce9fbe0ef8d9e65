"""What is kept of what a session printed."""

import gzip

import pytest

from workers.transcript import MAX_BYTES, Hider, Transcript


@pytest.mark.threat("C9")
def test_the_token_is_not_kept() -> None:
    hider = Hider("s3cret")
    assert hider.line(b'{"a": "s3cret", "b": "xs3crety"}') == b'{"a": "[token]", "b": "x[token]y"}'
    assert hider.text("It is s3cret.") == "It is [token]."


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
