"""A direct edit as a value, and what a rule is: from one form of order and a site to the changes that it can mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sandbox.spec.model import Site
from sandbox.spec.rules.wording import Request


@dataclass(frozen=True)
class DirectEdit:
    """One change that needs no model, worked out against one site."""

    kind: str
    """What kind of change: `text`, `replace`, `colour`, `font`, `remove`, ..."""
    summary: str
    """One plain sentence for the receipt."""
    operations: tuple[Mapping[str, Any], ...]
    """RFC 6902 operations on the site document."""
    sought: tuple[str, ...] = ()
    """What was looked for on the whole site: a page that the spec does not know must not hold it."""


class Rule(NamedTuple):
    """What one form of order can mean on a site; yields every reading, for only a single one is acted on."""

    form: type
    read: Callable[[Any, Request, Site], Iterator[DirectEdit]]


def setting(kind: str, summary: str, *, path: str, value: Any, is_new: bool = False) -> DirectEdit:
    """Return the change of one value."""
    return DirectEdit(kind, summary, ({"op": "add" if is_new else "replace", "path": path, "value": value},))
