import asyncio
import base64
import hashlib
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.config import MirrorConfig
from sandbox.errors import MirrorRefusedError, RegistryConfigError
from sandbox.package_mirror.packages import (
    Description,
    Digest,
    File,
    Outbound,
    Store,
    file_of,
    parse_path,
    read_packument,
)
from sandbox.package_mirror.registries import Registries

SHA512 = hashlib.sha512(b"x").digest()
SHA1 = hashlib.sha1(b"x", usedforsecurity=False).hexdigest()
SRI = f"sha512-{base64.b64encode(SHA512).decode()}"
URL = "https://example.org/left/-/left-1.0.0.tgz"


def described(dist: Any, **fields: Any) -> bytes:
    manifest = {"name": "left", "version": "1.0.0", "dist": dist}
    return json.dumps(
        {"name": "left", "versions": {"1.0.0": manifest}, "dist-tags": {"latest": "1.0.0"}, **fields}
    ).encode()


@pytest.mark.parametrize(
    ("dist", "digest"),
    [
        ({"integrity": SRI}, Digest("sha512", SHA512.hex())),
        ({"integrity": f"sha1-AAAA {SRI}?opt", "shasum": SHA1}, Digest("sha512", SHA512.hex())),
        ({"integrity": "md5-AAAA", "shasum": SHA1.upper()}, Digest("sha1", SHA1)),
        ({"integrity": "sha512-AAAA"}, None),
        ({"integrity": "sha512-***", "shasum": "zz" * 20}, None),
        ({"integrity": 7, "shasum": None}, None),
        ({}, None),
    ],
)
def test_a_file_is_bound_to_the_strongest_digest_stated(dist: dict[str, Any], digest: Digest | None) -> None:
    read = read_packument(described({"tarball": URL, **dist}), name="left", public_url="http://egress:8081")
    assert {file: origin.digest for file, origin in read.files.items()} == (
        {} if digest is None else {"left-1.0.0.tgz": digest}
    )
    served = json.loads(read.body)
    assert list(served["versions"]) == list(served["dist-tags"].values()) == ([] if digest is None else ["1.0.0"])


def test_two_versions_cannot_share_a_file_with_different_contents() -> None:
    other = f"sha512-{base64.b64encode(hashlib.sha512(b'y').digest()).decode()}"
    versions = {
        version: {"name": "left", "version": version, "dist": {"tarball": URL, "integrity": integrity}}
        for version, integrity in (("1.0.0", SRI), ("1.0.1", other), ("1.0.2", SRI))
    }
    read = read_packument(described({}, versions=versions), name="left", public_url="http://egress:8081")
    assert list(json.loads(read.body)["versions"]) == ["1.0.0", "1.0.2"]


def test_a_file_whose_url_has_no_usable_name_gets_npms_own() -> None:
    url = "https://example.org/download/left/1.0.0/0a1b2c"
    read = read_packument(described({"tarball": url, "integrity": SRI}), name="left", public_url="http://egress:8081")
    assert read.files["left-1.0.0.tgz"].url == url
    assert b"http://egress:8081/left/-/left-1.0.0.tgz" in read.body
    assert b"example.org" not in read.body


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"<html>",
        b'{"name":"other","versions":{}}',
        b'{"name":"left"}',
        b'{"name":"left","versions":[]}',
        b'{"name":"left","versions":{},"x":NaN}',
        b"\xff",
    ],
)
def test_what_does_not_describe_the_package_is_the_registrys_fault(raw: bytes) -> None:
    with pytest.raises(MirrorRefusedError) as caught:
        read_packument(raw, name="left", public_url="http://egress:8081")
    assert caught.value.status == 502


@pytest.mark.parametrize("manifest", [None, 7, [], {}, {"dist": None}, {"dist": {"tarball": 7, "integrity": SRI}}])
def test_a_version_that_makes_no_sense_is_left_out(manifest: Any) -> None:
    raw = described({}, versions={"1.0.0": manifest})
    assert read_packument(raw, name="left", public_url="http://egress:8081").files == {}


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/left-pad", Description("left-pad")),
        ("/JSONStream", Description("JSONStream")),
        ("/@acme/left.pad", Description("@acme/left.pad")),
        ("/left/-/left-1.0.0-beta.1+build.tgz", File("left", "left-1.0.0-beta.1+build.tgz")),
        ("/@acme/left/-/left-1.0.0.tgz", File("@acme/left", "left-1.0.0.tgz")),
        ("/@acme/left/-/@acme/left-1.0.0.tgz", File("@acme/left", "left-1.0.0.tgz")),
        ("/api/npm/left", Description("left")),
        ("/api/npm/left/-/left-1.0.0.tgz", File("left", "left-1.0.0.tgz")),
    ],
)
def test_a_package_and_its_files_are_known(path: str, asked: Description | File) -> None:
    assert parse_path(path, prefixes=("", "api/npm")) == asked


@pytest.mark.threat("B5")
@given(st.text(max_size=40) | st.from_regex(r"/[@a-z./%\\:?#~-]{0,30}", fullmatch=True))
def test_what_is_asked_for_never_leaves_the_registry(path: str) -> None:
    asked = parse_path(path)
    if asked is None:
        return
    parts = asked.name.split("/") + ([asked.file] if isinstance(asked, File) else [])
    assert len(parts) <= 3
    for part in parts:
        assert part.isascii()
        assert not part.startswith((".", "_", "/"))
        assert not set(part) & set("%?#\\:; \r\n\0")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://example.org/x/-/x-1.0.0.tgz", "x-1.0.0.tgz"),
        ("https://example.org/x/-/x-1.0.0.tgz?token=1#f", "x-1.0.0.tgz"),
        ("https://example.org/download/x/1.0.0/0a1b", None),
        ("https://example.org/..%2fx.tgz%00", None),
        ("https://[broken/x.tgz", None),
    ],
)
def test_a_file_is_called_what_its_url_ends_with(url: str, name: str | None) -> None:
    assert file_of(url) == name


@pytest.mark.threat("B6")
def test_a_name_that_leads_to_an_address_that_is_not_public_is_not_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *more, **most: look_up("127.0.0.1", *more, **most))

    async def fetch() -> None:
        outbound = Outbound(Registries(default="https://packages.example/"), MirrorConfig())
        try:
            async with outbound.get("https://rebound.example/x.tgz", {}):
                pass
        finally:
            await outbound.close()

    with pytest.raises(MirrorRefusedError, match="not public"):
        asyncio.run(fetch())


def test_a_ca_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    async def start() -> None:
        Outbound(Registries(default="https://packages.example/", ca_file=tmp_path / "gone"), MirrorConfig())

    with pytest.raises(RegistryConfigError, match="cafile"):
        asyncio.run(start())


def test_an_entry_that_a_failing_disk_cannot_remove_is_forgotten_and_fails_no_request(tmp_path: Path) -> None:
    digest = Digest("sha1", SHA1)
    entry = tmp_path / f"sha1-{SHA1[:2]}" / SHA1
    entry.mkdir(parents=True)  # unlink refuses it, as it refuses a file of a disk that was mounted read-only
    Store(tmp_path, max_bytes=1).remove(digest)
    assert entry.exists()
