import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.policy.platform import platform_policy
from sites.files import MEDIA_TYPES
from sites.scan.engine import scan
from sites.scan.rules import RULES, Finding

PROFILE = platform_policy().profiles["default"]
SIZE = 250_000

PIECES = [
    ("a.html", b"", b"<div>"),
    ("a.html", b"", b"<div a=b>"),
    ("a.html", b"<a ", b"a "),
    ("a.html", b"", b"<"),
    ("a.html", b"", b"</"),
    ("a.html", b"", b"<!--"),
    ("a.html", b"", b"<a b='"),
    ("a.html", b"", b"<svg><g></x>"),
    ("a.html", b"", b"<select>"),
    ("a.html", b"", b"<noscript>"),
    ("a.html", b"<style>", b"</style"),
    ("a.html", b"<script>", b"<!--<script>"),
    ("a.html", b"<a href='", b"&amp"),
    ("a.html", b"<img srcset='(", b",a"),
    ("a.html", b"", b"<p style='a:url(b)'>"),
    ("a.html", b"", b"<img src='data:image/svg+xml,<svg/>'>"),
    ("a.css", b"", b"\\75rl(("),
    ("a.css", b"", b"image-set(var("),
    ("a.css", b"", b"a{b:'"),
    ("a.css", b"", b"behavior/*"),
    ("a.js", b"", b"eval//"),
    ("a.js", b"", b"eval/*"),
    ("a.js", b"", b"location ="),
    ("a.js", b"", b"new a"),
    ("a.js", b"", b"\\u0065"),
    ("a.txt", b"", b"eyJaaaaaaaaa."),
    ("a.txt", b"", b"%41&#65;"),
    ("a.txt", b"", b"://a:"),
    ("a.txt", b"", b"aws"),
    ("a.txt", b"", b"A"),
    ("a.txt", b"", b"A" * 60 + b"\n"),
    ("a.txt", b"", b"\0"),
    ("a.txt", b"", b"a<b>"),
    ("a.txt", b"", b"'+'"),
    ("a.txt", b"", b"115,"),
    ("a.svg", b"", b"<g>"),
    ("a.svg", b"<svg ", b"a='b' "),
    ("a.svg", b"", b"<!DOCTYPE "),
    ("a.svg", b"", b"<?xml encoding"),
    ("a.pdf", b"%PDF-", b"#41"),
    ("package.json", b"", b"["),
    ("package.json", b"", b'{"a":'),
]


@pytest.mark.threat("F12", "G6", "G7")
def test_ten_megabytes_of_hostile_input_take_bounded_time() -> None:
    files = {
        f"{number}/{name}": head + piece * (SIZE // len(piece)) for number, (name, head, piece) in enumerate(PIECES)
    }
    started = time.process_time()
    report = scan(files, PROFILE, profile_name="default", known_keys=("k" * 40,))
    seconds = time.process_time() - started
    assert not report.passed
    assert seconds < 10  # below 4 on an idle machine; a shared core also charges for its neighbour


@pytest.mark.threat("F12")
@pytest.mark.parametrize(("name", "head", "piece"), PIECES)
def test_no_kind_of_hostile_input_takes_more_than_linear_time(name: str, head: bytes, piece: bytes) -> None:
    started = time.process_time()
    scan({name: head + piece * (SIZE // len(piece))}, PROFILE, profile_name="default")
    assert time.process_time() - started < 4  # below 1 on an idle machine; quadratic ones took minutes


@pytest.mark.threat("G4")
@pytest.mark.parametrize("depth", [5, 40])
def test_images_within_images_end(depth: int) -> None:
    inner = "<svg xmlns='http://www.w3.org/2000/svg'/>"
    for _ in range(depth):
        inner = f"<svg xmlns='http://www.w3.org/2000/svg'><image href='data:image/svg+xml,{_quoted(inner)}'/></svg>"
    report = scan({"a.svg": inner.encode()}, PROFILE, profile_name="default")
    assert {finding.rule for finding in report.findings} == {"html-too-complex"}


def _quoted(text: str) -> str:
    return text.replace("%", "%25").replace("'", "%27").replace("<", "%3C").replace("&", "%26")


NAMES = st.sampled_from([f"a.{extension}" for extension in MEDIA_TYPES] + ["package.json", "b", ".well-known/a"])
FRAGMENTS = [
    b"<script>",
    b"</script>",
    b"<style>",
    b"<svg>",
    b"</svg>",
    b"<a href='",
    b"'>",
    b"<!--",
    b"-->",
    b"<![CDATA[",
    b"<?xml ",
    b"<!DOCTYPE ",
    b"&#x",
    b"&",
    b"%4",
    b"\\u00",
    b"url(",
    b"data:image/svg+xml;base64,",
    b"srcset=",
    b"//",
    b"xn--a",
    b"http://[",
    b":99999",
    b"eval(",
    b"import(",
    b"sk-ant-",
    b"eyJ",
    b"-----BEGIN ",
    b"\0",
    b"\xff\xfe",
    b"\x1f\x8b\x08",
    b"{",
    b"[",
    b'"',
    b"'",
    b"(",
    b"\xf0\x9f\x98\x80",
    b"<noscript>",
    b"<template>",
    b"<select>",
]
CONTENT = st.one_of(
    st.binary(max_size=300), st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=4))).map(b"".join)
)


@pytest.mark.threat("F12", "G11")
@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(st.dictionaries(NAMES, CONTENT, max_size=3))
def test_any_bytes_give_a_report_of_findings_and_nothing_else(files: dict[str, bytes]) -> None:
    report = scan(files, PROFILE, profile_name="default", known_keys=("correct-horse-battery",))
    assert report.passed == (not report.findings)
    for finding in report.findings:
        assert isinstance(finding, Finding)
        assert finding.rule in RULES
        assert finding.file in (*files, "")
        assert finding.line >= 0
        assert (finding.message + finding.fix).isprintable()
    assert report == scan(files, PROFILE, profile_name="default", known_keys=("correct-horse-battery",))
