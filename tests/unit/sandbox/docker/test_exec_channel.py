import pytest

from sandbox.docker.exec_channel import Frames

FRAME = b"\x01\0\0\0\0\0\0\x03abc" + b"\x02\0\0\0\0\0\0\x02no" + b"\x01\0\0\0\0\0\0\0" + b"\x01\0\0\0\0\0\0\x01d"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_frames_are_read_however_they_are_cut(size: int) -> None:
    frames = Frames()
    pieces = [frames.feed(FRAME[place : place + size]) for place in range(0, len(FRAME), size)]

    assert b"".join(piece.stdout for piece in pieces) == b"abcd"
    assert b"".join(piece.stderr for piece in pieces) == b"no"


def test_what_is_no_frame_is_a_broken_connection() -> None:
    with pytest.raises(ConnectionError):
        Frames().feed(b"HTTP/1.1 500 Internal Server Error")
