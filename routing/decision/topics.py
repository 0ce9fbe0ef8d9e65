"""What a word is about, in six languages, for the second opinion: `Rechnungsbetrag` and `fattura` are money."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from importlib import resources

from routing.yaml_data import load_yaml

_SHORTEST_PART = 5
"""A shorter entry of `words.yaml` counts only as a whole word."""


def topics_of(word: str) -> frozenset[str]:
    """Return the topics of a folded word."""
    entries, longest = _entries()
    parts = (
        word[at : at + size]
        for size in range(_SHORTEST_PART, min(longest, len(word)) + 1)
        for at in range(len(word) - size + 1)
    )
    return frozenset().union(entries.get(word, ()), *(entries[part] for part in parts if part in entries))


@cache
def _entries() -> tuple[dict[str, frozenset[str]], int]:
    """Return the topics of each entry, and the length of the longest."""
    listed = load_yaml((resources.files("routing.decision") / "words.yaml").read_bytes())
    found: dict[str, set[str]] = defaultdict(set)
    for topic, entries in listed.items():
        for entry in entries:
            found[entry].add(topic)
    return {entry: frozenset(topics) for entry, topics in found.items()}, max(map(len, found))
