"""Looks through a pack before anything unpacks it: how many objects, how large each, how large all together.

A pack of a few kilobytes can unfold into gigabytes. The library reads each object as a whole, so a hostile one has to
be refused first; here every object is inflated piece by piece and thrown away.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import BinaryIO

from workers.errors import RepositoryRefusedError

MEBIBYTE = 1_048_576
_HEADER = struct.Struct(">4sLL")
_TRAILER_BYTES = 20
_OFFSET_DELTA, _REFERENCE_DELTA = 6, 7
_PIECE_BYTES = 65_536
_MAX_NUMBER_BYTES = 10


@dataclass(frozen=True)
class PackLimits:
    """What a project's repository may bring."""

    pack_bytes: int = 256 * MEBIBYTE
    """As it is sent."""
    objects: int = 100_000
    object_bytes: int = 64 * MEBIBYTE
    """One object, unpacked."""
    total_bytes: int = 512 * MEBIBYTE
    """All objects, unpacked."""


def check_pack(stream: BinaryIO, limits: PackLimits) -> None:
    """Read a whole pack and leave the stream at its start.

    Raises:
        RepositoryRefusedError: `too_many_objects object_too_large too_many_bytes bad_pack` (the fault of whoever sent
            it).
    """
    stream.seek(0)
    try:
        _Pack(stream, limits).check()
    except (struct.error, zlib.error, EOFError) as error:
        raise RepositoryRefusedError("bad_pack", f"it cannot be read ({type(error).__name__})") from None
    stream.seek(0)


class _Pack:
    def __init__(self, stream: BinaryIO, limits: PackLimits) -> None:
        self._stream = stream
        self._limits = limits
        self._rest = b""
        self._total = 0

    def check(self) -> None:
        magic, version, count = _HEADER.unpack(self._take(_HEADER.size))
        if magic != b"PACK" or version != 2:
            raise RepositoryRefusedError("bad_pack", "it is no pack of version 2")
        if count > self._limits.objects:
            raise RepositoryRefusedError("too_many_objects", f"{count} objects, at most {self._limits.objects}")
        for _ in range(count):
            self._object()
        if len(self._rest) + len(self._stream.read(_TRAILER_BYTES + 1)) != _TRAILER_BYTES:
            raise RepositoryRefusedError("bad_pack", "it does not end where it says")

    def _object(self) -> None:
        first = self._take(1)[0]
        kind = first >> 4 & 7
        if first & 0x80:
            self._number()
        if kind == _OFFSET_DELTA:
            self._number()
        elif kind == _REFERENCE_DELTA:
            self._take(20)
        head, size = self._inflate()
        if kind in (_OFFSET_DELTA, _REFERENCE_DELTA):
            size = max(size, _result_bytes(head))
        self._count(size)

    def _inflate(self) -> tuple[bytes, int]:
        """Return how an object begins, and how large it is."""
        inflater = zlib.decompressobj()
        head, size = b"", 0
        while not inflater.eof:
            given = inflater.unconsumed_tail or self._rest or self._stream.read(_PIECE_BYTES)
            if not given:
                raise EOFError
            if not inflater.unconsumed_tail:
                self._rest = b""
            piece = inflater.decompress(given, _PIECE_BYTES)
            size += len(piece)
            head = head or piece[: 2 * _MAX_NUMBER_BYTES]
            if size > self._limits.object_bytes:
                self._count(size)
        self._rest = inflater.unused_data + self._rest
        return head, size

    def _count(self, size: int) -> None:
        if size > self._limits.object_bytes:
            raise RepositoryRefusedError("object_too_large", f"a file of more than {self._limits.object_bytes} bytes")
        self._total += size
        if self._total > self._limits.total_bytes:
            raise RepositoryRefusedError("too_many_bytes", f"more than {self._limits.total_bytes} bytes, unpacked")

    def _number(self) -> None:
        for _ in range(_MAX_NUMBER_BYTES):
            if not self._take(1)[0] & 0x80:
                return
        raise RepositoryRefusedError("bad_pack", "a number in it never ends")

    def _take(self, count: int) -> bytes:
        if len(self._rest) < count:
            self._rest += self._stream.read(max(count, _PIECE_BYTES))
        if len(self._rest) < count:
            raise EOFError
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken


def _result_bytes(delta: bytes) -> int:
    """Return how large what a delta describes will be: the second of the two numbers that it begins with."""
    numbers, place = [0, 0], 0
    for which in (0, 1):
        for step in range(_MAX_NUMBER_BYTES):
            if place >= len(delta):
                raise EOFError
            byte = delta[place]
            place += 1
            numbers[which] |= (byte & 0x7F) << (7 * step)
            if not byte & 0x80:
                break
    return numbers[1]
