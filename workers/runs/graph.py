"""What follows from who depends on whom: cycles, and which steps can never run at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import combinations

Edges = Mapping[str, Sequence[str]]
"""The keys that a key depends on. Names that are no key themselves are ignored."""


def find_cycle(edges: Edges) -> tuple[str, ...] | None:
    """Return a cycle as the keys on it, each depending on the next and the last on the first; None if there is none."""
    sorter = TopologicalSorter({key: [name for name in needs if name in edges] for key, needs in edges.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        *cycle, _ = error.args[1]
        return tuple(reversed(cycle))
    return None


def find_ancestors(edges: Edges) -> dict[str, frozenset[str]]:
    """Return everything that each key depends on, directly or not.

    Raises:
        graphlib.CycleError: our fault; the caller looks for cycles first.
    """
    found: dict[str, frozenset[str]] = {}
    known = {key: [name for name in needs if name in edges] for key, needs in edges.items()}
    for key in TopologicalSorter(known).static_order():
        found[key] = frozenset(known[key]).union(*(found[name] for name in known[key]))
    return found


def find_concurrent(edges: Edges) -> Iterator[tuple[str, str]]:
    """Yield each pair of keys of which neither depends on the other: they may run at the same time."""
    ancestors = find_ancestors(edges)
    for one, other in combinations(edges, 2):
        if one not in ancestors[other] and other not in ancestors[one]:
            yield one, other
