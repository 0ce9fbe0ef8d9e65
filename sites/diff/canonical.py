"""Canonical unified diffs of a change, deterministic and exact to the byte, in time linear to the files.

They are made from the contents before and after, so a reviewer sees what changed and not what a model wrote.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sites.diff.model import PLAIN_MODE, FileReceipt, Fuzz, blob_id, split_lines

_CONTEXT = 3
_NO_FEED = b"\n\\ No newline at end of file\n"
_ABSENT = "0" * 40
_FIRST_PLAIN, _DELETE = 0x20, 0x7F
_QUOTED = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}


class Change(NamedTuple):
    """Lines `start` to `end` of the old side become lines `new_start` to `new_end` of the new one."""

    start: int
    end: int
    new_start: int
    new_end: int


def unified(before: Mapping[str, bytes | None], after: Mapping[str, bytes | None]) -> bytes:
    """Return the change of the same files, by path, as a unified diff; None is for one that does not exist."""
    return b"".join(_file(path, before[path], after[path]) for path in sorted(after) if before[path] != after[path])


def _file(path: str, old: bytes | None, new: bytes | None) -> bytes:
    ids = (_ABSENT if old is None else blob_id(old), _ABSENT if new is None else blob_id(new))
    head = [f"diff --git {_name('a/' + path)} {_name('b/' + path)}"]
    if old is None:
        head += [f"new file mode {PLAIN_MODE}", f"index {ids[0]}..{ids[1]}"]
    elif new is None:
        head += [f"deleted file mode {PLAIN_MODE}", f"index {ids[0]}..{ids[1]}"]
    else:
        head += [f"index {ids[0]}..{ids[1]}"]
    if old or new:
        head += [f"--- {_side('a/' + path, old)}", f"+++ {_side('b/' + path, new)}"]
    text = "".join(f"{line}\n" for line in head).encode()
    return text + b"".join(_hunks(split_lines(old or b""), split_lines(new or b"")))


def _side(name: str, data: bytes | None) -> str:
    if data is None:
        return "/dev/null"
    return _name(name) + ("\t" if " " in name else "")


def _name(name: str) -> str:
    raw = name.encode()
    if all(_FIRST_PLAIN <= byte < _DELETE and byte not in _QUOTED for byte in raw):
        return name
    return '"' + "".join(map(_quoted, raw)) + '"'


def _quoted(byte: int) -> str:
    if byte in _QUOTED:
        return f"\\{_QUOTED[byte]}"
    return chr(byte) if _FIRST_PLAIN <= byte < _DELETE else f"\\{byte:03o}"


def _hunks(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[bytes]:
    for group in _grouped(changes(old, new)):
        start = max(group[0].start - _CONTEXT, 0)
        end = min(group[-1].end + _CONTEXT, len(old))
        new_start = group[0].new_start - (group[0].start - start)
        new_end = group[-1].new_end + (end - group[-1].end)
        yield f"@@ -{_span(start, end)} +{_span(new_start, new_end)} @@\n".encode()
        at = start
        for change in group:
            yield from (_line(b" ", text) for text in old[at : change.start])
            yield from (_line(b"-", text) for text in old[change.start : change.end])
            yield from (_line(b"+", text) for text in new[change.new_start : change.new_end])
            at = change.end
        yield from (_line(b" ", text) for text in old[at:end])


def _span(start: int, end: int) -> str:
    size = end - start
    return f"{start + 1 if size else start},{size}"


def _line(marker: bytes, text: bytes) -> bytes:
    return marker + text if text.endswith(b"\n") else marker + text + _NO_FEED


def _grouped(found: Sequence[Change]) -> list[list[Change]]:
    groups: list[list[Change]] = []
    for change in found:
        if groups and change.start - groups[-1][-1].end <= 2 * _CONTEXT:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def changes(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Change]:
    """Return what differs: lines that occur once on both sides hold the rest in place (patience, one level deep).

    Lines are bytes, or any values. It takes time linear to both sides, whatever they hold.
    """
    found: list[Change] = []
    at = new_at = 0
    for place, new_place in [*_fixed(old, new), (len(old), len(new))]:
        found += _between(old, new, Change(at, place, new_at, new_place))
        at, new_at = place + 1, new_place + 1
    return _merged(found)


def _between(old: Sequence[Hashable], new: Sequence[Hashable], change: Change) -> list[Change]:
    start, end, new_start, new_end = change
    while start < end and new_start < new_end and old[start] == new[new_start]:
        start, new_start = start + 1, new_start + 1
    while start < end and new_start < new_end and old[end - 1] == new[new_end - 1]:
        end, new_end = end - 1, new_end - 1
    return [Change(start, end, new_start, new_end)] if start < end or new_start < new_end else []


def _merged(found: Sequence[Change]) -> list[Change]:
    merged: list[Change] = []
    for change in found:
        if merged and merged[-1].end == change.start and merged[-1].new_end == change.new_start:
            merged[-1] = Change(merged[-1].start, change.end, merged[-1].new_start, change.new_end)
        else:
            merged.append(change)
    return merged


def _fixed(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the longest ascending row of lines that occur once on each side."""
    places, new_places = _once(old), _once(new)
    pairs = [(place, new_places[line]) for line, place in places.items() if line in new_places]
    return _longest_ascending(sorted(pairs))


def _once(lines: Sequence[Hashable]) -> dict[Hashable, int]:
    seen: dict[Hashable, int] = {}
    for place, line in enumerate(lines):
        seen[line] = -1 if line in seen else place
    return {line: place for line, place in seen.items() if place >= 0}


def _longest_ascending(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    ends: list[int] = []
    tops: list[int] = []
    previous: list[int] = []
    for index, (_, value) in enumerate(pairs):
        pile = bisect_left(ends, value)
        previous.append(tops[pile - 1] if pile else -1)
        if pile == len(ends):
            ends.append(value)
            tops.append(index)
        else:
            ends[pile], tops[pile] = value, index
    row: list[tuple[int, int]] = []
    at = tops[-1] if tops else -1
    while at >= 0:
        row.append(pairs[at])
        at = previous[at]
    return row[::-1]


# What an applied diff leaves behind: the new contents, how sure each place was, and the way back.


@dataclass(frozen=True)
class Applied:
    """A diff that was applied as a whole."""

    changed: Mapping[str, bytes | None]
    """New content by path, by path in order; None for a file that is gone."""
    receipts: tuple[FileReceipt, ...]
    """One for each file of the diff, in its order."""
    before: Mapping[str, bytes | None]
    """Their old content, likewise; None for a file that is new."""

    @property
    def canonical(self) -> bytes:
        """The change as our own unified diff, made from what changed and not from what was sent: for the reviewer."""
        return unified(self.before, self.changed)

    @property
    def reverse(self) -> bytes:
        """A unified diff that turns the new files into the old ones, byte for byte."""
        return unified(self.changed, self.before)

    @property
    def fuzz(self) -> Fuzz:
        """The worst of all hunks."""
        return max((receipt.fuzz for receipt in self.receipts), default=Fuzz.EXACT)

    def onto(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the whole set of files after the change."""
        kept = {path: data for path, data in files.items() if path not in self.changed}
        return kept | {path: data for path, data in self.changed.items() if data is not None}

    def as_dict(self) -> dict[str, Any]:
        """Return the receipt as plain values, for the ledger and for `--json`."""
        return {
            "fuzz": int(self.fuzz),
            "fuzz_name": self.fuzz.name.lower(),
            "needs_approval": self.fuzz.needs_approval,
            "files": [
                {
                    "path": receipt.path,
                    "kind": receipt.kind.value,
                    "source": receipt.source,
                    "fuzz": int(receipt.fuzz),
                    "hunks": [
                        {"line": hunk.line, "fuzz": int(hunk.fuzz), "already_applied": hunk.is_already_applied}
                        for hunk in receipt.hunks
                    ],
                }
                for receipt in self.receipts
            ],
        }
