"""Sites that the tests of the spec engine share."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from sandbox.spec.catalog import components
from sandbox.spec.model import Site, parse_site


def demo_text() -> str:
    return (resources.files("producers.demo_site") / "site.json").read_text(encoding="utf-8")


@cache
def demo_site() -> Site:
    return parse_site(demo_text())


def page(**elements: Any) -> dict[str, Any]:
    """A page whose root holds the given elements in order."""
    root = {"type": "Page", "props": {"title": "A page"}, "children": list(elements)}
    return {"root": "page", "elements": {"page": root, **elements}}


def element(kind: str, **props: Any) -> dict[str, Any]:
    return {"type": kind, "props": props, "children": []}


def every_component() -> dict[str, Any]:
    """A page with the example of every component that can stand below a root."""
    chosen = {
        f"e-{name}": element(name, **component.example)
        for name, component in components().items()
        if name not in ("Page", "Shared")
    }
    return page(**chosen)


def reordered(value: Any) -> Any:
    """The same JSON value with the keys of every object in the opposite order."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(list(value))}
    return [reordered(item) for item in value] if isinstance(value, list) else value


def as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
