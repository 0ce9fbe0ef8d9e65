"""Which part of a release visitors get: all of a plain site, and of a site with a build only what the build wrote.

The sources of a built site are part of its release, so that the next edit starts from them; they are never served. What
is served is a pure function of the files, and the release's digest holds it: scan, approval and server mean the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from sandbox.errors import PathRefusedError
from sandbox.paths import check_path

PACKAGE = "package.json"
INDEX = "index.html"
INSTALLED = "node_modules"
"""Where a package manager puts packages; no release holds any, as each build installs them anew."""
WRITTEN = ("dist", "build", "out", "_site")
"""Where builds write. Nothing else lies there, so a build starts without them: no page of an older one can stay."""
CONVENTIONAL = (*WRITTEN, "public")
"""Where a build's pages are looked for, in this order. `public` comes last, and stays: to many tools it is a source."""

ValueT = TypeVar("ValueT")


def is_built(files: Mapping[str, bytes]) -> bool:
    """Return whether a site has to be built: its package.json has a build script."""
    return isinstance(part_of(package_of(files), "scripts").get("build"), str)


def public_of(files: Mapping[str, bytes]) -> str | None:
    """Return the directory that is served.

    Returns:
        Its path; empty for all files: a plain site, or one whose package.json says `"pointsman": {"public": "."}`. None
        for a site with a build whose pages are not there.
    """
    if not is_built(files):
        return ""
    named = part_of(package_of(files), "pointsman").get("public")
    if named is None:
        return next((directory for directory in CONVENTIONAL if f"{directory}/{INDEX}" in files), None)
    return _named(named, files)


def sources_of(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return what a build starts from: everything but what the last build wrote.

    A directory that package.json names is kept: who names it may keep pages of their own there.
    """
    public = public_of(files)
    is_named = "public" in part_of(package_of(files), "pointsman")
    if public not in WRITTEN or is_named:
        return dict(files)
    return {path: data for path, data in files.items() if not is_below(path, public)}


def served_part(files: Mapping[str, ValueT], public: str) -> dict[str, ValueT]:
    """Return what is served, by the names that visitors know it by."""
    if not public:
        return dict(files)
    return {path[len(public) + 1 :]: value for path, value in files.items() if is_below(path, public)}


def is_below(path: str, directory: str) -> bool:
    """Return whether a file lies in a directory or in one below it."""
    return path.startswith(f"{directory}/")


def package_of(files: Mapping[str, bytes]) -> Mapping[str, Any]:
    """Return a site's package.json; empty for one that cannot be read."""
    try:
        package = json.loads(files.get(PACKAGE, b"{}"))
    except (ValueError, RecursionError):
        return {}
    return package if isinstance(package, dict) else {}


def part_of(package: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return one object of a package.json; empty where there is none."""
    found = package.get(name)
    return found if isinstance(found, dict) else {}


def _named(named: object, files: Mapping[str, bytes]) -> str | None:
    if named == ".":
        return ""
    try:
        public = check_path(named) if isinstance(named, str) else ""
    except PathRefusedError:
        return None
    return public if public and any(is_below(path, public) for path in files) else None
