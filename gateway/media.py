"""Sizes of images and pages of PDFs, read from untrusted bytes without rendering them.

Money rests on the answers, so each reader says None where the provider's reader might see something else.
"""

from __future__ import annotations

import re
import struct
import zlib
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable
from typing import NamedTuple

_MOST_CHARACTERS = 512 * 1024
"""Base64 that is looked at: in it an image must state its size, after a camera's metadata. A multiple of four."""


class Size(NamedTuple):
    """Pixels."""

    width: int
    height: int


def image_size(encoded: str) -> Size | None:
    """Return the size of a base64 PNG, JPEG, GIF or WebP; None if its header leaves a doubt."""
    try:
        data = a2b_base64(encoded[:_MOST_CHARACTERS], strict_mode=True)
        size = next((read(data) for signature, read in _READERS.items() if data.startswith(signature)), None)
    except (Base64Error, ValueError, struct.error, IndexError):
        return None
    return size if size is not None and min(size) > 0 else None


def _png_size(data: bytes) -> Size | None:
    if data[12:16] != b"IHDR" or data.count(b"IHDR") > 1:
        return None
    return Size(*struct.unpack_from(">II", data, 16))


_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SCAN_MARKER = 0xDA


def _jpeg_size(data: bytes) -> Size | None:
    at, frames = 2, list[Size]()
    while True:
        lead, marker, length = struct.unpack_from(">BBH", data, at)
        if lead != 0xFF or length < 2:
            return None
        if marker == _SCAN_MARKER:
            return frames[0] if len(frames) == 1 else None
        if marker in _FRAME_MARKERS:
            frames.append(Size(*reversed(struct.unpack_from(">HH", data, at + 5))))
        at += 2 + length


def _gif_size(data: bytes) -> Size | None:
    """Return the screen's size, enlarged by a first frame that exceeds it, as decoders do."""
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + _color_table_bytes(flags)
    while data[at] == ord("!"):
        at += 2
        while data[at]:
            at += 1 + data[at]
        at += 1
    if data[at] != ord(","):
        return None
    left, top, wide, high = struct.unpack_from("<HHHH", data, at + 1)
    return Size(max(width, left + wide), max(height, top + high))


def _color_table_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _webp_size(data: bytes) -> Size | None:
    match data[8:16]:
        case b"WEBPVP8X":
            return Size(*(1 + int.from_bytes(data[at : at + 3], "little") for at in (24, 27)))
        case b"WEBPVP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return Size(1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
        case b"WEBPVP8 ":
            return Size(*(side & 0x3FFF for side in struct.unpack_from("<HH", data, 26)))
    return None


_READERS: dict[bytes, Callable[[bytes], Size | None]] = {
    b"\x89PNG\r\n\x1a\n": _png_size,
    b"\xff\xd8\xff": _jpeg_size,
    b"GIF8": _gif_size,
    b"RIFF": _webp_size,
}

PDF_PAGE_BYTES = 6000
"""The densest page that a price per page covers, in bytes of the file and of what it inflates to."""
_MOST_INFLATED = 4_000_000
"""Of one file, whatever its pages: the gateway reads it between calls."""
_HIDING_NAMES = (b"/ObjStm", b"/Encrypt", b"/Form", b"/ToUnicode", b"/Pattern", b"/Type3", b"/XFA")
"""What can hide pages or show a text many times: compressed objects, encryption, reused or mapped content."""
_HIDING = tuple(re.compile(rule) for rule in (rb"/[^\s/<>()\[\]]*#", rb"obj\s*\[", rb"/Count\s+\d+\s+\d+\s+R"))
"""Escaped names, and values apart from their names."""
_NUMEROUS = (b"/Kids", b"/Contents", b"/Count", b"/Filter", b"stream", b"#")
_MOST_TIMES = 4000
"""A file with more of one of these takes too long to read."""
_LISTS = {
    name: re.compile(rb"/%s\s*(?:\[((?:\s*\d+\s+\d+\s+R)*)\s*\]|(\d+\s+\d+\s+R))" % name)
    for name in (b"Kids", b"Contents")
}
_REFERENCE = re.compile(rb"(\d+)\s+\d+\s+R")
_COUNT = re.compile(rb"/Count\s+(\d{1,9})")
_FILTER = re.compile(rb"/Filter\b(\s*\[?\s*/FlateDecode\s*\]?\s*[/>])?")
_STREAM = re.compile(rb"\bstream\r?\n")


def pdf_pages(encoded: str) -> int | None:
    """Return the most pages that a base64 PDF can have; None unless every page and all content is in plain sight."""
    if len(encoded) > _MOST_CHARACTERS:
        return None
    try:
        data = a2b_base64(encoded, strict_mode=True)
    except (Base64Error, ValueError):
        return None
    if not data.startswith(b"%PDF-") or _may_hide_content(data):
        return None
    kids, contents = _references(data, b"Kids"), _references(data, b"Contents")
    if kids is None or contents is None:
        return None
    if not _is_sparse(data, most=min(PDF_PAGE_BYTES * max(1, len(kids)), _MOST_INFLATED)):
        return None
    return max(1, len(kids), *(int(count) for count in _COUNT.findall(data)))


def _may_hide_content(data: bytes) -> bool:
    return (
        any(name in data for name in _HIDING_NAMES)
        or any(data.count(name) > _MOST_TIMES for name in _NUMEROUS)
        or any(rule.search(data) for rule in _HIDING)
    )


def _references(data: bytes, name: bytes) -> list[bytes] | None:
    """Return the objects that every entry of this name refers to; None if one is unclear or refers to one again."""
    found = _LISTS[name].findall(data)
    objects = [number for listed, single in found for number in _REFERENCE.findall(listed or single)]
    is_clear = len(found) == data.count(b"/" + name) and len(objects) == len(set(objects))
    is_apart = name == b"Kids" and any(single for _, single in found)
    return objects if is_clear and not is_apart else None


def _is_sparse(data: bytes, *, most: int) -> bool:
    """Whether the file and all that it inflates to is at most so long; not if a stream is packed in another way.

    A stream that begins within another one is none that a writer makes: to read each would take the square of the time.
    """
    size, inflated, end = len(data), 0, 0
    for found in _STREAM.finditer(data):
        if found.start() < end:
            return False
        reader, end = zlib.decompressobj(), data.find(b"endstream", found.end())
        if size > most or end < 0:
            return False
        try:
            size += len(reader.decompress(data[found.end() : end], most + 1 - size))
        except zlib.error:
            continue
        inflated += reader.eof
    filters = _FILTER.findall(data)
    return size <= most and all(filters) and inflated == len(filters)
