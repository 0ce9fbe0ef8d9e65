"""Which paths the mirror knows: a package's description and its files. Whatever has another shape is not there."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_PART = r"[A-Za-z0-9~-][A-Za-z0-9._~-]{0,213}"
_NAME = re.compile(rf"(?P<name>(?:@{_PART}/)?{_PART})")
_TARBALL = r"[A-Za-z0-9~-][A-Za-z0-9._+~-]{0,254}\.tgz"
_FILE = re.compile(rf"(?P<name>(?:@{_PART}/)?{_PART})/-/(?:@{_PART}/)?(?P<file>{_TARBALL})")
_MAX_NAME_CHARS = 214
"""What npm allows, scope included."""


class Description(NamedTuple):
    """Ask for what is known of a package."""

    name: str


class File(NamedTuple):
    """Ask for one version's tarball."""

    name: str
    file: str


def parse_path(path: str, *, prefixes: tuple[str, ...] = ()) -> Description | File | None:
    """Read a decoded path.

    Args:
        path: of the request, percent-decoded once, as the ASGI server gives it.
        prefixes: paths that the registries' own URLs begin with: lock files repeat them.

    Returns:
        None for every path that has another shape.
    """
    inner = path.removeprefix("/")
    for prefix in prefixes:
        own = prefix.strip("/")
        if own and inner.startswith(f"{own}/"):
            inner = inner.removeprefix(f"{own}/")
            break
    if found := _FILE.fullmatch(inner):
        return File(found["name"], found["file"]) if len(found["name"]) <= _MAX_NAME_CHARS else None
    if found := _NAME.fullmatch(inner):
        return Description(found["name"]) if len(found["name"]) <= _MAX_NAME_CHARS else None
    return None


def file_of(url: str) -> str | None:
    """Return the file's name under which the mirror serves what a registry has at this URL; None if it cannot."""
    try:
        name = unquote(urlsplit(url).path).rpartition("/")[2]
    except ValueError:
        return None
    return name if _FILE.fullmatch(f"x/-/{name}") else None
