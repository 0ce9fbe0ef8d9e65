"""An edit's scan reads what changed, and believes nothing else than what this installation found clean."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from routing.policy.platform import platform_policy
from sites.content_store import Entry
from sites.files import media_type_of
from sites.scan import engine, verdicts
from sites.scan.engine import scan
from sites.scan.rules import ScanReport

PROFILE = platform_policy().profiles["default"]
KEYS = ("k" * 40,)
TOKEN = "t0ken-of-this-attempt-1234567890"
SITE = {
    "index.html": b"<style>p { top: 0 }</style><script src=once.txt></script><p style='top: 1px'>Hi</p>",
    "about.html": b"<img src='data:image/png;base64,AAAA'><script>document.title = 'x'</script>",
    "once.txt": b"let once = 1",
    "a.css": b"p { top: 1px }",
}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that scans read, in a process that remembers nothing yet."""
    monkeypatch.setattr(verdicts, "_remembered", {})
    names: list[str] = []
    scan_file: Callable[..., None] = engine._Scanner.scan_file

    def note(scanner: Any, path: str, data: bytes) -> None:
        names.append(path)
        scan_file(scanner, path, data)

    monkeypatch.setattr(engine._Scanner, "scan_file", note)
    return names


def report(files: dict[str, bytes], root: Path, **how: Any) -> ScanReport:
    verdicts._remembered.clear()  # as in another process
    return scan(files, how.pop("profile", PROFILE), profile_name="p", verdicts_in=root, **{"known_keys": KEYS, **how})


def entries(files: dict[str, bytes]) -> dict[str, Entry]:
    return {
        path: Entry(hashlib.sha256(data).hexdigest(), len(data), media_type_of(path)) for path, data in files.items()
    }


def test_another_process_reads_only_what_changed_and_reports_the_same(tmp_path: Path, read: list[str]) -> None:
    first = report(SITE, tmp_path)
    assert first.passed
    assert sorted(read) == sorted(SITE)
    read.clear()
    assert report(SITE, tmp_path) == first
    assert read == []
    edited = {**SITE, "about.html": SITE["about.html"] + b"<p>More</p>"}
    after = report(edited, tmp_path)
    assert read == ["about.html"]
    assert after == scan(edited, PROFILE, profile_name="p")
    read.clear()
    report({**SITE, "once.txt": b"let once = 2"}, tmp_path)
    assert sorted(read) == ["index.html", "once.txt"]


def test_a_file_is_read_once_by_a_process_without_a_disk_and_again_when_a_script_of_it_goes(read: list[str]) -> None:
    for files, wanted in ((SITE, sorted(SITE)), (SITE, []), (SITE | {"once.txt": b""}, ["index.html", "once.txt"])):
        read.clear()
        scan(files, PROFILE, profile_name="p")
        assert sorted(read) == wanted
    read.clear()
    scan({path: data for path, data in SITE.items() if path != "once.txt"}, PROFILE, profile_name="p")
    assert "index.html" in read


def test_each_attempt_has_a_token_of_its_own_and_still_reads_only_what_it_changed(
    tmp_path: Path, read: list[str]
) -> None:
    report(SITE, tmp_path)
    read.clear()
    edited = {**SITE, "a.css": b"p { top: 2px }"}
    assert report(edited, tmp_path, new_keys=(TOKEN,), base=entries(SITE)).passed
    assert read == ["a.css"]
    read.clear()
    assert report(edited, tmp_path, new_keys=(TOKEN,), base=entries(SITE)).passed
    assert read == ["a.css"], "it may hold the token, whoever found it clean without"


def test_a_token_is_found_where_a_file_was_clean_before_the_token_was_known(tmp_path: Path, read: list[str]) -> None:
    leaking = {**SITE, "notes.txt": TOKEN.encode()}
    assert report(leaking, tmp_path).passed
    found = report(leaking, tmp_path, new_keys=(TOKEN,), base=entries(SITE)).findings
    assert {finding.rule for finding in found} == {"known-key"}
    moved = {**SITE, "index.html": SITE["index.html"], "notes.txt": TOKEN.encode()}
    base = {**entries(SITE), "other.txt": entries(leaking)["notes.txt"]}
    assert not report(moved, tmp_path, new_keys=(TOKEN,), base=base).passed


@pytest.mark.parametrize(
    "how",
    [
        {"known_keys": ("other" * 8,)},
        {"known_keys": ()},
        {"profile": PROFILE.model_copy(update={"image_hosts": ("img.example",)})},
    ],
    ids=["other keys", "no keys", "another profile"],
)
def test_a_verdict_holds_for_the_keys_and_the_profile_that_it_was_made_under(
    how: dict[str, Any], tmp_path: Path, read: list[str]
) -> None:
    report(SITE, tmp_path)
    read.clear()
    report(SITE, tmp_path, **how)
    assert sorted(read) == sorted(SITE)


def test_other_rules_make_verdicts_of_their_own(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report(SITE, tmp_path)
    read.clear()
    monkeypatch.setattr(verdicts, "_rules", lambda: b"another version")
    report(SITE, tmp_path)
    assert sorted(read) == sorted(SITE)


def test_nobody_without_the_keys_can_have_a_file_taken_for_clean(tmp_path: Path, read: list[str]) -> None:
    hostile = {**SITE, "index.html": b"<p onclick='steal()'>Hi</p>"}
    report(SITE, tmp_path)
    kept = {path.name: path for path in tmp_path.rglob("*") if path.is_file()}
    assert len(kept) == len(SITE)
    digest = hashlib.sha256(hostile["index.html"]).hexdigest()
    name = verdicts.Verdicts(tmp_path, PROFILE, KEYS).name_of("served", "index.html", digest)
    forged = tmp_path / name[:2] / name
    forged.parent.mkdir(exist_ok=True)
    text = next(iter(kept.values())).read_bytes()
    for content in (text, text[:32], b"", verdicts.Verdicts(tmp_path, PROFILE, ("guess",))._mac(name, b"[]") + b"[]"):
        forged.write_bytes(content)
        assert {finding.rule for finding in report(hostile, tmp_path).findings} == {"event-handler"}


def test_a_disk_that_takes_no_verdicts_costs_nothing_but_time(tmp_path: Path, read: list[str]) -> None:
    root = tmp_path / "file"
    root.write_bytes(b"")
    assert report(SITE, root) == report(SITE, root)
    assert len(read) == 2 * len(SITE)


def test_a_disk_that_fills_up_or_an_entry_that_somebody_planted_leaves_no_draft_behind(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(draft: Path, data: bytes) -> int:
        draft.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", fill)
        report(SITE, tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    report(SITE, tmp_path)
    kept = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    kept[0].unlink()
    kept[0].mkdir()
    report(SITE, tmp_path)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == kept[1:]
