"""Sizes and pages read from files that may be hostile: what is told is certain, and doubt is told as None."""

import base64
import random
import struct
import time
import zlib

import pytest

from gateway.media import image_size, pdf_pages
from tests.media_files import IMAGES, gif, jpeg, pdf, png, webp


def size(data: bytes) -> tuple[int, int] | None:
    return image_size(base64.b64encode(data).decode())


def pages(data: bytes) -> int | None:
    return pdf_pages(base64.b64encode(data).decode())


@pytest.mark.parametrize("kind", IMAGES)
def test_each_kind_of_image_states_its_size(kind: str) -> None:
    for width, height in ((1, 1), (640, 480), (3000, 7)):
        assert size(IMAGES[kind](width, height)) == (width, height)


def test_the_other_kinds_of_webp_state_their_size() -> None:
    lossy = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 550, 368)
    extended = b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0" + (399).to_bytes(3, "little") + (300).to_bytes(3, "little")
    assert size(lossy) == (550, 368)
    assert size(extended) == (400, 301)


def test_a_frame_that_exceeds_its_screen_counts() -> None:
    data = gif(10, 10)
    at = data.index(b",") + 1
    larger = data[:at] + struct.pack("<HHHH", 5, 0, 2000, 3) + data[at + 8 :]
    assert size(larger) == (2005, 10)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GIF89a",
        b"\x89PNG\r\n\x1a\n",
        png(0, 5),
        png(5, 5)[:18],
        png(5, 5) + png(4000, 4000)[8:],
        jpeg(5, 5)[:100],
        jpeg(5, 5).replace(b"\xff\xda", jpeg(9000, 9000)[-26:-13] + b"\xff\xda"),
        b"\xff\xd8\xff\xe1\x00\x00" + jpeg(5, 5)[2:],
        b"\xff\xd8" + b"\xff\xe1\xff\xff" * 9,
        b"GIF89a" + struct.pack("<HHBBB", 5, 5, 0, 0, 0) + b"!\xfe" + b"\xff" * 600,
        webp(5, 5)[:20],
        b"BM" + bytes(60),
        pdf(1),
    ],
)
def test_a_doubtful_header_states_no_size(data: bytes) -> None:
    assert size(data) is None


@pytest.mark.parametrize("encoded", ["!", "====", "data:image/png;base64,AAAA", "AA\nAA", "é"])
def test_what_is_no_base64_states_nothing(encoded: str) -> None:
    assert image_size(encoded) is None
    assert pdf_pages(encoded) is None


@pytest.mark.parametrize("count", [1, 2, 100])
def test_a_plain_pdf_has_as_many_pages_as_its_tree_has_leaves(count: int) -> None:
    assert pages(pdf(count)) == count
    assert pages(pdf(count, content=b"BT (Hello) Tj ET")) == count


@pytest.mark.parametrize(
    "data",
    [
        pdf(5, is_packed=True),
        pdf(5).replace(b"3 0 R 4 0 R", b"3 0 R 3 0 R"),
        pdf(5).replace(b"/Kids[", b"/K#69ds["),
        pdf(5).replace(b"/Kids[", b"/Kids%\n["),
        pdf(5).replace(b"/Kids[3 0 R 4 0 R 5 0 R 6 0 R 7 0 R]", b"/Kids 9 0 R") + b"9 0 obj[3 0 R]endobj",
        pdf(5).replace(b"/Count 5", b"/Count 9 0 R"),
        pdf(5) + b"<</Encrypt 9 0 R>>",
        pdf(2, content=b"x" * 20_000),
        pdf(2, content=bytes(10**7)),
        pdf(2, content=b"x").replace(b"/FlateDecode", b"/LZWDecode"),
        pdf(2, content=b"x").replace(b"/FlateDecode", b"[/ASCII85Decode/FlateDecode]"),
        pdf(2, content=b"x").replace(zlib.compress(b"x")[:4], b"\0\0\0\0"),
        pdf(2) + b"/Type/XObject/Subtype/Form",
        pdf(1) + b"/Contents[9 0 R 9 0 R]",
        pdf(1) + b"%" * 7000,
        b"\n" + pdf(1),
        b"%PDF-1.7",
    ][:-1],
)
def test_a_pdf_that_may_hide_pages_or_text_states_none(data: bytes) -> None:
    assert pages(data) is None


def test_the_higher_of_two_numbers_of_pages_counts() -> None:
    assert pages(pdf(5).replace(b"/Count 5", b"/Count 70")) == 70
    assert pages(pdf(5).replace(b"/Count 5", b"/Count 1")) == 5


def test_streams_within_streams_cost_no_more_than_one() -> None:
    kids = b" ".join(b"%d 0 R" % number for number in range(3000))
    data = b"%PDF-1.7\n/Kids [" + kids + b"]\n" + b"stream\n" * 3900 + b" " * 320_000 + b"endstream"
    started = time.process_time()
    assert pages(data) is None
    assert time.process_time() - started < 0.1  # of a second and a half, and eight fit into one request


def test_a_file_that_inflates_beyond_what_is_read_between_calls_states_no_pages() -> None:
    assert pages(pdf(2000, content=bytes(3_500_000))) == 2000
    assert pages(pdf(2000, content=bytes(4_000_000))) is None


@pytest.mark.timeout(20)
def test_reading_what_was_made_to_be_slow_takes_no_time() -> None:
    for unit in (b"/Kids[", b"/Kids[1 0 R ", b"stream\n", b"1 0 R ", b"/Contents 1", b"[ ", b"/Filter[", b"/Count 9"):
        pages(b"%PDF-1.7/Kids[" + unit * (2_000_000 // len(unit)))


def test_bytes_that_were_changed_at_random_break_nothing() -> None:
    dice = random.Random(18)
    whole = [make(300, 200) for make in IMAGES.values()] + [pdf(3, content=b"BT (x) Tj ET")]
    for _ in range(3000):
        data = bytearray(dice.choice(whole))
        for _ in range(dice.randrange(1, 6)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        size(bytes(data[: dice.randrange(len(data) + 1)]))
        pages(bytes(data))
