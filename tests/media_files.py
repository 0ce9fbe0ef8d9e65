"""Images and PDFs made for tests: as small as their formats allow, and of any size on paper."""

import struct
import zlib
from collections.abc import Callable
from itertools import accumulate


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def jpeg(width: int, height: int) -> bytes:
    frame = struct.pack(">BHHB", 8, height, width, 1) + b"\x01\x11\x00"
    parts = ((0xE1, b"Exif\0\0" + bytes(3000)), (0xC0, frame), (0xDA, b"\x01\x01\x00\x00\x3f\x00"))
    return b"\xff\xd8" + b"".join(struct.pack(">BBH", 0xFF, kind, len(data) + 2) + data for kind, data in parts)


def gif(width: int, height: int) -> bytes:
    screen = struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    comment = b"!\xfe\x02hi\x00"
    return b"GIF89a" + screen + comment + b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x00;"


def webp(width: int, height: int) -> bytes:
    bits = (width - 1) | (height - 1) << 14
    data = b"\x2f" + struct.pack("<I", bits)
    return b"RIFF" + struct.pack("<I", len(data) + 12) + b"WEBPVP8L" + struct.pack("<I", len(data)) + data


IMAGES: dict[str, Callable[[int, int], bytes]] = {"png": png, "jpeg": jpeg, "gif": gif, "webp": webp}


def pdf(pages: int, *, is_packed: bool = False, content: bytes = b"") -> bytes:
    """Return a PDF; packed, its pages stand in a compressed object stream, as most writers put them."""
    kids = b" ".join(b"%d 0 R" % (number + 3) for number in range(pages))
    tree = b"<</Type/Pages/Count %d/Kids[%s]>>" % (pages, kids)
    shown = b"/Contents %d 0 R" % (pages + 3) if content else b""
    leaves = [b"<</Type/Page/Parent 2 0 R%s>>" % (b"" if number else shown) for number in range(pages)]
    catalog = b"1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
    packed = zlib.compress(content)
    body = b"%d 0 obj<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream endobj\n" % (pages + 3, len(packed), packed)
    if is_packed:
        body = (body if content else b"") + _object_stream(number=pages + 4, first=2, objects=[tree, *leaves])
    else:
        named = b"".join(b"%d 0 obj%sendobj\n" % (number, each) for number, each in enumerate([tree, *leaves], 2))
        body = named + (body if content else b"")
    return b"%PDF-1.7\n" + catalog + body + b"trailer<</Root 1 0 R/Size %d>>\n%%%%EOF" % (pages + 5)


def _object_stream(*, number: int, first: int, objects: list[bytes]) -> bytes:
    starts = [0, *accumulate(len(each) + 1 for each in objects)]
    index = b" ".join(b"%d %d" % pair for pair in zip(range(first, first + len(objects)), starts, strict=False))
    data = zlib.compress(index + b"\n" + b"\n".join(objects))
    fields = b"/Type/ObjStm/N %d/First %d/Length %d" % (len(objects), len(index) + 1, len(data))
    return b"%d 0 obj<<%s/Filter/FlateDecode>>stream\n%s\nendstream endobj\n" % (number, fields, data)
