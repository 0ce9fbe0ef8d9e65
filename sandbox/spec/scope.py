"""What expressions and conditions can see at one place of a page, and how much they may make of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sandbox.spec.errors import refuse
from sandbox.spec.javascript import MISSING
from sandbox.spec.paths import look_up

MAX_PATH_CHARS: Final = 400
MAX_RESOLVED_UNITS: Final = 4 * 1024 * 1024
"""What the expressions of a site may make: a unit for a character, more for a value, a condition and an element.

A site at all of its other caps needs less than half of it as long as it repeats nothing."""
UNITS_A_VALUE: Final = 8


class Allowance:
    """How much the expressions of a site may still make. Repeats multiply what a template makes: it needs an end."""

    def __init__(self, units: int = MAX_RESOLVED_UNITS) -> None:
        self._left = units

    def spend(self, units: int) -> None:
        """Take units for work that is about to be done.

        Raises:
            SpecError: none are left; the spec's writer is at fault.
        """
        self._left -= units
        if self._left < 0:
            raise refuse("too_large", "", "expressions and repeats make more than a site may hold; use less of them")

    def spend_on(self, value: Any) -> None:
        """Take units for handing on a whole value."""
        stack = [value]
        while stack:
            item = stack.pop()
            self.spend(UNITS_A_VALUE + (len(item) if isinstance(item, str) else 0))
            if isinstance(item, Mapping):
                stack.extend(item.values())
            elif isinstance(item, list):
                stack.extend(item)


@dataclass(frozen=True)
class Scope:
    """What expressions of one place can see."""

    state: Mapping[str, Any] = field(default_factory=dict)
    item: Any = MISSING
    index: int | None = None
    item_path: str | None = None
    """Path of the item in the state; None outside of a repeat."""
    allowance: Allowance = field(default_factory=Allowance, compare=False, repr=False)


class Complaint(NamedTuple):
    """An expression that breaks a rule."""

    code: str
    message: str


def value_of(source: Mapping[str, Any], scope: Scope) -> Any:
    """Return what one source ($state, $item, $index or a binding to one of them) leads to, or `MISSING`."""
    if "$index" in source:
        return MISSING if scope.index is None else scope.index
    if "$item" in source:
        return look_up(scope.item, source["$item"])
    if "$bindItem" in source:
        return _bound_item(source["$bindItem"], scope)
    return look_up(scope.state, source["$state"] if "$state" in source else source["$bindState"])


def _bound_item(path: str, scope: Scope) -> Any:
    """Follow a two-way binding, which goes through the item's path in the state and not through the item."""
    if scope.item_path is None:
        return MISSING
    return look_up(scope.state, scope.item_path if path == "" else f"{scope.item_path}/{path}")
