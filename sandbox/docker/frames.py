"""The engine's multiplexed output: frames of one byte for the stream, three unused, four of length, then the data."""

from __future__ import annotations

import struct
from typing import NamedTuple

_HEADER = struct.Struct(">BxxxL")
_STDOUT, _STDERR, _ERROR = 1, 2, 3


class Output(NamedTuple):
    """What one piece of the connection held."""

    stdout: bytes
    stderr: bytes


class Frames:
    """Takes the bytes of a connection as they come. A frame's data is handed on at once, not kept until it is whole."""

    def __init__(self) -> None:
        self._header = b""
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> Output:
        """Return the output in some bytes.

        Raises:
            ConnectionError: they are no frames (the engine's fault).
        """
        stdout, stderr = bytearray(), bytearray()
        place = 0
        while place < len(data):
            if not self._left:
                place = self._read_header(data, place)
                continue
            piece = data[place : place + self._left]
            place += len(piece)
            self._left -= len(piece)
            (stdout if self._stream == _STDOUT else stderr).extend(piece)
        return Output(bytes(stdout), bytes(stderr))

    def _read_header(self, data: bytes, place: int) -> int:
        wanted = _HEADER.size - len(self._header)
        self._header += data[place : place + wanted]
        if len(self._header) == _HEADER.size:
            self._stream, self._left = _HEADER.unpack(self._header)
            self._header = b""
            if self._stream not in (_STDOUT, _STDERR, _ERROR):
                raise ConnectionError("the engine sent something else than a command's output")
        return place + wanted
