"""What a package manager would do with a file of a release: run a script, or load code from elsewhere (threat D8).

Nobody runs one over what is published; but releases are exported and opened, and one command is enough.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from sandbox.scan.references import Place, References

_MANIFEST = "package.json"
_LOCK_FILES = frozenset({"package-lock.json", "npm-shrinkwrap.json"})
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
_MAX_BYTES = 8 * 1024 * 1024
_MAX_NAMED = 20


def is_package_file(path: str) -> bool:
    """Return whether a package manager reads a file of this name."""
    name = path.rsplit("/", 1)[-1].casefold()
    return name == _MANIFEST or name in _LOCK_FILES


def check_package(path: str, data: bytes, references: References) -> None:
    """Judge a manifest or a lock file; what cannot be read is refused."""
    place = Place(path, 0)
    if len(data) > _MAX_BYTES:
        references.find("package-config", place, "too large to be read")
        return
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        references.find("package-config", place, "not JSON")
        return
    if not isinstance(content, dict):
        return
    is_manifest = path.rsplit("/", 1)[-1].casefold() == _MANIFEST
    for number, detail in enumerate(_in_manifest(content) if is_manifest else _in_lock_file(content)):
        if number >= _MAX_NAMED:
            return
        references.find("package-config", place, detail)


def _in_manifest(content: dict[str, Any]) -> Iterator[str]:
    scripts = content.get("scripts")
    for name in scripts if isinstance(scripts, dict) else ():
        if name.casefold() in _RUN_BY_INSTALL:
            yield f"scripts.{name}"
    for section in _DEPENDENCIES:
        entries = content.get(section)
        for name, version in entries.items() if isinstance(entries, dict) else ():
            if isinstance(version, str) and not _VERSION.fullmatch(version):
                yield f"{section}.{name} = {version}"
    if "publishConfig" in content:
        yield "publishConfig"


def _in_lock_file(content: dict[str, Any]) -> Iterator[str]:
    hosts: set[str] = set()
    for section in ("packages", "dependencies"):
        entries = content.get(section)
        for entry in entries.values() if isinstance(entries, dict) else ():
            resolved = entry.get("resolved") if isinstance(entry, dict) else None
            if not isinstance(resolved, str) or entry.get("link"):
                continue
            host = _RESOLVED.match(resolved)
            hosts.add(host[1].casefold() if host else "")
            if host is None or len(hosts) > 1:
                yield f"resolved = {resolved}"
