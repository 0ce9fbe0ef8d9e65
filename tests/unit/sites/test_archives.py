"""Archives that strangers send: what is read of a good one, and by which rule a hostile one is refused."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import time
import zipfile
from collections.abc import Callable, Mapping

import pytest

from sites.archives import is_archive, read_archive
from sites.content import content_of
from sites.directories import write_tar
from sites.errors import PathRefusedError, TreeRefusedError, show_path

PAGE = b"<!doctype html><html lang=en><title>Bakery</title><h1>Bread</h1></html>"
FILES = {"index.html": PAGE, "css/site.css": b"h1 { color: red }\n"}
MOST = {"max_bytes": 10_000, "max_files": 20}


def zipped(files: Mapping[str, bytes], change: Callable[[zipfile.ZipInfo], None] = lambda _: None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            change(info)
            archive.writestr(info, data)
    return buffer.getvalue()


def tarred(files: Mapping[str, bytes], *special: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for member in special:
            archive.addfile(member)
    return buffer.getvalue()


PACKERS = pytest.mark.parametrize("pack", [zipped, tarred], ids=["zip", "tar.gz"])
Pack = Callable[[Mapping[str, bytes]], bytes]


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = target
    return member


def refusal(archive: bytes) -> tuple[str, str]:
    """Return the rule, and what a person reads."""
    with pytest.raises((PathRefusedError, TreeRefusedError)) as refused:
        read_archive(archive, **MOST)
    return refused.value.reason, str(refused.value)


@PACKERS
def test_a_site_is_read_from_the_root_of_an_archive_or_from_its_one_directory(pack: Pack) -> None:
    assert is_archive(pack(FILES)[:4])
    for prefix in ("", "./", "bakery/", "./bakery/"):
        assert read_archive(pack({f"{prefix}{name}": data for name, data in FILES.items()}), **MOST) == FILES
    nested = {"public/index.html": PAGE, "package.json": b"{}"}
    assert read_archive(pack(nested), **MOST) == nested


@PACKERS
def test_what_desktops_and_package_managers_add_is_left_out_whatever_it_is(pack: Pack) -> None:
    more = {"__MACOSX/._index.html": b"x", "css/.DS_Store": b"x", "node_modules/.bin/../x": b"x"}
    assert read_archive(pack({**FILES, **more}), **MOST) == FILES
    by_bsdtar = {"./._bakery": b"x", "./bakery/._index.html": b"x", "./bakery/css/._site.css": b"x"}
    site = {f"./bakery/{name}": data for name, data in FILES.items()}
    assert read_archive(pack({**by_bsdtar, **site}), **MOST) == FILES


def test_an_export_is_read_back(tmp_path: object) -> None:
    assert read_archive(gzip.compress(write_tar(FILES, "bakery")), **MOST) == FILES


@pytest.mark.threat("E")
@PACKERS
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("../up.html", "parent"),
        ("a/../../up.html", "parent"),
        ("/etc/passwd.html", "absolute"),
        ("a\\b.html", "backslash"),
        ("INDEX.html", "name_collision"),
        ("index.html/x.html", "file_as_directory"),
        (".git/config", "planted"),
        (".npmrc", "planted"),
    ],
)
def test_a_name_that_no_release_may_have_is_refused_with_its_rule(pack: Pack, name: str, rule: str) -> None:
    found, said = refusal(pack({**FILES, name: b"x"}))
    assert (found, rule in said) == (rule, True)
    assert show_path(name) in said or show_path(name.rpartition("/")[0]) in said


def of_windows(files: Mapping[str, bytes]) -> bytes:
    """Return a zip as .NET and so PowerShell 5 writes it."""

    def change(info: zipfile.ZipInfo) -> None:
        info.create_system, info.external_attr = 0, 0

    return zipped(files, change)


def test_a_zip_of_windows_may_separate_names_by_backslashes() -> None:
    named = {f"bakery/{name}".replace("/", "\\"): data for name, data in FILES.items()}
    assert read_archive(of_windows({"bakery\\img\\": b"", **named}), **MOST) == FILES
    assert read_archive(of_windows({**FILES, "bakery\\Thumbs.db": b""}), **MOST) == FILES


@pytest.mark.threat("E")
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("..\\up.html", "parent"),
        ("\\up.html", "absolute"),
        ("css\\site.css", "duplicate"),
        (".git\\config", "planted"),
    ],
)
def test_a_backslash_of_windows_hides_nothing(name: str, rule: str) -> None:
    assert rule in ": ".join(refusal(of_windows({**FILES, name: b"x"})))


@pytest.mark.threat("E")
def test_a_name_with_a_nul_is_refused_and_not_cut_there() -> None:
    archive = zipped({"index.htmlXx.html": PAGE}).replace(b"index.htmlXx.html", b"index.html\x00x.html")
    assert refusal(archive)[0] == "control"


@pytest.mark.threat("E")
def test_a_name_that_is_no_utf8_is_refused() -> None:
    assert refusal(zipped({"name.html": PAGE}).replace(b"name.html", b"n\xffme.html"))[0] == "bad_archive"
    assert refusal(tarred({"n\udcffme.html": PAGE}))[0] == "encoding"


@pytest.mark.threat("E")
@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (tarfile.SYMTYPE, "symlink"),
        (tarfile.LNKTYPE, "hardlink"),
        (tarfile.FIFOTYPE, "fifo"),
        (tarfile.CHRTYPE, "device"),
        (tarfile.BLKTYPE, "device"),
        (b"V", "device"),
    ],
)
def test_what_is_no_plain_file_in_a_tar_is_refused_with_its_name(kind: bytes, rule: str) -> None:
    found, said = refusal(tarred(FILES, special("logo.png", kind, "/etc/passwd")))
    assert (found, "logo.png" in said) == (rule, True)


@pytest.mark.threat("E")
@pytest.mark.parametrize(
    ("mode", "rule"),
    [(stat.S_IFLNK, "symlink"), (stat.S_IFIFO, "fifo"), (stat.S_IFSOCK, "socket"), (stat.S_IFCHR, "device")],
)
def test_what_is_no_plain_file_in_a_zip_is_refused_with_its_name(mode: int, rule: str) -> None:
    def change(info: zipfile.ZipInfo) -> None:
        info.external_attr = (mode | 0o777) << 16

    found, said = refusal(zipped({"logo.png": b"/etc/passwd"}, change))
    assert (found, "logo.png" in said) == (rule, True)


@pytest.mark.threat("E")
def test_a_name_that_comes_twice_is_refused() -> None:
    archive = zipped({"a.html": b"1", "b.html": b"2"}).replace(b"b.html", b"a.html")
    assert refusal(archive) == (
        "duplicate",
        "'a.html' is refused: duplicate: the archive holds this name twice",
    )
    twice = gzip.compress(gzip.decompress(tarred({"a.html": b"1", "./a.html": b"2"})))
    assert refusal(twice)[0] == "duplicate"


@pytest.mark.threat("A8")
@PACKERS
def test_a_bomb_is_refused_before_it_is_unpacked(pack: Pack) -> None:
    found, said = refusal(pack({"bomb.html": bytes(50_000_000)}))
    assert (found, "bomb.html" in said) == ("too_many_bytes", True)
    assert refusal(pack({f"{number}.html": bytes(999) for number in range(12)}))[0] == "too_many_bytes"


@pytest.mark.threat("A8")
@PACKERS
def test_too_many_files_and_entries_are_refused(pack: Pack) -> None:
    assert refusal(pack({f"{number}.html": b"" for number in range(21)}))[0] == "too_many_files"
    assert refusal(pack({f"node_modules/{number}": b"" for number in range(81)}))[0] == "too_many_members"


@pytest.mark.threat("A8")
def test_a_tar_that_goes_on_and_on_is_read_no_further_than_its_files_can_be() -> None:
    left_out = {"node_modules/x": bytes(20_000_000)}
    assert refusal(tarred({**left_out, **FILES}))[0] == "stream_too_long"


@pytest.mark.threat("A8")
def test_a_zip_whose_entry_states_less_than_it_holds_gives_no_more_than_it_states() -> None:
    size = len(PAGE).to_bytes(4, "little")
    archive = zipped({"index.html": PAGE}).replace(size, (3).to_bytes(4, "little"))
    assert refusal(archive)[0] == "bad_archive"


@pytest.mark.threat("A8")
def test_an_encrypted_or_unusually_compressed_entry_is_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("index.html", PAGE)
    found, said = refusal(buffer.getvalue())
    assert (found, "index.html" in said) == ("compression", True)
    plain = bytearray(zipped({"index.html": PAGE}))
    plain[plain.index(b"PK\x01\x02") + 8] |= 1
    assert refusal(bytes(plain))[0] == "encrypted"


@pytest.mark.parametrize(
    "archive",
    [
        b"",
        b"<html>",
        b"Rar!\x1a\x07",
        zipped(FILES)[:-30],
        tarred(FILES)[:-30],
        gzip.compress(b"no tar at all" * 100, mtime=0),
        b"PK\x03\x04" + bytes(200),
        b"\x1f\x8b" + bytes(200),
    ],
)
def test_what_is_no_whole_archive_is_refused(archive: bytes) -> None:
    assert refusal(archive)[0] in ("bad_archive", "device")


@pytest.mark.threat("A8")
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_takes_long_to_read_is_not_read(kind: bytes) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, 40_000
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        made.addfile(header, io.BytesIO(b"1" * 40_000))
    started = time.process_time()
    assert "a header has more than 16384 bytes" in refusal(buffer.getvalue())[1]
    assert time.process_time() - started < 0.2  # of two seconds


def test_an_archive_without_files_is_no_site() -> None:
    with pytest.raises(TreeRefusedError, match="at least one file"):
        content_of(read_archive(tarred({}), **MOST))
