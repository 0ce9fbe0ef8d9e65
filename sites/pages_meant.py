"""Which pages of a site a request is about: a model that changes one is not shown the others.

Structure decides, not language: the names of pages, the labels of links to them, what is quoted, and what stands on one
page and not on all; words decide only for all of them. Where nothing tells, all are meant; and whoever writes a patch
may ask for another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

_ALL_SHOWN_CHARS: Final = 16 * 1024
"""Pages that are together so small are all shown."""
_FEW_WORDS: Final = 3
"""This many words found on only some pages decide which page is meant."""
_EVERY: Final = re.compile(
    r"\b(?:all|every|each)(?: of)?(?: the| our)? pages?\b|\b(?:alle[nr]?|jede[rn]?)(?: \w+)? (?:unter)?seiten?\b|"
    r"\b(?:toutes les|chaque) pages?\b|\b(?:todas las|cada) páginas?\b|\b(?:tutte le|ogni) pagin[ae]\b|"
    r"\b(?:alle|elke|iedere) pagina\b|\b(?:everywhere|überall|partout|dappertutto|overal|footer|logo)\b|"
    r"fußzeile|pied de page|pie de página|piè di pagina|voettekst",
    re.IGNORECASE,
)
"""All pages, or what all of them have at their head and foot."""
_TAG: Final = re.compile(r"<[^<>]{0,4000}>")
_LINK: Final = re.compile(r"<a(\s[^<>]{0,4000})>([^<>]{3,80})</a>", re.IGNORECASE)
_HREF: Final = re.compile(r"\shref\s*=\s*[\"']?([^\"'\s<>]+)", re.IGNORECASE)
_WORD: Final = re.compile(r"\w{4,}")


def pages_meant(pages: Mapping[str, str], prompt: str, words: frozenset[str], quotes: Sequence[str]) -> dict[str, None]:
    """Return the pages that a request concerns, in their order; all, where it may be any.

    `words` are the request's, in lower case, and `quotes` what it quotes.
    """
    every = dict.fromkeys(pages)
    if len(pages) < 2 or sum(map(len, pages.values())) <= _ALL_SHOWN_CHARS or _EVERY.search(prompt):
        return every
    lines = {path: _lines(source) for path, source in pages.items()}
    labels = _labels(pages)
    shared = set.intersection(*lines.values()) - set(labels)
    if any(quote in line for quote in quotes for line in shared) or words & _words(shared):
        return every
    held = {path: words & _words(own - shared) for path, own in lines.items()}
    telling = {path: len(found - frozenset.intersection(*held.values())) for path, found in held.items()}
    most = max(telling.values())
    meant = {
        path: None
        for path in pages
        if _is_named(path, labels, prompt)
        or any(quote in pages[path] for quote in quotes)
        or (most >= _FEW_WORDS and telling[path] * 2 > most)
    }
    return meant or every


def _lines(source: str) -> set[str]:
    return {" ".join(_TAG.sub(" ", line).split()) for line in source.split("\n")}


def _words(lines: set[str]) -> set[str]:
    return {word.lower() for line in lines for word in _WORD.findall(line)}


def _labels(pages: Mapping[str, str]) -> dict[str, str]:
    """Return the name of the file that each link to a page leads to, by its label."""
    names = {path.rsplit("/", 1)[-1] for path in pages}
    return {
        " ".join(label.split()): name
        for source in pages.values()
        for attributes, label in _LINK.findall(source)
        if (href := _HREF.search(attributes)) and (name := href[1].partition("#")[0].rsplit("/", 1)[-1]) in names
    }


def _is_named(path: str, labels: Mapping[str, str], prompt: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    of_it = [name.removesuffix(".html"), *(label for label, file in labels.items() if file == name)]
    return any(re.search(rf"\b{re.escape(word)}\b", prompt, re.IGNORECASE) for word in of_it)
