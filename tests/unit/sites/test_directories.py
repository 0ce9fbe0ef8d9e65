import io
import os
import socket
import tarfile
from pathlib import Path

import pytest

from sites.directories import read_directory, write_directory, write_tar
from sites.errors import PathRefusedError, TreeRefusedError

CAPS = {"max_bytes": 1000, "max_files": 10}


def refusal(root: Path, *, max_bytes: int = 1000, max_files: int = 10) -> str:
    with pytest.raises((TreeRefusedError, PathRefusedError)) as caught:
        read_directory(root, max_bytes=max_bytes, max_files=max_files)
    return caught.value.reason


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = tmp_path / "site"
    (root / "css").mkdir(parents=True)
    (root / "index.html").write_bytes(b"<p>hi")
    (root / "css" / "a.css").write_bytes(b"p{}")
    return root


def test_a_directory_is_read_with_its_names(site: Path) -> None:
    assert read_directory(site, **CAPS) == {"index.html": b"<p>hi", "css/a.css": b"p{}"}


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    files = {"a/b/c.html": b"1", "a/b.html": b"2", "ü.txt": b""}
    write_directory(files, tmp_path / "new" / "out")
    assert read_directory(tmp_path / "new" / "out", **CAPS) == files


@pytest.mark.threat("E")
@pytest.mark.parametrize("target", ["/etc/passwd", "/etc", "index.html", "nowhere"])
def test_a_link_is_refused(site: Path, target: str) -> None:
    (site / "link.html").symlink_to(target)
    assert refusal(site) == "symlink"


@pytest.mark.threat("E")
def test_the_directory_itself_may_not_be_a_link(site: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(site)
    assert refusal(tmp_path / "alias") == "symlink"


@pytest.mark.threat("E")
def test_a_fifo_is_refused_without_waiting_for_a_writer(site: Path) -> None:
    os.mkfifo(site / "pipe")
    assert refusal(site) == "fifo"


@pytest.mark.threat("E")
def test_a_socket_is_refused(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(site)  # a socket's path may have 108 bytes only
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
        assert refusal(site) == "socket"


@pytest.mark.threat("D1", "E")
@pytest.mark.parametrize("name", [".git/config", "CLAUDE.md", "sub/.npmrc", ".env"])
def test_configuration_that_tools_obey_is_refused_by_name(site: Path, name: str) -> None:
    (site / name).parent.mkdir(exist_ok=True)
    (site / name).write_bytes(b"x")
    assert refusal(site) == "planted"


@pytest.mark.threat("E")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (b"a\nb", "control"),
        (b"a\\b", "backslash"),
        (b"\xff\xfe", "encoding"),
        (b"CON", "device_name"),
        (b"a.", "trailing_dot_space"),
        ("a\u202eb".encode(), "direction"),
    ],
)
def test_a_hostile_name_on_the_disk_is_refused(site: Path, name: bytes, reason: str) -> None:
    with open(os.path.join(os.fsencode(site), name), "wb"):
        pass
    assert refusal(site) == reason


@pytest.mark.threat("E")
def test_names_that_differ_in_case_only_are_refused(site: Path) -> None:
    (site / "INDEX.html").write_bytes(b"")
    if len(list(site.iterdir())) < 3:
        pytest.skip("this disk does not tell the two names apart")
    assert refusal(site) == "name_collision"


@pytest.mark.threat("E")
def test_three_hundred_levels_are_refused(tmp_path: Path) -> None:
    deep = tmp_path / "deep"
    (deep / "/".join("d" * 300)).mkdir(parents=True)
    assert refusal(deep) == "too_deep"


@pytest.mark.threat("E", "A8")
def test_a_sparse_file_counts_with_its_apparent_size_before_it_is_read(site: Path) -> None:
    with (site / "big.png").open("wb") as stream:
        stream.truncate(10 * 2**30)
    assert refusal(site) == "too_many_bytes"


def test_the_caps_let_exactly_their_number_pass(site: Path) -> None:
    total = len(b"<p>hi") + len(b"p{}")
    assert len(read_directory(site, max_bytes=total, max_files=2)) == 2
    assert refusal(site, max_bytes=total - 1) == "too_many_bytes"
    assert refusal(site, max_files=1) == "too_many_files"


def test_a_missing_directory_and_a_file_in_its_place_are_refused(site: Path) -> None:
    assert refusal(site / "nowhere") == "not_a_directory"
    assert refusal(site / "index.html") == "not_a_directory"


def test_an_export_never_overwrites(site: Path) -> None:
    with pytest.raises(TreeRefusedError, match="not_empty"):
        write_directory({"index.html": b"new"}, site)
    assert (site / "index.html").read_bytes() == b"<p>hi"


@pytest.mark.threat("E")
def test_an_export_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TreeRefusedError, match="symlink"):
        write_directory({"a": b""}, tmp_path / "out")
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.threat("E")
def test_an_export_with_one_bad_name_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(PathRefusedError):
        write_directory({"good": b"", "../bad": b""}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_tar_of_equal_sites_is_equal_byte_for_byte_and_holds_plain_files_below_one_name() -> None:
    files = {"b/c.txt": b"c", "a.html": b"a"}
    one = write_tar(files, "bakery")
    assert one == write_tar(dict(reversed(files.items())), "bakery")
    with tarfile.open(fileobj=io.BytesIO(one)) as tar:
        members = tar.getmembers()
    assert [member.name for member in members] == ["bakery/a.html", "bakery/b/c.txt"]
    assert {(member.isreg(), member.mode, member.uid, member.mtime) for member in members} == {(True, 0o644, 0, 0)}
    for name in ("../x", "/etc/passwd"):
        with pytest.raises(PathRefusedError):
            write_tar({name: b""}, "bakery")
