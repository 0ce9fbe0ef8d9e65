"""Diffs as models write them: a good diff, and one thing wrong with it. Seeded."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

Lines = list[bytes]
Damage = Callable[[Random, Lines], Lines]

_HEADER = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)")
_BODY = (b" ", b"-", b"+")


def hunks_of(lines: Lines) -> list[tuple[int, int]]:
    """Return where the bodies of hunks begin and end."""
    found = []
    for place, line in enumerate(lines):
        match = _HEADER.match(line)
        if not match:
            continue
        old, new = (int(match[group] or 1) for group in (2, 4))
        end = place + 1
        while old > 0 or new > 0 or (lines[end : end + 1] and lines[end].startswith(b"\\")):
            old -= lines[end][:1] in b" -"
            new -= lines[end][:1] in b" +"
            end += 1
        found.append((place + 1, end))
    return found


def each_body(change: Callable[[Random, Lines], Lines]) -> Damage:
    def damage(rng: Random, lines: Lines) -> Lines:
        out, at = [], 0
        for start, end in hunks_of(lines):
            out += lines[at:start] + change(rng, lines[start:end])
            at = end
        return out + lines[at:]

    return damage


def each_header(change: Callable[[Random, tuple[int, int, int, int], bytes], bytes]) -> Damage:
    def damage(rng: Random, lines: Lines) -> Lines:
        out = list(lines)
        for start, _ in hunks_of(lines):
            match = _HEADER.match(lines[start - 1])
            assert match
            numbers = tuple(int(group or 1) for group in match.groups()[:4])
            out[start - 1] = change(rng, numbers, match[5]) + b"\n"  # type: ignore[arg-type]
        return out

    return damage


def _header(numbers: tuple[int, int, int, int], rest: bytes = b"") -> bytes:
    return b"@@ -%d,%d +%d,%d @@" % numbers + rest


def wrong_counts(rng: Random, numbers: tuple[int, int, int, int], rest: bytes) -> bytes:
    a, b, c, d = numbers
    return _header(
        (a, max(0, b + rng.choice([-3, -2, -1, 1, 2, 5])), c, max(0, d + rng.choice([-2, -1, 1, 2, 4]))), rest
    )


def wrong_numbers(rng: Random, numbers: tuple[int, int, int, int], rest: bytes) -> bytes:
    a, b, c, d = numbers
    shift = rng.choice([-1, 1]) * rng.randint(1, 60)
    return _header((max(1, a + shift), b, max(1, c + shift), d), rest)


def dummy_numbers(rng: Random, numbers: tuple[int, int, int, int], rest: bytes) -> bytes:
    return rng.choice([b"@@ ... @@", b"@@ @@", b"@@", b"@@ -1,1 +1,1 @@"])


def lost_markers(rng: Random, body: Lines) -> Lines:
    return [line[1:] if line[:1] == b" " and line[1:2] not in (b"-", b"+", b"\\", b"@") else line for line in body]


def some_lost_markers(rng: Random, body: Lines) -> Lines:
    return [
        line[1:] if line[:1] == b" " and line[1:2] not in (b"-", b"+", b"\\", b"@") and rng.random() < 0.4 else line
        for line in body
    ]


def stripped_context(rng: Random, body: Lines) -> Lines:
    return [b" " + line[1:].lstrip(b" \t") if line[:1] == b" " and line.strip() else line for line in body]


def bare_empty_lines(rng: Random, body: Lines) -> Lines:
    return [b"\n" if line == b" \n" else line for line in body]


def _texts(body: Lines) -> Lines:
    return [line[1:] for line in body if line[:1] in _BODY and line[1:].strip()]


def _indent(text: bytes) -> int:
    return len(text) - len(text.lstrip(b" "))


def deeper(rng: Random, body: Lines) -> Lines:
    more = b" " * rng.choice([2, 4])
    return [line[:1] + more + line[1:] if line[:1] in _BODY and line[1:].strip() else line for line in body]


def dedented(rng: Random, body: Lines) -> Lines:
    common = min(map(_indent, _texts(body)), default=0)
    return [line[:1] + line[1 + common :] if line[:1] in _BODY and line[1:].strip() else line for line in body]


def tabs_for_spaces(rng: Random, body: Lines) -> Lines:
    def changed(text: bytes) -> bytes:
        indent = _indent(text)
        return b"\t" * (indent // 2) + b" " * (indent % 2) + text[indent:]

    return [line[:1] + changed(line[1:]) if line[:1] in _BODY else line for line in body]


def spaces_for_tabs(rng: Random, body: Lines) -> Lines:
    def changed(text: bytes) -> bytes:
        bare = text.lstrip(b"\t")
        return b"    " * (len(text) - len(bare)) + bare

    return [line[:1] + changed(line[1:]) if line[:1] in _BODY else line for line in body]


def trimmed_context(rng: Random, body: Lines) -> Lines:
    kept = list(body)
    while len(kept) > 1 and kept[0][:1] == b" " and kept[1][:1] == b" ":
        kept.pop(0)
    while len(kept) > 1 and kept[-1][:1] == b" " and kept[-2][:1] == b" ":
        kept.pop()
    return kept


def missing_context(rng: Random, body: Lines) -> Lines:
    """Leave out one context line that stands between two others, as models leave out comments and empty lines."""
    inner = [
        place for place in range(1, len(body) - 1) if all(body[at][:1] == b" " for at in (place - 1, place, place + 1))
    ]
    if not inner:
        return body
    dropped = rng.choice(inner)
    return body[:dropped] + body[dropped + 1 :]


def any_context_missing(rng: Random, body: Lines) -> Lines:
    inner = [place for place in range(1, len(body) - 1) if body[place][:1] == b" "]
    if not inner:
        return body
    dropped = rng.choice(inner)
    return body[:dropped] + body[dropped + 1 :]


def lost_trailing_space(rng: Random, body: Lines) -> Lines:
    return [line[:1] + line[1:].rstrip(b" \t\n") + b"\n" if line[:1] in b" -" else line for line in body]


def extra_trailing_space(rng: Random, body: Lines) -> Lines:
    return [
        line[:-1] + b"  \n" if line[:1] in b" -" and line.endswith(b"\n") and rng.random() < 0.5 else line
        for line in body
    ]


def typographic(rng: Random, body: Lines) -> Lines:
    return [
        line.replace(b"'", "’".encode()).replace(b" - ", " – ".encode()) if line[:1] in b" -" else line for line in body
    ]


def crlf(rng: Random, lines: Lines) -> Lines:
    return [line.rstrip(b"\r\n") + b"\r\n" for line in lines]


def lf(rng: Random, lines: Lines) -> Lines:
    return [line.rstrip(b"\r\n") + b"\n" for line in lines]


def fenced(rng: Random, lines: Lines) -> Lines:
    before = [b"Sure! Here is the change:\n", b"\n", rng.choice([b"```diff\n", b"```\n", b"~~~patch\n"])]
    fence = before[-1][:3] + b"\n"
    return [*before, *lines, fence, b"\n", b"- It only changes what you asked for.\n", b"- Let me know!\n"]


def prose(rng: Random, lines: Lines) -> Lines:
    return [b"Sure! Here is the change:\n", b"\n", *lines, b"\n", b"This changes the text as you asked.\n"]


def no_git_header(rng: Random, lines: Lines) -> Lines:
    return [line for line in lines if not line.startswith((b"diff --git ", b"index "))]


def no_prefix(rng: Random, lines: Lines) -> Lines:
    return [re.sub(rb"^(--- |\+\+\+ )[ab]/", rb"\1", line) for line in no_git_header(rng, lines)]


def chain(*damages: Damage) -> Damage:
    def damage(rng: Random, lines: Lines) -> Lines:
        for one in damages:
            lines = one(rng, lines)
        return lines

    return damage


def bodies_and_headers(body: Callable[[Random, Lines], Lines], header: Callable[..., bytes]) -> Damage:
    """Damage both; bodies are found by the counts of their headers, so the two cannot be chained."""

    def damage(rng: Random, lines: Lines) -> Lines:
        out: Lines = []
        at = 0
        for start, end in hunks_of(lines):
            match = _HEADER.match(lines[start - 1])
            assert match
            numbers = tuple(int(group or 1) for group in match.groups()[:4])
            out += [*lines[at : start - 1], header(rng, numbers, match[5]) + b"\n", *body(rng, lines[start:end])]
            at = end
        return out + lines[at:]

    return damage


KINDS: dict[str, Damage] = {
    "none": lambda rng, lines: lines,
    "wrong counts": each_header(wrong_counts),
    "wrong line numbers": each_header(wrong_numbers),
    "no line numbers": each_header(dummy_numbers),
    "lost markers": each_body(lost_markers),
    "some lost markers": each_body(some_lost_markers),
    "context without indentation": each_body(stripped_context),
    "bare empty lines": each_body(bare_empty_lines),
    "indented deeper": each_body(deeper),
    "common indentation lost": each_body(dedented),
    "tabs for spaces": each_body(tabs_for_spaces),
    "spaces for tabs": each_body(spaces_for_tabs),
    "context trimmed": bodies_and_headers(trimmed_context, wrong_counts),
    "context line missing": bodies_and_headers(missing_context, wrong_counts),
    "any context missing": bodies_and_headers(any_context_missing, wrong_counts),
    "trailing space lost": each_body(lost_trailing_space),
    "trailing space added": each_body(extra_trailing_space),
    "typographic quotes": each_body(typographic),
    "CRLF diff": crlf,
    "LF diff of a CRLF file": lf,
    "fenced, prose around": fenced,
    "prose around": prose,
    "no diff --git": no_git_header,
    "no a/ and b/": no_prefix,
    "counts and markers": chain(bodies_and_headers(some_lost_markers, wrong_counts), no_git_header),
    "numbers and quotes": chain(bodies_and_headers(typographic, wrong_numbers), no_git_header),
    "no numbers, indented deeper": bodies_and_headers(deeper, dummy_numbers),
    "like a model's": chain(fenced, no_git_header),
}
"""Ways in which a diff goes wrong, by name."""
