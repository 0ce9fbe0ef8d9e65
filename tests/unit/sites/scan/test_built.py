"""The scan of a built site: what is served is judged wholly, and its sources by what could hurt unserved."""

import json
from pathlib import Path

import pytest

from routing.policy.platform import Profile
from sites.content_store import Den
from sites.scan.engine import scan
from sites.scan.rules import ScanReport

PROFILE = Profile(js_bytes=1_000, js_gzip_bytes=1_000, max_files=3)
PAGE = b'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>x</title></head><body><p>x</p></body></html>'
PACKAGE = json.dumps({"scripts": {"build": "make"}, "dependencies": {"three": "0.170.0"}}).encode()
CLEAN = {"package.json": PACKAGE, "dist/index.html": PAGE}
KEY = b"sk-ant-" + b"api03-Zz81kQpLw02mXvB7"


def report(profile: Profile = PROFILE, **files: bytes) -> ScanReport:
    return scan({**CLEAN, **files}, profile, profile_name="test")


def found(*, profile: Profile = PROFILE, **files: bytes) -> list[tuple[str, str]]:
    return [(one.file, one.rule) for one in report(profile, **files).findings]


def test_sources_are_neither_pages_nor_charged() -> None:
    sources = {
        "src/main.ts": b"let a: number = 1",
        "src/big.js": b"eval(x);" * 1_000,
        "src/page.html": b"<p onclick=go()>",
        "src/app.vue": b"<template>",
        "vercel.json": b"{}",
        ".browserslistrc": b"defaults",
        "a.css": b"@import '//e.x'",
        "api/a.js": b"x",
        "photo.jpg": b"<html>",
    }
    judged = report(**sources)
    assert judged.findings == ()
    assert judged.js_bytes == 0


@pytest.mark.parametrize(
    ("name", "data", "rule"),
    [
        ("main.js", b"x" * 1_001, "js-raw-bytes"),
        ("page.html", b"<p onclick=go()>", "event-handler"),
        ("page.html", b"<img src=https://evil.example/a.png>", "image-host"),
        ("main.js", b"eval(x)", "eval-like"),
        ("main.ts", b"x", "file-type"),
        (".hidden", b"x", "hidden-file"),
        ("_redirects", b"/ /x", "host-config-file"),
        ("page.html", b'<script src="/src/main.js"></script>', "script-not-in-release"),
        ("page.html", b'<script src="../src/main.js"></script>', "script-not-in-release"),
        ("package.json", b'{"scripts": {"postinstall": "x"}}', "package-config"),
    ],
)
def test_what_is_served_is_judged_wholly_and_named_as_it_lies_in_the_release(name: str, data: bytes, rule: str) -> None:
    places = found(**{f"dist/{name}": data, "src/main.js": b"let a"})
    assert rule in {one for _, one in places}
    assert {file for file, _ in places} <= {f"dist/{name}", ""}


@pytest.mark.parametrize(
    ("name", "data", "rule"),
    [
        ("src/main.js", b"const key = '" + KEY + b"'", "secret-anthropic"),
        ("notes.txt", KEY, "secret-anthropic"),
        ("package.json", b'{"scripts": {"build": "x", "postinstall": "x"}}', "package-config"),
        ("tools/package.json", b'{"dependencies": {"x": "git+ssh://evil.example/x"}}', "package-config"),
        (".npmrc", b"registry=x", "planted-file"),
        ("src/.claude/settings.json", b"{}", "planted-file"),
        ("node_modules/x/a.txt", b"x", "package-code"),
        ("dist/node_modules/x/a.txt", b"x", "package-code"),
    ],
)
def test_what_hurts_unserved_is_found_in_sources_too(name: str, data: bytes, rule: str) -> None:
    assert any(file == name and one.startswith(rule) for file, one in found(**{name: data}))


def test_only_what_is_served_counts_against_the_profile_s_files() -> None:
    sources = {f"src/{number}.js": b"x" for number in range(9)}
    assert found(**sources) == []
    assert ("", "too-many-files") in found(**{f"dist/{number}.txt": b"x" for number in range(3)})


def test_a_script_of_the_build_is_found_from_the_root_that_visitors_know() -> None:
    page = PAGE.replace(b"</body>", b'<script src="/js/main.js"></script></body>')
    assert found(**{"dist/index.html": page, "dist/js/main.js": b"let a"}) == []


def test_a_site_that_was_never_built_does_not_pass() -> None:
    judged = scan({"package.json": PACKAGE, "index.html": PAGE}, PROFILE, profile_name="test")
    assert [(one.file, one.rule) for one in judged.findings] == [("package.json", "not-built")]


def test_who_asks_for_it_gets_all_served_and_all_judged() -> None:
    package = json.dumps({"scripts": {"build": "make"}, "pointsman": {"public": "."}}).encode()
    files = {"package.json": package, "index.html": PAGE, "main.ts": b"x", "a.js": b"x" * 1_001}
    judged = scan(files, PROFILE, profile_name="test")
    assert {one.rule for one in judged.findings} == {"file-type", "js-raw-bytes", "too-many-files"}


def test_a_report_speaks_for_the_files_and_for_what_of_them_is_served(tmp_path: Path) -> None:
    den = Den(tmp_path)
    files = {**CLEAN, "index.html": PAGE}
    assert den.put_tree(files, public="dist").digest == report(**{"index.html": PAGE}).digest
    assert den.put_tree(files).digest != den.put_tree(files, public="dist").digest


@pytest.mark.parametrize("resolved", [None, "http://door:8081/three.tgz"])
def test_a_lock_file_passes_if_it_names_no_place_inside_a_box(resolved: str | None) -> None:
    entry = {"version": "0.170.0", "integrity": "sha512-" + "A" * 86 + "=="}
    entry |= {"resolved": resolved} if resolved else {}
    lock = json.dumps({"lockfileVersion": 3, "packages": {"": {}, "node_modules/three": entry}}).encode()
    assert found(**{"package-lock.json": lock}) == ([("package-lock.json", "package-config")] if resolved else [])
