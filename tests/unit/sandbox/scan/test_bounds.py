import time

import pytest

from routing.policy import platform_policy
from sandbox.scan.engine import scan

MEGABYTE = 1_000_000

PIECES = [
    ("0.html", b"", b"<div>"),
    ("1.html", b"<a ", b"a "),
    ("2.html", b"", b"<"),
    ("3.html", b"<script>", b"<!--<script>"),
    ("4.css", b"", b"\\75rl(("),
    ("5.js", b"", b"eval//"),
    ("6.txt", b"", b"eyJaaaaaaaaa."),
    ("7.txt", b"", b"%41&#65;"),
    ("8.svg", b"", b"<g>"),
    ("9.html", b"<a href='", b"&amp"),
]


@pytest.mark.threat("F12", "G6", "G7")
def test_ten_megabytes_of_hostile_input_take_bounded_time() -> None:
    files = {name: head + piece * (MEGABYTE // len(piece)) for name, head, piece in PIECES}
    profile = platform_policy().profiles["default"]
    started = time.process_time()
    report = scan(files, profile, profile_name="default", known_keys=("k" * 40,))
    seconds = time.process_time() - started
    assert not report.passed
    assert seconds < 4  # below 2 on an idle machine; a shared core also charges for its neighbour
