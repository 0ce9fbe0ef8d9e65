"""Small text functions that replies are made of: what a prompt is about, and how to say it as a title or an id."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_][\w'’-]*")
_TAG = re.compile(r"\[rehearse:[a-z0-9-]+(?:=[a-z0-9,.-]+)?\]")
_QUOTED = re.compile(r"[\"“„]([^\"“”„\n]{1,300})[\"”“]|(?<!\w)['‘]([^'‘’\n]{1,300})['’](?!\w)")
_COMMON_TEXT = """
about add all also an and another any are as at be below can change could create do edit for from give get has have he
her his how i in into is it its just like make me more my need new no not of on one or our out page please put replace
section set she site so some that the their them then there they this to under up update us use want was we website were
what when where which who why will with would you your named called above after before text says say
"""
_COMMON = frozenset(_COMMON_TEXT.split())


def plain(text: str) -> str:
    """Return a text without rehearsal tags and unprintable characters, its white space collapsed."""
    printable = "".join(character if character.isprintable() else " " for character in _TAG.sub(" ", text))
    return " ".join(printable.split())


def words(text: str) -> list[str]:
    """Return the words of a text in order."""
    return _WORD.findall(plain(text))


def key_words(text: str, count: int = 6) -> list[str]:
    """Return the first `count` different words that carry meaning, in order."""
    found = dict.fromkeys(word for word in words(text) if word.casefold() not in _COMMON and len(word) > 1)
    return list(found)[:count]


def quoted(text: str) -> list[str]:
    """Return what stands in quotation marks, in order."""
    return [double or single for double, single in _QUOTED.findall(plain(text))]


def title(text: str, count: int = 6) -> str:
    """Return a short heading for a text: its quoted part or its meaningful words."""
    if found := quoted(text):
        return found[0][:80]
    return " ".join(word[:1].upper() + word[1:] for word in key_words(text, count))[:80] or "Untitled"


def slug(text: str) -> str:
    """Return a text as lower-case words with hyphens, at most 40 characters."""
    return re.sub(r"[^a-z0-9]+", "-", plain(text).lower()).strip("-")[:40].strip("-") or "item"


def sentence(text: str) -> str:
    """Return a text as one sentence: capital first letter, full stop at the end."""
    clean = plain(text)
    return clean[:1].upper() + clean[1:] + ("" if clean.endswith((".", "!", "?", "…")) else ".") if clean else ""


def wordy(about: str, characters: int) -> str:
    """Return a long text of exactly `characters` characters that keeps quoting what it is about."""
    lines = (
        "This is the rehearsal model writing at length, because the scenario asks for a wordy reply.",
        f"What was asked reads: {plain(about)[:200] or 'nothing'}.",
        "A real model would weigh the request, describe the alternatives and defend its choice at this point.",
        "None of this text carries information; it costs tokens, time and money exactly as real text would.",
    )
    cycle = " ".join(lines) + "\n\n"
    return (cycle * (characters // len(cycle) + 1))[:characters]
