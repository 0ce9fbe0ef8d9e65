"""The corpus of direct requests: what site owners say, and exactly what may come of it.

Half of the requests (`tune`) were looked at while the grammar was written, the other half (`held`) was only counted
then; `probe` are requests that were made up to break it, and that it must leave to the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sites.spec.model import Site, parse_site

DATA = Path(__file__).parents[3] / "data" / "direct"


@dataclass(frozen=True, eq=False)
class Case:
    """One labelled request."""

    half: str
    site: str
    say: str
    want: Mapping[str, Any] | None
    """What must have changed, and nothing else; None when the request is not to be done without a model."""


@cache
def cases() -> tuple[Case, ...]:
    lines = (DATA / "requests.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(Case(**json.loads(line)) for line in lines)


@cache
def spec_site(name: str) -> Site:
    return parse_site((DATA / f"{name}.json").read_bytes())


@cache
def plain_site(name: str) -> Mapping[str, bytes]:
    home = DATA / name
    return {path.relative_to(home).as_posix(): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def wanted_files(want: Mapping[str, Any], files: Mapping[str, bytes]) -> dict[str, bytes]:
    wanted = dict(files)
    for path, pairs in want["html"].items():
        for old, new in pairs:
            assert old.encode() in wanted[path], old
            wanted[path] = wanted[path].replace(old.encode(), new.encode())
    return wanted


def changes(before: Site, after: Site) -> dict[str, Any]:
    """What differs, by `page:element.prop.index`; what is new stands whole, what is gone is None."""
    found = dict(_differences(_flat(before), _flat(after)))
    return {key.removeprefix("index:"): value for key, value in found.items()}


def is_as_wanted(want: Mapping[str, Any], before: Site, after: Site) -> bool:
    found = changes(before, after)
    for key in want.get("gone", ()):
        page, _, name = key.rpartition(":")
        if found.pop(key, 0) is not None:
            return False
        root = f"{page}:page.children" if page else "page.children"
        children = found.pop(root, ())
        if name in children or ("order" in want and children != want["order"]):
            return False
    if want.get("gone"):
        found = {key: value for key, value in found.items() if not key.endswith(".links") and ".links." not in key}
    if "order" in want and "gone" not in want:
        return found == {"page.children": want["order"]}
    return found == dict(want.get("set", {}))


def _flat(site: Site) -> dict[str, Any]:
    found = {}
    for path, page in site.pages.items():
        for key, element in page["elements"].items():
            found[f"{path.removesuffix('.html')}:{key}"] = {
                **element.get("props", {}),
                "children": element.get("children"),
            }
    return found


def _differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            name = f"{path}.{key}" if path else key
            yield from _differences(before.get(key), after.get(key), name)
    elif (
        isinstance(before, list) and isinstance(after, list) and len(after) >= len(before) and path[-9:] != ".children"
    ):
        for index, value in enumerate(after):
            old = before[index] if index < len(before) else None
            yield from _differences(old, value, f"{path}.{index}")
    else:
        yield path, after
