import base64
import hashlib
import json
from typing import Any

import pytest

from sandbox.mirror.errors import MirrorRefusedError
from sandbox.mirror.packument import Digest, read_packument

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
    read = read_packument(described({"tarball": URL, **dist}), name="left", public_url="http://door:8081")
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
    read = read_packument(described({}, versions=versions), name="left", public_url="http://door:8081")
    assert list(json.loads(read.body)["versions"]) == ["1.0.0", "1.0.2"]


def test_a_file_whose_url_has_no_usable_name_gets_npms_own() -> None:
    url = "https://example.org/download/left/1.0.0/0a1b2c"
    read = read_packument(described({"tarball": url, "integrity": SRI}), name="left", public_url="http://door:8081")
    assert read.files["left-1.0.0.tgz"].url == url
    assert b"http://door:8081/left/-/left-1.0.0.tgz" in read.body
    assert b"example.org" not in read.body


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"<html>", b'{"name":"other","versions":{}}', b'{"name":"left"}',
            b'{"name":"left","versions":[]}',
            b'{"name":"left","versions":{},"x":NaN}', b"\xff"],
)  # fmt: skip
def test_what_does_not_describe_the_package_is_the_registrys_fault(raw: bytes) -> None:
    with pytest.raises(MirrorRefusedError) as caught:
        read_packument(raw, name="left", public_url="http://door:8081")
    assert caught.value.status == 502


@pytest.mark.parametrize("manifest", [None, 7, [], {}, {"dist": None}, {"dist": {"tarball": 7, "integrity": SRI}}])
def test_a_version_that_makes_no_sense_is_left_out(manifest: Any) -> None:
    raw = described({}, versions={"1.0.0": manifest})
    assert read_packument(raw, name="left", public_url="http://door:8081").files == {}
