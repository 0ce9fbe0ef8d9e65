"""Parser of unified diffs: git's with extended headers, those of `diff -u`, and what models make of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from sites.diff.hunks import NO_HEADER, is_file_header, is_hunk_header, marks_of, read_header, read_hunk
from sites.diff.model import DiffRefusedError, FileOp, Hunk, Kind, Limits, Reason, Strip, is_fence

DEV_NULL = "/dev/null"
_PREFIXES = frozenset("abciow")
"""git's prefixes: a and b; with mnemonic prefixes c (commit), i (index), w (work tree), o (object)."""
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_QUOTED = re.compile(r'"((?:[^"\\]|\\[abtnvfr"\\]|\\[0-3][0-7]{2})*)"')
_ESCAPE = re.compile(r'\\([abtnvfr"\\]|[0-3][0-7]{2})')
_DATE = re.compile(r"(?<!\s)\s++\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?( ?([+-]\d{2}:?\d{2}|Z))?$")
_EPOCH = re.compile(r"\s(1970-01-01 0?0:00:00|1969-12-31 \d\d:\d\d:\d\d)")
_MAX_SPLITS = 200


class Names(NamedTuple):
    """The two names in a file's headers; None for a side without a file."""

    old: str | None
    new: str | None


def to_text(raw: bytes) -> str:
    """Decode a header; bytes that are not UTF-8 become lone surrogates, which no path may contain."""
    return raw.decode("utf-8", "surrogateescape")


def unquote(text: str) -> str:
    """Return a name that git quoted like a C string.

    Raises:
        DiffRefusedError: `malformed` (the diff's fault).
    """
    match = _QUOTED.fullmatch(text.rstrip())
    if match is None:
        raise DiffRefusedError(
            Reason.MALFORMED, f"a quoted name is not closed, or has an unknown escape: {text[:80]!a}"
        )
    return _unescaped(match[1])


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
    """Return the name after `---` or `+++`; None if there is no file on this side.

    Raises:
        DiffRefusedError: `malformed` (the diff's fault).
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
    """Return the names after `diff --git`; None if they cannot be separated.

    Unquoted names may contain spaces, so only names that are equal but for their prefix can be separated.

    Raises:
        DiffRefusedError: `malformed` (the diff's fault).
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
    """Return whether the first directory of these names is only in the diff."""
    parts = [name.partition("/") for name in names if name is not None]
    if not parts or "" in [slash for _, slash, _ in parts]:
        return "never"
    return "maybe" if parts[0][0] == parts[-1][0] else "always"


def is_prefix(segment: str) -> bool:
    """Whether a directory of this name is probably only in the diff."""
    return segment in _PREFIXES


def one_name(names: Names) -> str | None:
    """Return the one file that two headers mean, as git reads them; None if they name two.

    `diff -u page.html.orig page.html` means the shorter name.
    """
    old, new = names
    if old is None or new is None:
        return old or new
    if old == new or (_below(old) == _below(new) != ""):
        return new
    short, long = sorted((old, new), key=len)
    return short if long.startswith(short) or _below(long).startswith(_below(short) or "\0") else None


_INDEX = re.compile(rb"index ([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: ([0-7]{6}))?\s*$")
_MODE = re.compile(rb"[0-7]{6}")


_NO_NAMES = Names(None, None)


@dataclass
class _Section:
    """The headers of one file, as far as they have been read."""

    number: int
    is_fenced: bool
    is_git: bool = False
    git: Names | None = None
    has_names: bool = False
    names: Names = _NO_NAMES
    old_mode: str | None = None
    new_mode: str | None = None
    is_new: bool = False
    is_deleted: bool = False
    moved: Kind | None = None
    source: str | None = None
    target: str | None = None
    old_blob: str | None = None
    new_blob: str | None = None
    hunks: list[Hunk] = field(default_factory=list)


def parse_unified(lines: list[bytes], limits: Limits) -> tuple[list[FileOp], list[bytes]]:
    """Read the files of a unified diff.

    Returns:
        The files, and the lines that belong to none of them.

    Raises:
        DiffRefusedError: `malformed`, `binary`, `path_mismatch`, `too_large` (the diff's fault).
    """
    ops: list[FileOp] = []
    prose: list[bytes] = []
    marks = marks_of(lines)
    at, hunks = 0, 0
    is_fenced = is_certain = False
    while at < len(lines):
        if not is_file_header(lines, at):
            is_fenced ^= is_fence(lines[at])
            if ops and not is_certain and _may_be_hunk(lines[at]):
                detail = "lines behind the last hunk may or may not belong to it"
                raise DiffRefusedError(Reason.MALFORMED, detail, ops[-1].path)
            prose.append(lines[at])
            at += 1
            continue
        section = _Section(len(ops) + 1, is_fenced)
        at = _read_headers(lines, at, section)
        at = _read_hunks(lines, at, section, marks=marks, left=limits.max_hunks - hunks)
        hunks += len(section.hunks)
        is_certain = not section.hunks or section.hunks[-1].is_counted
        ops.append(_build(section))
        if len(ops) > limits.max_files:
            raise DiffRefusedError(Reason.TOO_LARGE, f"the diff changes more than {limits.max_files} files")
    return ops, prose


def _may_be_hunk(line: bytes) -> bool:
    """Whether a line after a hunk could be part of it; the items of a list could not."""
    return line.startswith(b"+") or (line.startswith(b"-") and line[1:2] not in (b" ", b"-"))


def _read_headers(lines: list[bytes], at: int, section: _Section) -> int:
    if lines[at].startswith(b"diff --git "):
        section.is_git = True
        section.git = git_names(_value(lines[at], b"diff --git "))
        at = _read_extended(lines, at + 1, section)
    old = new = None
    if at < len(lines) and lines[at].startswith(b"--- ") and is_file_header(lines, at):
        section.has_names = True
        old = new = header_name(_value(lines[at], b"--- "))
        at += 1
    if at < len(lines) and lines[at].startswith(b"+++ "):
        new = header_name(_value(lines[at], b"+++ "))
        old = old if section.has_names else new
        section.has_names = True
        at += 1
    section.names = Names(old, new)
    return at


def _value(line: bytes, key: bytes) -> str:
    return to_text(line[len(key) :].rstrip(b"\r\n"))


_NEW_FILE, _DELETED_FILE = b"new file mode ", b"deleted file mode "
_MODES = {b"old mode ": "old_mode", b"new mode ": "new_mode", _NEW_FILE: "new_mode", _DELETED_FILE: "old_mode"}
_MOVES = {
    b"rename from ": (Kind.RENAME, "source"),
    b"rename to ": (Kind.RENAME, "target"),
    b"rename old ": (Kind.RENAME, "source"),
    b"rename new ": (Kind.RENAME, "target"),
    b"copy from ": (Kind.COPY, "source"),
    b"copy to ": (Kind.COPY, "target"),
}
_IGNORED = (b"similarity index ", b"dissimilarity index ")
_BINARY = (b"GIT binary patch", b"Binary files ", b"Files ")
_HEADERS = (*_MODES, *_MOVES, *_IGNORED, *_BINARY, b"index ")


def _read_extended(lines: list[bytes], at: int, section: _Section) -> int:
    while at < len(lines) and lines[at].startswith(_HEADERS):
        line = lines[at]
        if line.startswith(_BINARY):
            names = section.git or _NO_NAMES
            raise DiffRefusedError(Reason.BINARY, "binary patches are not applied", names.new)
        if index := _INDEX.match(line):
            section.old_blob, section.new_blob = index[1].decode(), index[2].decode()
            section.old_mode = index[3].decode() if index[3] else section.old_mode
        elif key := next((key for key in _MODES if line.startswith(key)), None):
            if not _MODE.fullmatch(mode := line[len(key) :].strip()):
                raise DiffRefusedError(Reason.MALFORMED, "a file mode must have six octal digits")
            setattr(section, _MODES[key], mode.decode())
            section.is_new |= key == _NEW_FILE
            section.is_deleted |= key == _DELETED_FILE
        elif key := next((key for key in _MOVES if line.startswith(key)), None):
            section.moved, side = _MOVES[key]
            name = _value(line, key)
            setattr(section, side, unquote(name) if name.startswith('"') else name)
        at += 1
    return at


def _read_hunks(lines: list[bytes], at: int, section: _Section, *, marks: str, left: int) -> int:
    read = partial(read_hunk, lines, marks=marks, is_git=section.is_git, is_fenced=section.is_fenced)
    if at < len(lines) and section.has_names and lines[at][:1] in (b" ", b"+", b"-") and not is_file_header(lines, at):
        hunk, at = read(at, NO_HEADER)  # models forget the first @@
        section.hunks.append(hunk)
    if at < len(lines) and lines[at].startswith(b"@@@"):
        raise DiffRefusedError(Reason.MALFORMED, "a combined diff of a merge is not applied", section.names.new)
    while at < len(lines) and (header := read_header(lines[at])):
        if len(section.hunks) >= left:
            raise DiffRefusedError(Reason.TOO_LARGE, "the diff has too many hunks", section.names.new)
        hunk, at = read(at + 1, header)
        section.hunks.append(hunk)
        while at + 1 < len(lines) and not lines[at].strip():
            if lines[at + 1].strip() and not is_hunk_header(lines[at + 1]):
                break
            at += 1
    return at


def _build(section: _Section) -> FileOp:
    names = _names_of(section)
    kind = _kind_of(section, names)
    path = section.target or one_name(names)
    if path is None:
        detail = "the headers of one file name two; a rename has lines `rename from` and `rename to`"
        raise DiffRefusedError(Reason.PATH_MISMATCH, detail, names.new)
    return FileOp(
        kind=kind,
        path=path,
        source=section.source,
        hunks=tuple(section.hunks),
        old_mode=section.old_mode,
        new_mode=section.new_mode,
        old_blob=section.old_blob,
        new_blob=section.new_blob,
        strip=_strip_of(section, names),
    )


def _names_of(section: _Section) -> Names:
    git, named = section.git, section.names
    if section.moved:
        if section.source is None or section.target is None:
            raise DiffRefusedError(Reason.MALFORMED, f"a {section.moved} names only one side", section.target)
        _check_same(section, Names(section.source, section.target), named, git)
        return Names(section.source, section.target)
    if not section.has_names:
        if git is None:
            raise DiffRefusedError(Reason.MALFORMED, f"the headers of file {section.number} name no file")
        return git
    if named == _NO_NAMES:
        raise DiffRefusedError(Reason.MALFORMED, f"both sides of file {section.number} are /dev/null")
    if git is not None and git != named:
        candidates = {one_name(git), *git}
        for name in filter(None, named):
            if name not in candidates:
                raise DiffRefusedError(Reason.PATH_MISMATCH, "`diff --git` and `---`/`+++` name different files", name)
    return named


def _check_same(section: _Section, moved: Names, named: Names, git: Names | None) -> None:
    for header in filter(None, (named if section.has_names else None, git)):
        for name, side in zip(header, moved, strict=True):
            if name is not None and side is not None and side not in (name, _below(name)):
                raise DiffRefusedError(Reason.PATH_MISMATCH, "the headers of a renamed file name different files", name)


def _kind_of(section: _Section, names: Names) -> Kind:
    is_new = section.is_new or (section.has_names and section.names.old is None)
    is_deleted = section.is_deleted or (section.has_names and section.names.new is None)
    if is_new + is_deleted + (section.moved is not None) > 1:
        raise DiffRefusedError(Reason.MALFORMED, "a file cannot be made, moved and removed at once", names.new)
    if section.moved:
        return section.moved
    return Kind.CREATE if is_new else Kind.DELETE if is_deleted else Kind.UPDATE


def _strip_of(section: _Section, names: Names) -> Strip:
    if section.moved:
        return "never"
    return strip_of(section.git if section.git is not None else names)
