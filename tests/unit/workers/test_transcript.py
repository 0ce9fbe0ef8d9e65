"""What is kept of what a session printed."""

import gzip

from workers.transcript import MAX_BYTES, Transcript


def test_the_token_is_not_kept() -> None:
    transcript = Transcript(secret="s3cret")
    transcript.add(b'{"a": "s3cret"}')
    assert gzip.decompress(transcript.packed()) == b'{"a": "[token]"}\n'


def test_of_a_long_session_the_beginning_and_the_end_are_kept() -> None:
    transcript = Transcript(secret="-")
    for number in range(60):
        transcript.add(f"{number:04}".encode() + b"x" * 100_000)
    kept = gzip.decompress(transcript.packed())
    assert len(kept) <= MAX_BYTES
    assert kept.startswith(b"0000")
    assert b"0059" in kept


def test_equal_sessions_give_equal_bytes() -> None:
    first, second = Transcript(secret="-"), Transcript(secret="-")
    first.add(b"a")
    second.add(b"a")
    assert first.packed() == second.packed()
