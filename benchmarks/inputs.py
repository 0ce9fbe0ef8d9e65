"""What all sides of a race are given: made up, equal on every machine, and by the standard library alone."""

from __future__ import annotations

import difflib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SAMPLES = Path(__file__).parents[1] / "tests" / "data" / "routing_golden.jsonl"
SITE_BYTES = 1_000_000
_WORDS = (
    "bread oven morning flour village garden slow table window season market river autumn family "
    "kitchen guests honest stone quiet simple weekend baker butter orchard visit street lantern corner"
)
_HUNKS = {"index.html": 3, "styles.css": 3, "about.html": 2}


class Sample(NamedTuple):
    """A prompt of the labelled set that the router is held to, and where it belongs."""

    prompt: str
    site: dict[str, Any]
    label: str


class Edit(NamedTuple):
    """A change of some files, before and after and as a unified diff."""

    before: dict[str, str]
    after: dict[str, str]
    diff: str


def samples() -> list[Sample]:
    """Return every prompt of the set, in its order."""
    lines = [json.loads(line) for line in SAMPLES.read_text().splitlines()]
    return [
        Sample(line["prompt"], line["site"], f"{line['expect']['mode']} {line['expect']['tier']}") for line in lines
    ]


def prompts(count: int = 200) -> list[Sample]:
    """Return as many of them from all over the set."""
    return random.Random(1).sample(samples(), count)


def page() -> dict[str, Any]:
    """Return the spec of a page of 50 elements: five sections of cards, texts, links and buttons."""
    chance = random.Random(2)
    elements = {"page": _element("Page", [f"part-{part}" for part in range(5)], title="Fifty elements")}
    for part in range(5):
        key = f"part-{part}"
        cards = [f"{key}-card-{number}" for number in range(3)]
        elements[key] = _element("Section", [f"{key}-text", f"{key}-grid", f"{key}-more"], heading=_words(chance, 4))
        elements[f"{key}-text"] = _element("Text", text=f"{_words(chance, 18)} & more")
        elements[f"{key}-grid"] = _element("Grid", cards, columns=3)
        elements[f"{key}-more"] = _element("Stack", [f"{key}-button", f"{key}-link"], direction="horizontal", gap="md")
        elements[f"{key}-button"] = _element("Button", label="Order now", href="https://example.com/order")
        elements[f"{key}-link"] = _element("Link", label="Read on", href="#part-0")
        for card in cards:
            elements[card] = _element("Card", heading=_words(chance, 3), text=_words(chance, 12))
    for number in range(50 - len(elements)):
        key = f"note-{number}"
        elements["part-4"]["children"].append(key)
        elements[key] = _element("Text", text=_words(chance, 9))
    return {"root": "page", "elements": elements}


def edit() -> Edit:
    """Return a change of three files in eight places, far enough apart to be eight hunks."""
    chance = random.Random(3)
    before, after, diff = {}, {}, ""
    for path, hunks in _HUNKS.items():
        old = [f"  <p>{number}: {_words(chance, 7)}</p>\n" for number in range(120)]
        new = list(old)
        for hunk in range(hunks):
            new[15 + 30 * hunk : 17 + 30 * hunk] = [f"  <p>{_words(chance, 6)}</p>\n" for _ in range(3)]
        before[path], after[path] = "".join(old), "".join(new)
        diff += f"diff --git a/{path} b/{path}\n" + "".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}"))
    return Edit(before, after, diff)


def site() -> dict[str, bytes]:
    """Return the files of a site of 1 MB that has nothing to hide: pages, a style sheet, a script."""
    chance = random.Random(4)
    files = {"styles.css": "".join(_rules(chance, 400)).encode(), "app.js": "".join(_statements(chance, 120)).encode()}
    while (left := SITE_BYTES - sum(map(len, files.values()))) > 0:
        path = "index.html" if "index.html" not in files else f"page-{len(files)}.html"
        files[path] = "".join(_markup(chance, min(left // 140, 120))).encode()
    return files


def _element(kind: str, children: list[str] | None = None, **props: Any) -> dict[str, Any]:
    return {"type": kind, "props": props, "children": children or []}


def _words(chance: random.Random, count: int) -> str:
    return " ".join(chance.choices(_WORDS.split(), k=count))


def _markup(chance: random.Random, blocks: int) -> Iterator[str]:
    yield f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{_words(chance, 3)}</title>\n'
    yield '<link rel="stylesheet" href="styles.css">\n<script src="app.js" defer></script>\n</head>\n<body>\n'
    for number in range(blocks):
        yield f'<section id="s{number}" class="band {_words(chance, 1)}">\n<h2>{_words(chance, 4)}</h2>\n'
        yield f'<p>{_words(chance, 24)} <a href="index.html#s{number}">{_words(chance, 2)}</a></p>\n</section>\n'
    yield "</body>\n</html>\n"


def _rules(chance: random.Random, count: int) -> Iterator[str]:
    for number in range(count):
        yield f".{_words(chance, 1)}-{number} {{ margin: {number % 7}rem; color: #{chance.randrange(4096):03x}; }}\n"


def _statements(chance: random.Random, count: int) -> Iterator[str]:
    for number in range(count):
        yield f'document.getElementById("s{number}").dataset.word = "{_words(chance, 2)}";\n'
