"""The look of a new site by its trade and its icons by their subject: data in YAML, found by the site's own words."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

from routing.yaml_data import load_yaml
from sites.spec.catalog import HeroLayout
from sites.spec.html import ArtName
from sites.spec.theme import Pairing, PresetName


class Trade(NamedTuple):
    """What sites of a trade open with."""

    preset: PresetName
    fonts: Pairing
    art: ArtName | None
    opening: HeroLayout
    words: re.Pattern[str]
    mode: Literal["light", "dark"]


_MIN_COMPOUND_CHARS: Final = 5
"""Shorter words are only found alone: a barber is no bar."""


def _pattern(words: str) -> re.Pattern[str]:
    parts = (word if len(word) >= _MIN_COMPOUND_CHARS else rf"\b{word}\b" for word in words.split())
    return re.compile("|".join(parts), re.IGNORECASE)


_DATA: Final[dict[str, Any]] = load_yaml(pkgutil.get_data(__name__, "trades.yaml") or b"")
TRADES: Final = {
    name: Trade(
        entry["preset"],
        Pairing(*entry["fonts"]),
        entry.get("art"),
        entry.get("opening", "split"),
        _pattern(entry["words"]),
        entry.get("mode", "light"),
    )
    for name, entry in _DATA.items()
}


def trade_of(*texts: str | None) -> Trade | None:
    """Return the trade that some texts name, the first text that names one deciding; None if none does."""
    for text in texts:
        hits = {name: len(trade.words.findall(text or "")) for name, trade in TRADES.items()}
        if any(hits.values()):
            return TRADES[max(hits, key=lambda name: hits[name])]
    return None


ICONS: Final = {
    name: _pattern(words) for name, words in load_yaml(pkgutil.get_data(__name__, "drawings/words.yaml") or b"").items()
}


def icons_of(entries: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return an icon for each entry, no two alike, or none at all if one entry names nothing that has an icon left.

    Of an entry's texts, those come first that say most.
    """
    chosen: list[str] = []
    for texts in entries:
        left = [name for text in texts for name, words in ICONS.items() if name not in chosen and words.search(text)]
        if not left:
            return ()
        chosen.append(left[0])
    return tuple(chosen)
