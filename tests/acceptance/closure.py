"""What a wheel says that it needs, taken from the environment that runs the tests instead of from an index once more.

`make setup` installed exactly these versions, so fetching them again proves nothing and takes a minute. What the wheel
does not declare is not there, which is the point.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from importlib.util import cache_from_source
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def _needs(found: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    for line in found.requires or ():
        need = Requirement(line)
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in (extras or {""})):
            yield need


def closure(first: Distribution) -> list[Distribution]:
    """Return every distribution that one needs, by what each declares, in the versions that are installed here."""
    seen: set[tuple[str, frozenset[str]]] = set()
    found: dict[str, Distribution] = {}
    waiting = list(_needs(first, frozenset()))
    while waiting:
        need = waiting.pop()
        key, here = (canonicalize_name(need.name), frozenset(need.extras)), distribution(need.name)
        assert need.specifier.contains(here.version, prereleases=True), f"{need} is not what is installed"
        if key in seen:
            continue
        seen.add(key)
        found[key[0]] = here
        waiting += _needs(here, key[1])
    return list(found.values())


def link(found: Distribution, site_packages: Path) -> None:
    """Put a distribution's files into another environment; as links where the disk can.

    What was compiled of them comes along, though no list of files names it where pip was told not to compile: a dozen
    processes that start at once would each compile all of it.
    """
    for file in found.files or ():
        compiled = Path(cache_from_source(str(file))) if file.suffix == ".py" else file
        for part in {Path(file), compiled}:
            source = Path(str(found.locate_file(part)))
            if ".." in part.parts or not source.exists():
                continue
            target = site_packages / part
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(source, target)
            except OSError:
                shutil.copy2(source, target)
