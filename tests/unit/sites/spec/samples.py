"""Sites that the tests of the spec engine share."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from functools import cache
from importlib import resources
from typing import Any

from pydantic import ValidationError

from sites.errors import Finding, SpecError
from sites.spec.catalog import components
from sites.spec.model import Site, parse_site, strings_in
from sites.spec.validate import require_valid


def demo_text() -> str:
    return (resources.files("producers.local.demo_site") / "site.json").read_text(encoding="utf-8")


@cache
def demo_site() -> Site:
    return parse_site(demo_text())


def findings(source: Any) -> tuple[Finding, ...]:
    """What is wrong with a site, or with the document of one."""
    try:
        require_valid(source if isinstance(source, Site) else parse_site(source))
    except SpecError as error:
        return error.findings
    return ()


def codes(source: Any) -> set[str]:
    return {finding.code for finding in findings(source)}


def page(**elements: Any) -> dict[str, Any]:
    """A page whose root holds the given elements in order."""
    root = {"type": "Page", "props": {"title": "A page"}, "children": list(elements)}
    return {"root": "page", "elements": {"page": root, **elements}}


def element(kind: str, **props: Any) -> dict[str, Any]:
    return {"type": kind, "props": props, "children": []}


def holding(kind: str, *children: str, **fields: Any) -> dict[str, Any]:
    """An element that holds others by their keys."""
    return {"type": kind, "props": {}, "children": list(children), **fields}


def nested(**elements: Any) -> dict[str, Any]:
    """A page whose root holds the first of the given elements; the others stand inside of that."""
    spec = page(**elements)
    spec["elements"]["page"]["children"] = [next(iter(elements))]
    return spec


def every_component() -> dict[str, Any]:
    """A page with the example of every component that can stand below a root, and plans on each ground of their own."""
    chosen = {
        f"e-{name}": element(name, **component.example)
        for name, component in components().items()
        if name not in ("Page", "Shared")
    }
    plans = chosen["e-Pricing"]["props"]
    toned = ({**plan, "tone": tone} for plan in plans["plans"] for tone in ("filled", "accent"))
    chosen["e-Pricing"]["props"] = {**plans, "plans": [*plans["plans"], *toned]}
    return page(**chosen)


def with_every_text(spec: dict[str, Any], text: str) -> dict[str, Any]:
    """A page whose every free text is replaced, as much of it as fits; addresses, choices and numbers stay."""
    made = deepcopy(spec)
    for item in made["elements"].values():
        model = components()[item["type"]].props
        for place, _ in [*strings_in(item["props"])]:
            for length in (len(text), 60, 20):
                changed = deepcopy(item["props"])
                holder = changed
                for step in place[:-1]:
                    holder = holder[step]
                holder[place[-1]] = text[:length]
                with suppress(ValidationError):
                    model.model_validate(changed)
                    item["props"] = changed
                    break
    return made


def reordered(value: Any) -> Any:
    """The same JSON value with the keys of every object in the opposite order."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(list(value))}
    return [reordered(item) for item in value] if isinstance(value, list) else value
