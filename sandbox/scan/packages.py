"""What a package manager would do with a file of a release: run a script, or load code from elsewhere (threat D8).

Nobody runs one over what is published; but releases are exported and opened, and one command is enough.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from sandbox.scan.references import Place, References

_MANIFEST = "package.json"
_YARN_LOCK = "yarn.lock"
"""npm takes the places of packages from it where there is no lock file of its own."""
_LOCK_FILES = frozenset({"package-lock.json", "npm-shrinkwrap.json", _YARN_LOCK})
_RUN_BY_INSTALL = frozenset(
    {
        "preinstall", "install", "postinstall", "preprepare", "prepare", "postprepare", "prepublish", "prepublishonly",
        "prepack", "postpack", "publish", "postpublish", "dependencies", "preuninstall", "uninstall", "postuninstall",
    }
)  # fmt: skip
_DEPENDENCIES = (
    "dependencies", "devDependencies", "peerDependencies", "optionalDependencies", "bundleDependencies", "overrides",
    "resolutions",
)  # fmt: skip
_VERSION = re.compile(r"[\w.*^~<>=| +-]{0,100}", re.ASCII)
_RESOLVED = re.compile(r"https://([^/?#@\\]{1,253})/")
_YARN_RESOLVED = re.compile(r"^[ \t]+(?:resolved|resolution):?[ \t]+\"?([^\s\"]+)\"?[ \t\r]*$", re.MULTILINE)
_MAX_BYTES = 8 * 1024 * 1024
_MAX_NAMED = 20


def is_package_file(path: str) -> bool:
    """Return whether a package manager reads a file of this name."""
    name = path.rsplit("/", 1)[-1].casefold()
    return name == _MANIFEST or name in _LOCK_FILES


def check_package(path: str, data: bytes, references: References) -> None:
    """Judge a manifest or a lock file; what cannot be read is refused."""
    for detail in package_faults(path, data):
        references.find("package-config", Place(path, 0), detail)


def package_faults(path: str, data: bytes) -> Iterator[str]:
    """Yield what a manifest or a lock file would have a package manager do; the first few."""
    if path.rsplit("/", 1)[-1].casefold() == _MANIFEST:
        yield from islice(_in_scripts(data), _MAX_NAMED)
    yield from foreign_sources(path, data)


def foreign_sources(path: str, data: bytes) -> Iterator[str]:
    """Yield where a manifest or a lock file would take packages from, but for the registry; the first few."""
    yield from islice(_sources(path, data), _MAX_NAMED)


def _sources(path: str, data: bytes) -> Iterator[str]:
    name = path.rsplit("/", 1)[-1].casefold()
    if len(data) > _MAX_BYTES:
        yield "too large to be read"
    elif name == _YARN_LOCK:
        yield from _elsewhere(_YARN_RESOLVED.findall(data.decode("utf-8", "replace")))
    elif (content := _read(data)) is None:
        yield "not JSON"
    else:
        yield from _in_manifest(content) if name == _MANIFEST else _in_lock_file(content)


def _read(data: bytes) -> dict[str, Any] | None:
    """Return a file's object, an empty one for another value; None for what is not JSON."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else {}


def _in_scripts(data: bytes) -> Iterator[str]:
    content = (_read(data) if len(data) <= _MAX_BYTES else None) or {}
    scripts = content.get("scripts")
    for name in scripts if isinstance(scripts, dict) else ():
        if name.casefold() in _RUN_BY_INSTALL:
            yield f"scripts.{name}"
    if "publishConfig" in content:
        yield "publishConfig"


def _in_manifest(content: dict[str, Any]) -> Iterator[str]:
    for section in _DEPENDENCIES:
        for name, version in _versions(content.get(section)):
            if not _VERSION.fullmatch(version):
                yield f"{section}.{name} = {version}"


def _versions(entries: Any) -> Iterator[tuple[str, str]]:
    """Yield every version under its name; `overrides` stand inside one another."""
    stack = [entries]
    while stack:
        found = stack.pop()
        for name, value in found.items() if isinstance(found, dict) else ():
            if isinstance(value, str):
                yield name, value
            else:
                stack.append(value)


def _in_lock_file(content: dict[str, Any]) -> Iterator[str]:
    old = list(_entries(content.get("dependencies"), is_nested=True))
    entries = [*_entries(content.get("packages"), is_nested=False), *old]
    for name, entry in old:
        version = entry.get("version")
        if isinstance(version, str) and not _VERSION.fullmatch(version):
            yield f"{name}.version = {version}"
    stated = (entry.get("resolved") for _, entry in entries if not entry.get("link"))
    yield from _elsewhere(resolved for resolved in stated if isinstance(resolved, str))


def _entries(section: Any, *, is_nested: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a lock file's entries; those of its first format stand inside one another."""
    stack = [section]
    while stack:
        found = stack.pop()
        for name, entry in found.items() if isinstance(found, dict) else ():
            if isinstance(entry, dict):
                yield name, entry
                if is_nested:
                    stack.append(entry.get("dependencies"))


def _elsewhere(resolved: Iterable[str]) -> Iterator[str]:
    """Yield the URLs that are not https, and those of every host but the first."""
    hosts: set[str] = set()
    for url in resolved:
        host = _RESOLVED.match(url)
        hosts.add(host[1].casefold() if host else "")
        if host is None or len(hosts) > 1:
            yield f"resolved = {url}"
