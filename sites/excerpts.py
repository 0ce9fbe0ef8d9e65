"""What a model reads of a site: whole files where they fit, else the parts that a request concerns.

Excerpts are deterministic, so that the provider's prompt cache can help.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import chain, count
from typing import Final, NamedTuple

from routing.model_call import to_json
from sites.files import INDEX, is_text_file
from sites.pages_meant import pages_meant
from sites.style_excerpts import (
    MAX_SHEET_BYTES,
    SMALL_SHEET_BYTES,
    asks_for_looks,
    names_near,
    needs_styles,
    rule_windows,
)

MAX_SHOWN_BYTES: Final = 64 * 1024
"""Bytes of files per call; with the instructions they fit the policy's input estimate."""
_MAX_SEARCHED_BYTES: Final = 512 * 1024
_NEAR_LINES: Final = 30
"""Lines shown before and after one that the request concerns."""
_MAX_LISTED: Final = 200
_GENERATED: Final = ("package-lock.json", "npm-shrinkwrap.json", "-LICENSE.txt")
"""Text that nobody edits by hand."""
MAX_READ_BYTES: Final = 24 * 1024
"""Of the pages' text that a question comes with."""
_SMALL_SCRIPTS_BYTES: Final = 4 * 1024
"""Of the scripts shown with it: they hold what a page computes or shows by itself."""
_MOST_SOURCE_CHARS: Final = 2 * _MAX_SEARCHED_BYTES
"""Of the pages that this text is sought in: reading them takes half a second."""
_SILENT: Final = frozenset({"script", "style", "template", "svg", "noscript"})
_ON_PHONES: Final = "in-brief"
"""The class of what a phone shows in place of the words before it."""
_CELLS: Final = frozenset({"td", "th"})
_INLINE_TEXT: Final = _CELLS | {"b", "em", "i", "small", "span", "strong", "time", "u", "mark", "cite", "code"}
_LINE_STARTS: Final = {"h1": "# ", "h2": "## ", "h3": "### ", "h4": "#### ", "li": "- ", "dt": "- "}
_SCRIPTS: Final = (".js", ".mjs")
_SECTION: Final = re.compile(r"##? |<file")
_BLOCK_LINES: Final = 8
_MOST_OF_HEADING: Final = 60
_MOST_MISSES: Final = 20
_STEM: Final = 5
"""Letters of a word that its other forms have, too."""
_NUMBER: Final = re.compile(r"\d+")
_NUMBER_WORDS: Final = """
4 four vier quatre cuatro quattro
5 five fünf cinq cinco cinque vijf
6 six sechs seis zes
7 seven sieben sept siete sette zeven
8 eight acht huit ocho otto
9 nine neun neuf nueve nove negen
10 ten zehn dix diez dieci tien
11 eleven elf onze undici
12 twelve zwölf douze doce dodici twaalf
"""
"""How owners write small numbers, on a site that may be in another language; words that mostly mean else are left out.

Two and three stand everywhere.
"""
_VALUES: Final = {word: line.split()[0] for line in _NUMBER_WORDS.strip().splitlines() for word in line.split()}
LEFT_OUT: Final = "[...]"
_WORD: Final = re.compile(r"[\w-]{4,}")
_SAID: Final = re.compile(r"\w[\w-]*")
_QUOTED: Final = re.compile(r"[\"'“„«‘]([^\"'“”„«»‘’]{2,200})[\"'”“»’]")
_DRAWING: Final = re.compile(
    r"\bsvg|drawing|zeichnung|grafik|illustration|\blogo|\bicon|dessin|dibujo|disegn|tekening", re.I
)
_LETTERING_CHARS: Final = 1024
_SCRIPT: Final = re.compile(r"\b(?:script|js|javascript|click|toggle|validat\w*|slider|countdown|menu)\b", re.I)


@dataclass(frozen=True)
class Excerpt:
    """Lines `first` to `last` (from 1) of a file of `of` lines."""

    path: str
    text: str
    first: int
    last: int
    of: int

    def shown(self) -> str:
        """Return the text unchanged, between tags that it cannot close itself."""
        text = self.text.lower()
        marks = chain(["file"], (f"file-{number}" for number in count(2)))
        mark = next(mark for mark in marks if f"</{mark}" not in text)
        part = "" if (self.first, self.last) == (1, self.of) else f' lines="{self.first}-{self.last} of {self.of}"'
        return f'<{mark} path="{self.path}"{part}>\n{self.text}\n</{mark}>'


def excerpts(
    files: Mapping[str, bytes], prompt: str, *, has_spec: bool = False, max_bytes: int = MAX_SHOWN_BYTES
) -> list[Excerpt]:
    """Choose what a request concerns, the most relevant file first, up to `max_bytes` of UTF-8.

    Of a large style sheet the rules of what the pages hold are shown, and few where only text is asked for (issue 20);
    a drawing only where it is named, or is small and has words, as a logo. One that `has_spec` is shown with its
    styles, as its own tool does what concerns only words; up to a half of them give way to the pages.
    """
    wanted = _Wanted.of(prompt)
    sheet_bytes = MAX_SHEET_BYTES if has_spec or wanted.needs_styles else SMALL_SHEET_BYTES
    texts = {
        path: text
        for path, data in files.items()
        if (text := _text_of(path, data)) is not None and wanted.may_show(path, text)
    }
    pages = {path: text for path, text in texts.items() if path.endswith(".html")}
    meant = pages_meant(pages, wanted.prompt, wanted.words, wanted.quotes)
    sheet_bytes = min(sheet_bytes, max(sheet_bytes // 2, max_bytes - sum(len(pages[path].encode()) for path in meant)))
    texts = {path: text for path, text in texts.items() if path in meant or path not in pages}
    scripts = [text for path, text in texts.items() if path.endswith(_SCRIPTS)]
    near = names_near([pages[path] for path in meant], scripts, wanted.words, wanted.quotes)
    ranked = sorted(texts, key=lambda path: (-wanted.score(path, texts[path]), len(texts[path]), path))
    chosen: list[Excerpt] = []
    left = max_bytes
    for path in ranked:
        text, is_sheet = texts[path], path.endswith(".css")
        most = min(left, sheet_bytes) if is_sheet else left
        if len(text.encode()) <= most:
            parts = [_whole(path, text)]
        else:
            windows = rule_windows(text, near, max_bytes=most) if is_sheet else _windows(text.split("\n"), wanted)
            parts = _excerpted(path, text, windows, max_bytes=most)
        chosen += parts
        left -= sum(len(part.text.encode()) for part in parts)
    return chosen


def seen_lines(chosen: Sequence[Excerpt]) -> dict[str, list[tuple[int, int]]]:
    """Return the first and last lines that are shown of each file."""
    seen: dict[str, list[tuple[int, int]]] = {}
    for part in chosen:
        seen.setdefault(part.path, []).append((part.first, part.last))
    return seen


def show_tree(files: Mapping[str, bytes], chosen: Sequence[Excerpt]) -> str:
    """Return a list of all files and the chosen excerpts as one text."""
    listed = [f"{path} ({len(data)} bytes)" for path, data in sorted(files.items())]
    more = len(listed) - _MAX_LISTED
    listing = "\n".join(listed[:_MAX_LISTED] + ([f"and {more} more"] if more > 0 else []))
    return "\n".join(["All files:", listing or "none yet", "", *(part.shown() for part in chosen)])


def show_text(files: Mapping[str, bytes], prompt: str, *, max_bytes: int = MAX_READ_BYTES) -> str:
    """Return what visitors read on a site's pages, the most relevant page first, up to `max_bytes` of UTF-8.

    A page costs a model a fraction of its source so. Small scripts follow where there is room; what has none is named,
    to be read by a tool. At most `_MOST_SOURCE_CHARS` are looked at.
    """
    texts = {path: text for path, data in files.items() if path.endswith(".html") and (text := _text_of(path, data))}
    wanted, looked_at = _Wanted.of(prompt), 0
    shown, left = [], []
    for path in sorted(texts, key=lambda path: (-wanted.score(path, texts[path]), path)):
        looked_at += len(texts[path])
        page = read_page(texts[path]) if max_bytes > 0 and looked_at <= _MOST_SOURCE_CHARS else None
        if page is None or (size := len(page.encode())) > max_bytes:
            left.append(path)
        else:
            max_bytes -= size
            shown.append(Excerpt(path, page, 1, 1, 1).shown())
    scripts = _small_scripts(files, max_bytes=min(max_bytes, _SMALL_SCRIPTS_BYTES))
    others = sorted(files.keys() - texts.keys() - scripts.keys())
    shown += [_whole(path, text).shown() for path, text in scripts.items()]
    shown += [f"Other pages: {', '.join(left[:_MAX_LISTED])}"] if left else []
    shown += [f"Other files: {', '.join(others[:_MAX_LISTED])}"] if others else []
    return "\n".join(shown)


class _Block(NamedTuple):
    """A few lines below one heading."""

    section: int
    text: str


def choose_sections(shown: str, prompt: str, *, max_bytes: int) -> str:
    """Return the sections of pages, as `show_text` has them, that a prompt concerns, up to `max_bytes` of JSON.

    What fits is returned as it is. Else lines that the prompt names come first, then the rest of their sections, then
    sections of times and prices; of each other one the heading says that it is left out.
    """
    if _json_bytes(shown) <= max_bytes:
        return shown
    blocks = _blocks(shown)
    ranked = _ranked(blocks, _Wanted.of(prompt))
    listed, kept = set[int](), set[int]()
    for section in dict.fromkeys(blocks[at].section for at in ranked):
        if _json_bytes(_told(blocks, listed | {section}, kept)) > max_bytes // 2:
            break
        listed.add(section)
    misses = 0
    for at in (at for at in ranked if blocks[at].section in listed):
        if _json_bytes(_told(blocks, listed, kept | {at})) <= max_bytes:
            kept.add(at)
        elif (misses := misses + 1) == _MOST_MISSES:
            break
    return _told(blocks, listed, kept)


def _ranked(blocks: Sequence[_Block], wanted: _Wanted) -> list[int]:
    """Return the places of blocks, first those that hold what the request names and few others hold.

    The rest of such sections follows.
    """
    stems = {word[:_STEM] for word in wanted.words} | {*re.findall(r"\d\d+", wanted.prompt)}
    stems |= _numbers(wanted.prompt.lower())
    texts: dict[int, str] = {}
    for section, text in blocks:
        texts[section] = f"{texts.get(section, '')}\n{text.lower()}"
    found = {at: _found(stems, text) for at, text in texts.items()}
    rare = Counter(stem for here in found.values() for stem in here)

    def worth(here: Set[str]) -> float:
        return sum((2 if stem[0] == "#" else 1) / rare[stem] for stem in here)

    keys = {at: (-worth(found[at]), -len(_NUMBER.findall(text)), at) for at, text in texts.items()}
    own = [worth(_found(found[section], text.lower())) for section, text in blocks]
    return sorted(range(len(blocks)), key=lambda at: (-own[at], keys[blocks[at].section], at))


def _found(stems: Set[str], lower: str) -> Set[str]:
    """Return which stems begin words of a text; a number is a word by itself."""
    starts = {start for word in _SAID.findall(lower) for start in (word, word[: _STEM - 1], word[:_STEM])}
    return stems & (starts | _numbers(lower))


def _numbers(lower: str) -> Set[str]:
    """Return marks of the small numbers in a text, whatever language says them."""
    return {f"#{_VALUES[word]}" for word in _SAID.findall(lower) if word in _VALUES}


def _told(blocks: Sequence[_Block], listed: Set[int], kept: Set[int]) -> str:
    """Return the kept blocks, with a mark for what is left out of the listed sections."""
    more = len({section for section, _ in blocks} - listed)
    lines = [f"What the request names of a long site; {LEFT_OUT} and {more} more sections are left out."]
    before = -1
    for at, (section, text) in enumerate(blocks):
        if at in kept:
            lines.append(text)
        elif section in listed and section != before:
            lines.append(_headed(text))
        elif section in listed and not lines[-1].endswith(LEFT_OUT):
            lines.append(LEFT_OUT)
        before = section
    return "\n".join(lines)


def _blocks(shown: str) -> list[_Block]:
    """Return lines in blocks; a link that pages repeat, as their navigation does, stands there once."""
    blocks: list[_Block] = []
    held: list[str] = []
    seen, section = set[str](), 0
    for line in [*shown.split("\n"), "# "]:
        if _SECTION.match(line) or len(held) >= (_BLOCK_LINES // 2 if line.startswith("#") else _BLOCK_LINES):
            blocks += [_Block(section, "\n".join(held))] if held else []
            held, section = [], section + bool(_SECTION.match(line))
        if line not in seen or not line.startswith(("[", "- [")):
            held.append(line)
        seen.add(line)
    return blocks


def _headed(block: str) -> str:
    """Return the placeholder of a section that is left out."""
    line = block.partition("\n")[0]
    return line if line.startswith("<") else f"{line[:_MOST_OF_HEADING]} {LEFT_OUT}"


def _json_bytes(text: str) -> int:
    return len(to_json(text).encode())


def _small_scripts(files: Mapping[str, bytes], *, max_bytes: int) -> dict[str, str]:
    """Return the scripts that fit, the smallest first."""
    fitting: dict[str, str] = {}
    for path in sorted((path for path in files if path.endswith(_SCRIPTS)), key=lambda path: (len(files[path]), path)):
        max_bytes -= len(files[path])
        if max_bytes >= 0 and (text := _text_of(path, files[path])):
            fitting[path] = text
    return fitting


def read_page(source: str) -> str:
    """Return a page's text as lines, with marks for headings, entries and the addresses of links."""
    reader = _PageReader()
    reader.feed(source)
    reader.close()
    lines = (" ".join(line.split()) for line in "".join(reader.parts).split("\n"))
    return "\n".join(line for line in lines if line.strip("#-[] "))


class _PageReader(HTMLParser):
    """Collects what a page says; scripts, styles and drawings say nothing."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent: list[str] = []
        self._links: list[str] = []

    def handle_starttag(self, name: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        if name in _SILENT:
            self._silent.append(name)
        if self._silent:
            return
        values = dict(attrs)
        if name == "a":
            self._links.append(values.get("href") or "")
            self.parts.append("[")
        elif name in _INLINE_TEXT:
            on_phones = " / on phones: " if values.get("class") == _ON_PHONES else ""
            self.parts.append(" | " if name in _CELLS else on_phones)
        elif name == "form":
            sends = "cannot send yet" if "inert" in values else f"sends to {values.get('action') or 'this page'}"
            self.parts.append(f"\n(form {sends})\n")
        elif name == "option" and (value := values.get("value")):
            self.parts.append(f"\n- (value {value}) ")
        elif name == "img":
            self.parts.append(f" ({values.get('alt') or 'image'}: {values.get('src') or ''}) ")
        else:
            self.parts.append("\n" + _LINE_STARTS.get(name, ""))

    def handle_endtag(self, name: str) -> None:
        if self._silent:
            if name == self._silent[-1]:
                self._silent.pop()
        elif name == "a" and self._links:
            self.parts.append(f"]({self._links.pop()})")
        elif name not in _INLINE_TEXT:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(data.replace("\n", " "))


def _text_of(path: str, data: bytes) -> str | None:
    if not is_text_file(path) or path.endswith(_GENERATED) or len(data) > _MAX_SEARCHED_BYTES:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True)
class _Wanted:
    """The places that a prompt points to."""

    prompt: str
    quotes: tuple[str, ...]
    words: frozenset[str]

    @classmethod
    def of(cls, prompt: str) -> _Wanted:
        quotes = tuple(dict.fromkeys(quote.strip() for quote in _QUOTED.findall(prompt)))
        return cls(prompt, quotes, frozenset(word.lower() for word in _WORD.findall(prompt)))

    def score(self, path: str, text: str) -> float:
        """Return a file's relevance; only the order of scores means anything."""
        name = path.rsplit("/", 1)[-1]
        lower = text.lower()
        named = 1000 * (path in self.prompt) + 500 * (name in self.prompt)
        named += 50 * (name.partition(".")[0] in self.words)  # `take him off the People page`
        quoted = 100 * sum(quote in text for quote in self.quotes)
        common = sum(word in lower for word in self.words) / (len(self.words) or 1)
        kind = 30 * (path.endswith(".css") and asks_for_looks(self.prompt))
        kind += 5 * (path.endswith(_SCRIPTS) and bool(_SCRIPT.search(self.prompt)))
        return named + quoted + 20 * common + kind + 3 * (path == INDEX) + (path.endswith(".html"))

    @property
    def needs_styles(self) -> bool:
        """Whether the words ask for more than words."""
        return needs_styles(self.prompt) or ".css" in self.prompt

    def may_show(self, path: str, text: str) -> bool:
        """Whether a file's text can help: a drawing's only if the request mentions it, or it is small lettering."""
        if not path.endswith(".svg") or ("<text" in text and len(text) <= _LETTERING_CHARS):
            return True
        return path.rsplit("/", 1)[-1] in self.prompt or bool(_DRAWING.search(self.prompt))

    def touches(self, line: str) -> bool:
        """Whether the prompt concerns a line."""
        lower = line.lower()
        return any(quote in line for quote in self.quotes) or sum(word in lower for word in self.words) >= 2


def _whole(path: str, text: str) -> Excerpt:
    lines = text.count("\n") + 1
    return Excerpt(path, text, 1, lines, lines)


def _excerpted(path: str, text: str, windows: Sequence[tuple[int, int]], *, max_bytes: int) -> list[Excerpt]:
    lines = text.split("\n")
    parts: list[Excerpt] = []
    for first, last in windows:
        part = "\n".join(lines[first:last])
        max_bytes -= len(part.encode())
        if max_bytes < 0:
            break
        parts.append(Excerpt(path, part, first + 1, last, len(lines)))
    return parts


def _windows(lines: Sequence[str], wanted: _Wanted) -> list[tuple[int, int]]:
    """Return disjoint ranges of line indexes, end exclusive."""
    windows: list[tuple[int, int]] = []
    for index, line in enumerate(lines):
        if not wanted.touches(line):
            continue
        first, last = max(0, index - _NEAR_LINES), min(len(lines), index + _NEAR_LINES + 1)
        if windows and first <= windows[-1][1]:
            windows[-1] = (windows[-1][0], last)
        else:
            windows.append((first, last))
    return windows
