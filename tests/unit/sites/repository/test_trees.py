"""A pack is looked through before anything unpacks it."""

import hashlib
import io
import struct
import zlib
from contextlib import suppress

import pytest
from dulwich.object_format import SHA1
from dulwich.objects import Blob
from dulwich.pack import write_pack_objects
from hypothesis import given
from hypothesis import strategies as st

from sites.errors import RepositoryRefusedError
from sites.repository.trees import PackLimits, check_pack

LIMITS = PackLimits(objects=100, object_bytes=10_000, total_bytes=20_000)


def packed(*contents: bytes) -> bytes:
    buffer = io.BytesIO()
    write_pack_objects(buffer.write, [Blob.from_string(data) for data in contents], object_format=SHA1)
    return buffer.getvalue()


def raw(*objects: tuple[int, bytes, bytes]) -> bytes:
    """A pack of hand-made objects: kind, what stands before the data, data. Stated sizes are lies."""
    body = b"PACK" + struct.pack(">LL", 2, len(objects))
    for kind, before, data in objects:
        body += bytes([kind << 4 | 1]) + before + zlib.compress(data, 9)
    return body + hashlib.sha1(body).digest()


def check(data: bytes, limits: PackLimits = LIMITS) -> None:
    check_pack(io.BytesIO(data), limits)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20, unique=True))
def test_what_git_writes_within_the_limits_passes(contents: list[bytes]) -> None:
    check(packed(*contents))


@pytest.mark.threat("A8")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (packed(b"x" * 10_001), "object_too_large"),
        (packed(b"a" * 9_000, b"b" * 9_000, b"c" * 9_000), "too_many_bytes"),
        (raw((3, b"", b"\0" * 5_000_000)), "object_too_large"),
        (raw((7, b"\1" * 20, b"\x01\xff\xff\xff\x7f" + b"x")), "object_too_large"),
        (raw((6, b"\x01", b"\x01\xff\xff\xff\x7f" + b"x")), "object_too_large"),
        (b"PACK" + struct.pack(">LL", 2, 4_000_000_000) + b"x" * 40, "too_many_objects"),
        (b"PACK" + struct.pack(">LL", 3, 1) + b"x" * 40, "bad_pack"),
        (packed(b"x")[:-5], "bad_pack"),
        (packed(b"x") + b"more", "bad_pack"),
        (b"", "bad_pack"),
        (b"PACK" + struct.pack(">LL", 2, 1) + b"\xff" * 400, "bad_pack"),
    ],
)
def test_a_pack_that_would_unfold_beyond_the_limits_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(RepositoryRefusedError) as refused:
        check(data)
    assert refused.value.reason == reason


@given(st.binary(max_size=200), st.integers(0, 60))
def test_nothing_that_is_sent_is_an_error_of_ours(noise: bytes, place: int) -> None:
    good = packed(b"some content", b"other content")
    with suppress(RepositoryRefusedError):
        check(good[:place] + noise + good[place + len(noise) :])
