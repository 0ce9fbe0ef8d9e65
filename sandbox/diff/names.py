"""File names as unified diffs write them: quoted, with a date behind, below a directory that is only the diff's."""

from __future__ import annotations

import re
from typing import NamedTuple

from sandbox.diff.errors import DiffRefusedError, Reason
from sandbox.diff.model import Strip

DEV_NULL = "/dev/null"
_PREFIXES = frozenset("abciow")
"""What git writes before names: a and b; as mnemonic prefixes c (commit), i (index), w (work tree), o (object)."""
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_QUOTED = re.compile(r'"((?:[^"\\]|\\[abtnvfr"\\]|\\[0-3][0-7]{2})*)"')
_ESCAPE = re.compile(r'\\([abtnvfr"\\]|[0-3][0-7]{2})')
_DATE = re.compile(r"\s+\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?( ?([+-]\d{2}:?\d{2}|Z))?$")
_EPOCH = re.compile(r"\s(1970-01-01 0?0:00:00|1969-12-31 \d\d:\d\d:\d\d)")
_MAX_SPLITS = 200


class Names(NamedTuple):
    """The two names in the headers of one file; None for a side on which there is no file."""

    old: str | None
    new: str | None


def to_text(raw: bytes) -> str:
    """Return a header as text; bytes that are not UTF-8 become lone surrogates, which no path may hold."""
    return raw.decode("utf-8", "surrogateescape")


def unquote(text: str) -> str:
    """Return a name that git quoted in the manner of C.

    Raises:
        DiffRefusedError: `malformed` (the fault of whoever wrote the diff).
    """
    found = _QUOTED.fullmatch(text.rstrip())
    if found is None:
        raise DiffRefusedError(
            Reason.MALFORMED, f"a quoted name is not closed, or has an unknown escape: {text[:80]!a}"
        )
    return _unescaped(found[1])


def _unescaped(body: str) -> str:
    def byte_of(match: re.Match[str]) -> bytes:
        code = match[1]
        return bytes([_ESCAPES[code] if code in _ESCAPES else int(code, 8)])

    parts: list[bytes] = []
    end = 0
    for match in _ESCAPE.finditer(body):
        parts += [body[end : match.start()].encode("utf-8", "surrogateescape"), byte_of(match)]
        end = match.end()
    parts.append(body[end:].encode("utf-8", "surrogateescape"))
    return to_text(b"".join(parts))


def header_name(text: str) -> str | None:
    """Return the name in what follows `---` or `+++`; None where the header says that there is no file.

    Raises:
        DiffRefusedError: `malformed` (the fault of whoever wrote the diff).
    """
    if text.startswith('"'):
        return unquote(text)
    name, tab, date = text.partition("\t")
    if not tab:
        name = _DATE.sub("", text.rstrip("\r"))
    if name.rstrip() == DEV_NULL or _EPOCH.match(f" {date}" if tab else text[len(name) :]):
        return None
    return name if tab else name.rstrip()


def git_names(text: str) -> Names | None:
    """Return the names in what follows `diff --git`; None when they cannot be told apart.

    Unquoted names may hold spaces, so only two names that are equal but for their prefix can be told apart.

    Raises:
        DiffRefusedError: `malformed` (the fault of whoever wrote the diff).
    """
    text = text.strip()
    if '"' in text:
        return _quoted_names(text)
    if text.count(" ") == 1:
        return Names(*text.split(" "))
    places = [place for place, character in enumerate(text) if character == " "][:_MAX_SPLITS]
    pairs = [(text[:place], text[place + 1 :]) for place in places]
    same = [(old, new) for old, new in pairs if old == new or _below(old) == _below(new) != ""]
    return Names(*same[0]) if len(same) == 1 else None


def _quoted_names(text: str) -> Names | None:
    if first := _QUOTED.match(text):
        old, rest = _unescaped(first[1]), text[first.end() :].strip()
        return Names(old, unquote(rest) if rest.startswith('"') else rest)
    old, _, rest = text.partition(' "')
    return Names(old, unquote(f'"{rest}')) if rest else None


def _below(name: str) -> str:
    return name.partition("/")[2]


def strip_of(names: Names) -> Strip:
    """Return whether the first directory of these names is only the diff's own."""
    parts = [name.partition("/") for name in names if name is not None]
    if not parts or "" in [slash for _, slash, _ in parts]:
        return "never"
    return "maybe" if parts[0][0] == parts[-1][0] else "always"


def is_prefix(segment: str) -> bool:
    """Return whether a directory of this name is most likely the diff's own."""
    return segment in _PREFIXES


def one_name(names: Names) -> str | None:
    """Return the one file that two headers mean, as git reads them; None when they name two.

    `diff -u page.html.orig page.html` means the shorter name.
    """
    old, new = names
    if old is None or new is None:
        return old or new
    if old == new or (_below(old) == _below(new) != ""):
        return new
    short, long = sorted((old, new), key=len)
    return short if long.startswith(short) or _below(long).startswith(_below(short) or "\0") else None
