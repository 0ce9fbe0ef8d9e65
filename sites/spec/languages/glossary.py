"""Words that recur in the parts of a long translation, so that calls side by side use one word for one thing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sites.spec.languages.translation import Entry

_MOST_TERMS: Final = 16
"""A call of its own translates them first, in a few seconds of the tier's 25."""
_MOST_CHARACTERS: Final = 30
"""Of a heading or a label that is a term."""


def repeated_terms(entries: Sequence[Entry], parts: Sequence[str]) -> dict[int, str]:
    """Return short texts, by number, that stand in several parts, alone or within others."""
    terms: dict[str, int] = {}
    for number, entry in enumerate(entries):
        if len(entry.text) <= _MOST_CHARACTERS and sum(_has(part, entry.text) for part in parts) > 1:
            terms.setdefault(entry.text, number)
    return {number: text for text, number in [*terms.items()][:_MOST_TERMS]}


def glossary(terms: Mapping[int, str], reply: Mapping[str, Any]) -> dict[str, str]:
    """Return how terms are translated; what is no such pair is left out."""
    texts = reply.get("texts")
    pairs = [
        (terms[step["n"]], step["text"])
        for step in (texts if isinstance(texts, list) else ())
        if isinstance(step, dict)
        and isinstance(step.get("n"), int)
        and step["n"] in terms
        and isinstance(step.get("text"), str)
    ]
    return {term: text for term, text in pairs if 0 < len(text) <= 2 * _MOST_CHARACTERS and text != term}


def with_glossary(part: str, pairs: Mapping[str, str]) -> str:
    """Return a part with those pairs that it needs."""
    needed = {term: text for term, text in pairs.items() if _has(part, term)}
    if not needed:
        return part
    return f"{part}\n\nThe other parts translate so: {json.dumps(needed, ensure_ascii=False)}"


def _has(part: str, term: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(term)}(?!\w)", part, re.IGNORECASE) is not None
