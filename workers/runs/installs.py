"""What an installation in a box left out, and the setting that lets it in: npm's install scripts, Python's sources."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from pydantic_core import from_json

_LOCK = "package-lock.json"
_NO_WHEEL = re.compile(r"No matching distribution found for ([A-Za-z0-9][A-Za-z0-9._-]{0,100})")
_MOST_NAMED = 20


def left_out(files: Mapping[str, bytes], said: str, *, scripts: Collection[str]) -> Iterator[str]:
    """Yield why a command may have failed, a sentence for each kind of what was left out.

    `said` is the end of the command's output, `scripts` the packages whose install scripts were run; npm's lock in
    `files` says which have some.
    """
    names = sorted({*_with_scripts(files.get(_LOCK, b""))} - {*scripts})[:_MOST_NAMED]
    if names:
        yield (
            f"Install scripts of {', '.join(names)} have not run: only those of packages that the project's file names"
            " in `commands.scripts` do."
        )
    missing = sorted({*_NO_WHEEL.findall(said)})[:_MOST_NAMED]
    if missing:
        yield (
            f"There may be no wheel of {', '.join(missing)}: source distributions, whose installation runs their code,"
            " are served of those projects only that the operator names in POINTSMAN_MIRROR__PYTHON_SDISTS."
        )


def _with_scripts(lock: bytes) -> Iterator[str]:
    """Yield the packages of npm's lock that have install scripts; none of a lock that cannot be read."""
    try:
        found = from_json(lock, allow_inf_nan=False)
    except ValueError:
        return
    packages = found.get("packages") if isinstance(found, dict) else None
    for place, package in packages.items() if isinstance(packages, dict) else ():
        name = place.rpartition("node_modules/")[2]
        if name and isinstance(package, dict) and package.get("hasInstallScript") is True:
            yield ascii(name)[1:-1]
