"""What a package manager would do with a file, and where it would take packages from (threat D8)."""

import json
from typing import Any

import pytest

from sites.scan.file_types import foreign_sources, is_package_file, package_faults

REGISTRY = "https://registry.example"
ENTRY = {"version": "1.0.0", "resolved": f"{REGISTRY}/a/-/a-1.0.0.tgz"}
YARN = 'a@^1.0.0:\n  version "1.0.0"\n  resolved "{}"\n  integrity sha512-xx\n\nb@1:\n  resolved "{}"\n'


def faults(path: str, content: Any) -> list[str]:
    return list(foreign_sources(path, content if isinstance(content, bytes) else json.dumps(content).encode()))


@pytest.mark.threat("D8")
@pytest.mark.parametrize(
    "version",
    [
        "git+https://evil.example/a.git",
        "git+ssh://git@evil.example/a",
        "git://evil.example/a",
        "someone/a",
        "github:someone/a",
        "http://evil.example/a.tgz",
        "https://evil.example/a.tgz",
        "file:../a",
        "file:/etc",
        "link:../a",
        "../a",
        "/etc/passwd",
        "npm:evil@1",
        "~/a",
        "workspace:../a",
        "git@evil.example:a",
    ],
)
@pytest.mark.parametrize("section", ["dependencies", "devDependencies", "optionalDependencies", "peerDependencies"])
def test_a_dependency_from_elsewhere_than_the_registry_is_named(section: str, version: str) -> None:
    assert faults("package.json", {section: {"fine": "^1.2.0 || >=2", "a": version}}) == [f"{section}.a = {version}"]


@pytest.mark.threat("D8")
@pytest.mark.parametrize("section", ["overrides", "resolutions"])
def test_an_override_is_found_however_deep_it_stands(section: str) -> None:
    entries: dict[str, Any] = {"a": "https://evil.example/a.tgz"}
    for _ in range(200):
        entries = {".": "1", "b": entries}
    assert faults("package.json", {section: entries}) == [f"{section}.a = https://evil.example/a.tgz"]


@pytest.mark.threat("D8")
@pytest.mark.parametrize("path", ["package-lock.json", "npm-shrinkwrap.json", "sub/Package-Lock.json"])
@pytest.mark.parametrize(
    "resolved",
    [
        "http://evil.example/a.tgz",
        "git+ssh://git@evil.example/a#1",
        "https://evil.example/a.tgz",
        "file:../a.tgz",
        "https://registry.example@evil.example/a.tgz",
        "//evil.example/a.tgz",
        "HTTP://x/",
        "",
    ],
)
def test_a_lock_file_that_points_elsewhere_is_named(path: str, resolved: str) -> None:
    evil = {"version": "1.0.0", "resolved": resolved}
    named = [f"resolved = {resolved}"]
    assert faults(path, {"packages": {"": {}, "node_modules/a": ENTRY, "node_modules/b": evil}}) == named
    assert faults(path, {"dependencies": {"a": ENTRY | {"dependencies": {"b": ENTRY, "c": evil}}}}) == named


@pytest.mark.threat("D8")
@pytest.mark.parametrize("version", ["git+https://evil.example/a.git#1", "file:../a", "https://evil.example/a.tgz"])
def test_a_lock_file_of_the_first_format_names_places_as_versions(version: str) -> None:
    entry = {"version": version, "from": version}
    assert faults("package-lock.json", {"dependencies": {"a": ENTRY | {"dependencies": {"b": entry}}}}) == [
        f"b.version = {version}"
    ]


@pytest.mark.threat("D8")
def test_npm_reads_a_yarn_lock_so_it_is_read_here() -> None:
    own = f"{REGISTRY}/a.tgz#0123"
    assert is_package_file("yarn.lock")
    assert faults("yarn.lock", YARN.format(own, f"{REGISTRY}/b.tgz#1").encode()) == []
    for evil in ("https://evil.example/b.tgz#1", "http://registry.example/b.tgz", "git+ssh://git@evil.example/b.git#1"):
        assert faults("yarn.lock", YARN.format(own, evil).encode()) == [f"resolved = {evil}"]
        assert faults("yarn.lock", YARN.format(own, evil).replace("\n", "\r\n").encode()) == [f"resolved = {evil}"]


@pytest.mark.threat("D8")
@pytest.mark.parametrize("name", ["preinstall", "install", "postinstall", "prepare", "PostInstall"])
def test_a_script_that_an_install_would_run_is_named(name: str) -> None:
    data = json.dumps({"scripts": {"build": "vite build", name: "x"}}).encode()
    assert list(package_faults("package.json", data)) == [f"scripts.{name}"]
    assert list(foreign_sources("package.json", data)) == [], "it is never run: npm is told so"


@pytest.mark.parametrize("data", [b"{", b"[" * 100_000, b"\xff", b'{"a":NaN' + b"9" * 9_000_000])
def test_what_cannot_be_read_is_refused(data: bytes) -> None:
    (fault,) = package_faults("package.json", data)
    assert fault in ("not JSON", "too large to be read")


def test_few_are_named_however_many_there_are() -> None:
    assert len(faults("package.json", {"dependencies": {f"a{n}": "x/y" for n in range(50_000)}})) == 20
    assert len(faults("package-lock.json", {"packages": {f"a{n}": {"resolved": "x"} for n in range(50_000)}})) == 20


def test_an_ordinary_site_with_packages_has_no_faults() -> None:
    link = {"link": True, "resolved": "w"}
    lock = {"packages": {"": {"dependencies": {"a": "^1"}}, "node_modules/a": ENTRY, "node_modules/w": link}}
    package = {
        "name": "x",
        "scripts": {"build": "vite build"},
        "dependencies": {"a": "^1", "b": "latest"},
        "overrides": {"a": {"b": "1.0.0 - 2"}},
        "workspaces": ["w"],
    }
    assert faults("package-lock.json", lock) == faults("package.json", package) == []
