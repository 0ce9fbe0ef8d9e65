import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.tarball import CollectRules, pack, stream_limit, unpack
from sites.content_store import ContentStore, Manifest
from sites.errors import PathRefusedError, TreeRefusedError

RULES = CollectRules(max_bytes=1000, max_files=5, max_file_bytes=600)
NO_LIMIT = 10_000_000


def member(name: str, data: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def archive(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as out:
        out.addfile(*directory("workspace"))
        for info, data in members:
            out.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def directory(name: str) -> tuple[tarfile.TarInfo, io.BytesIO]:
    return member(name, type=tarfile.DIRTYPE)[0], io.BytesIO()


@pytest.fixture
def content_store(tmp_path: Path) -> ContentStore:
    return ContentStore(tmp_path / "content-store")


def collect(
    content_store: ContentStore, data: bytes, *, rules: CollectRules = RULES, limit: int = NO_LIMIT
) -> Manifest:
    return unpack(
        [data[place : place + 700] for place in range(0, len(data), 700)], content_store, rules, max_stream_bytes=limit
    )


def blobs(content_store: ContentStore) -> list[Path]:
    return [path for path in content_store.root.rglob("*") if path.is_file()]


def test_what_went_in_comes_out(content_store: ContentStore) -> None:
    files = {"index.html": b"<p>hi</p>", "a/b/c.css": b"p{}", "ünï.txt": b"", "a/z.txt": b"z"}
    packed = pack(files)
    with tarfile.open(fileobj=io.BytesIO(packed)) as source:
        moved = [(info, source.extractfile(info).read() if info.isreg() else b"") for info in source]  # type: ignore[union-attr]
    for info, _ in moved:
        info.name = f"workspace/{info.name}".removesuffix("/.")
        info.pax_headers = {}

    assert content_store.read_tree(collect(content_store, archive(*moved[1:]))) == files


@pytest.mark.req("H-076")
def test_the_archive_for_a_box_names_each_directory_owns_all_and_is_the_same_each_time() -> None:
    packed = pack({"b/c/x.txt": b"x", "a.txt": b"a"})
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as source:
        found = [(info.name, info.isdir(), info.uid, info.gid, oct(info.mode), info.mtime) for info in source]

    assert found == [
        (".", True, 1000, 1000, "0o755", 0),
        ("b", True, 1000, 1000, "0o755", 0),
        ("b/c", True, 1000, 1000, "0o755", 0),
        ("a.txt", False, 1000, 1000, "0o644", 0),
        ("b/c/x.txt", False, 1000, 1000, "0o644", 0),
    ]
    assert packed == pack({"a.txt": b"a", "b/c/x.txt": b"x"})


def test_the_owner_may_be_a_user_whose_number_the_old_format_cannot_hold() -> None:
    with tarfile.open(fileobj=io.BytesIO(pack({"a": b"1"}, owner=0x7FFF_0000))) as source:
        assert {(info.uid, info.gid) for info in source} == {(0x7FFF_0000, 0x7FFF_0000)}


@pytest.mark.threat("E")
def test_no_name_of_ours_can_make_the_engine_guess_a_compression() -> None:
    assert pack({"BZh91AY&SY": b"x"})[:2] == b"./"
    assert pack({"BZh91AY&SY": b"x"}, owner=0x7FFF_0000)[:2] == b"./"


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "symlink": (lambda: archive(member("workspace/a", type=tarfile.SYMTYPE, linkname="/etc/passwd")), "symlink"),
    "link_then_file_through_it": (
        lambda: archive(member("workspace/a", type=tarfile.SYMTYPE, linkname="/tmp"), member("workspace/a/b", b"x")),
        "symlink",
    ),
    "hardlink": (lambda: archive(member("workspace/a", type=tarfile.LNKTYPE, linkname="/etc/passwd")), "hardlink"),
    "fifo": (lambda: archive(member("workspace/a", type=tarfile.FIFOTYPE)), "fifo"),
    "character_device": (lambda: archive(member("workspace/a", type=tarfile.CHRTYPE)), "device"),
    "block_device": (lambda: archive(member("workspace/a", type=tarfile.BLKTYPE)), "device"),
    "unknown_type": (lambda: archive(member("workspace/a", type=b"Z")), "device"),
    "gnu_sparse": (lambda: sparse(), "sparse"),
    "parent": (lambda: archive(member("workspace/../x", b"x")), "parent"),
    "absolute": (lambda: archive(member("/workspace/x", b"x")), "bad_archive"),
    "elsewhere": (lambda: archive(member("etc/passwd", b"x")), "bad_archive"),
    "dot_segment": (lambda: archive(member("workspace/./x", b"x")), "dot_segment"),
    "drive": (lambda: archive(member("workspace/C:/x", b"x")), "drive"),
    "backslash": (lambda: archive(member("workspace/a\\..\\b", b"x")), "backslash"),
    "newline": (lambda: archive(member("workspace/a\nb", b"x")), "control"),
    "right_to_left": (lambda: archive(member("workspace/a\u202eb", b"x")), "direction"),
    "trailing_dot": (lambda: archive(member("workspace/a.", b"x")), "trailing_dot_space"),
    "device_name": (lambda: archive(member("workspace/CON", b"x")), "device_name"),
    "not_unicode": (lambda: archive(member("workspace/a\udcff", b"x"), form=tarfile.GNU_FORMAT), "encoding"),
    "pax_path": (lambda: archive(member("workspace/a", b"x", pax_headers={"path": "workspace/../b"})), "parent"),
    "duplicate": (lambda: archive(member("workspace/a", b"x"), member("workspace/a", b"y")), "name_collision"),
    "case": (lambda: archive(member("workspace/A.js", b"x"), member("workspace/a.js", b"y")), "name_collision"),
    "unicode_forms": (
        lambda: archive(member("workspace/\u00e9", b"x"), member("workspace/e\u0301", b"y")),
        "name_collision",
    ),
    "file_as_directory": (
        lambda: archive(member("workspace/a", b"x"), member("workspace/a/b", b"y")),
        "file_as_directory",
    ),
    "too_deep": (lambda: archive(member("workspace/" + "a/" * 40 + "x", b"x")), "too_deep"),
    "planted": (lambda: archive(member("workspace/.claude/settings.json", b"{}")), "planted"),
    "planted_shell": (lambda: archive(member("workspace/a/.bashrc", b"x")), "planted"),
    "stream": (lambda: archive(member("workspace/.git::$INDEX_ALLOCATION", b"x")), "reserved_character"),
    "filler": (lambda: archive(member("workspace/\u3164", b"x")), "invisible"),
    "planted_directory": (lambda: archive((directory("workspace/.git")[0], b"")), "planted"),
    "too_many_files": (lambda: archive(*[member(f"workspace/{n}", b"x") for n in range(6)]), "too_many_files"),
    "file_too_large": (lambda: archive(member("workspace/a", b"x" * 601)), "file_too_large"),
    "too_many_bytes": (
        lambda: archive(member("workspace/a", b"x" * 501), member("workspace/b", b"x" * 500)),
        "too_many_bytes",
    ),
    "cut_off": (lambda: archive(member("workspace/a", b"x" * 600))[:1400], "bad_archive"),
    "gzip": (lambda: b"\x1f\x8b\x08" + b"\0" * 2000, "bad_archive"),
    "bzip2": (lambda: b"BZh91AY&SY" + b"\0" * 2000, "bad_archive"),
    "noise": (lambda: bytes(range(256)) * 8, "bad_archive"),
    "negative_size": (lambda: negative(), "file_too_large"),
    "workspace_is_a_link": (lambda: only(member("workspace", type=tarfile.SYMTYPE, linkname="/etc")), "symlink"),
    "workspace_is_a_file": (lambda: only(member("workspace", b"x")), "not_a_directory"),
}


def only(one: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        out.addfile(one[0], io.BytesIO(one[1]))
    return buffer.getvalue()


def sparse() -> bytes:
    fields = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "10000000000"}
    return archive(
        member("workspace/a", b"0\n" + b"\0" * 510, pax_headers={**fields, "GNU.sparse.name": "workspace/a"})
    )


def negative() -> bytes:
    info, _ = member("workspace/a")
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 12
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return archive()[:1024][:512] + bytes(header) + b"\0" * 1024


@pytest.mark.threat("E", "D2")
@pytest.mark.req("H-078", "H-105")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_by_one_reason_and_writes_nothing_outside_the_store(
    name: str, content_store: ContentStore, tmp_path: Path
) -> None:
    make, reason = HOSTILE[name]
    with pytest.raises((PathRefusedError, TreeRefusedError)) as caught:
        collect(content_store, make())

    assert caught.value.reason == reason
    assert {path.name for path in tmp_path.iterdir()} <= {"content-store"}
    assert all(len(path.name) >= 62 for path in blobs(content_store))


@pytest.mark.threat("A8")
def test_the_stream_is_counted_as_it_comes_whatever_its_headers_say(content_store: ContentStore) -> None:
    pulled = 0

    def endless() -> Iterator[bytes]:
        nonlocal pulled
        yield archive(member("workspace/a", b""))[:1536]
        while True:
            pulled += 1
            yield b"\0" * 100 + b"x" * 900

    with pytest.raises(TreeRefusedError) as caught:
        unpack(endless(), content_store, CollectRules(max_bytes=10), max_stream_bytes=50_000)
    assert caught.value.reason in ("stream_too_long", "bad_archive")
    assert pulled <= 270

    info, _ = member("workspace/a")
    info.size = 10_000_000_000
    with pytest.raises(TreeRefusedError) as caught:
        unpack(iter([info.tobuf()]), content_store, RULES, max_stream_bytes=50_000)
    assert caught.value.reason == "file_too_large"


def test_exactly_what_is_allowed_passes(content_store: ContentStore) -> None:
    found = collect(content_store, archive(member("workspace/a", b"x" * 600), member("workspace/b", b"x" * 400)))

    assert found.total_bytes == 1000


def test_what_is_ignored_is_not_even_looked_at(content_store: ContentStore) -> None:
    data = archive(
        (directory("workspace/node_modules")[0], b""),
        member("workspace/node_modules/.bin/vite", type=tarfile.SYMTYPE, linkname="../vite/vite.js"),
        member("workspace/sub/node_modules/big", b"x" * 5000),
        member("workspace/kept", b"x"),
    )

    assert list(collect(content_store, data)) == ["kept"]


def test_a_link_that_bears_an_ignored_name_is_still_a_link(content_store: ContentStore) -> None:
    with pytest.raises(TreeRefusedError) as caught:
        collect(content_store, archive(member("workspace/node_modules", type=tarfile.SYMTYPE, linkname="/etc")))
    assert caught.value.reason == "symlink"


def test_the_archive_of_a_full_workspace_fits_and_little_more() -> None:
    assert stream_limit(workspace_bytes=1000, workspace_files=10) == 1000 + 12 * 4096


def test_a_file_that_names_its_interpreter_may_be_run_in_a_box() -> None:
    with tarfile.open(fileobj=io.BytesIO(pack({"run.sh": b"#!/bin/sh\n", "notes.md": b"# !\n"}))) as source:
        modes = {found.name: found.mode for found in source if found.isreg()}
    assert modes == {"run.sh": 0o755, "notes.md": 0o644}
