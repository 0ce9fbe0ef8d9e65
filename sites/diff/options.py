"""The options of a hunk at a place: its edits, its added lines' indentation, and how inexactly it fits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby, pairwise
from math import gcd
from typing import NamedTuple

from sites.diff.model import MIN_KEPT_CHARS, MIN_KEPT_LINES, FileText, Fuzz, Hunk, Line, indent_of, key_of, likeness

# The added lines are indented by a rule that explains every line that the diff and the file share, or not at all.

_TAB_WIDTHS = (2, 3, 4, 8)
_MAX_SEEN = 5_000


class Pair(NamedTuple):
    """A line of a diff and the line of the file that it means."""

    line: Line
    found: bytes


Rule = Callable[[bytes], bytes | None]
Run = tuple[bytes, ...]


def file_unit(lines: Sequence[bytes]) -> int:
    """Return the greatest common width of a file's indentation in spaces; 0 if it has none."""
    unit = 0
    for line in lines[:_MAX_SEEN]:
        indent = indent_of(line)
        if indent and b"\t" not in indent:
            unit = gcd(unit, len(indent))
    return unit


def reindented(pairs: Sequence[Pair], lines: Sequence[Line], unit: int, *, is_shifted: bool) -> list[list[Run]]:
    """Return the possible indentations of a hunk's added lines.

    Args:
        pairs: the hunk's context and removed lines in order, with those of the file.
        lines: the whole hunk.
        unit: the file's unit of indentation.
        is_shifted: the file's other hunks have wrong indentation in removed lines too, and so has this one in added
            lines.

    Returns:
        The ways to read it, each with the added lines run by run; none if nothing explains the indentation.
    """
    as_is = _added_runs(lines)
    filled = [pair for pair in pairs if pair.found.strip()]
    if not any(as_is) or all(indent_of(line.text) == indent_of(found) for line, found in filled):
        return [as_is]
    removed = [pair for pair in filled if pair.line.op == "-"]
    if (
        removed
        and all(indent_of(line.text) == indent_of(found) for line, found in removed)
        and not _has_other_tabs(filled)
    ):
        return [as_is]  # only context lines have lost theirs, and those keep the file's own bytes
    if not removed and all(_lost_marker(pair) for pair in filled):
        return [as_is]
    if not removed and _is_context_stripped(filled, as_is):
        return [as_is]
    ways = _ways(filled, lines, unit)
    if removed:
        return ways or _by_replaced_line(pairs, lines, unit)
    frame = [found for _, found in pairs]
    if is_shifted and ways:
        return ways
    if _is_flat(filled) and any(indent_of(text) for run in as_is for text in run):
        return _distinct([*ways, as_is])
    natural = [way for way in ways if _fits(lines, way, frame)]
    if natural and not _fits(lines, as_is, frame):
        return natural
    if ways and any(indent_of(line.text) for line, _ in filled):
        return _distinct([*ways, as_is])
    return [as_is] if _fits(lines, as_is, frame) else ways


def _has_other_tabs(pairs: Sequence[Pair]) -> bool:
    """Whether a diff is indented with tabs and the file with spaces, or the other way round."""
    return any((b"\t" in indent_of(line.text)) != (b"\t" in indent_of(found)) for line, found in pairs)


def _is_context_stripped(pairs: Sequence[Pair], as_is: Sequence[Run]) -> bool:
    """Whether context lines of different depths have lost all their indentation, and added ones have not."""
    if any(indent_of(pair.line.text) for pair in pairs) or len({indent_of(pair.found) for pair in pairs}) == 1:
        return False
    return any(indent_of(text) for run in as_is for text in run)


def _is_flat(pairs: Sequence[Pair]) -> bool:
    """Whether context lines of one depth have lost all their indentation, perhaps they alone."""
    return not any(indent_of(pair.line.text) for pair in pairs) and len({indent_of(pair.found) for pair in pairs}) == 1


def _lost_marker(pair: Pair) -> bool:
    wanted, found = pair.line.text.rstrip(), pair.found.rstrip()
    return found in (wanted, b" " + wanted) or wanted == b" " + found


def _ways(pairs: Sequence[Pair], lines: Sequence[Line], unit: int) -> list[list[Run]]:
    indents = sorted({(indent_of(line.text), indent_of(found)) for line, found in pairs})
    added = {indent_of(line.text) for line in lines if line.op == "+" and line.text.strip()}
    written = gcd(*(len(indent) for indent in {*added, *(one for one, _ in indents)} if b"\t" not in indent), 0)
    ways = []
    for rule in _rules(indents, written=written, unit=unit):
        made = {indent: rule(indent) for indent in added}
        if all(_is_usual(indent, unit) for indent in made.values()):
            ways.append([tuple(_moved(text, made, rule) for text in run.added) for run in _runs(lines)])
    return _distinct(ways)


def _by_replaced_line(pairs: Sequence[Pair], lines: Sequence[Line], unit: int) -> list[list[Run]]:
    """Return added lines indented as the lines that they replace, if only those have lost their indentation."""
    way: list[Run] = []
    for run in _runs(lines):
        replaced = {pairs[index] for index in run.beside if pairs[index].line.op == "-" and pairs[index].found.strip()}
        indents = sorted({(indent_of(pair.line.text), indent_of(pair.found)) for pair in replaced})
        added = {indent_of(text) for text in run.added if text.strip()}
        rules = _rules(indents, written=0, unit=unit) if indents else []
        made = [{indent: rule(indent) for indent in added} for rule in rules]
        usual = [one for one in made if all(_is_usual(indent, unit) for indent in one.values())]
        if not usual or any(one != usual[0] for one in usual):
            return []
        way.append(tuple(_moved(text, usual[0], rules[0]) for text in run.added))
    return [way]


def _is_usual(indent: bytes | None, unit: int) -> bool:
    return indent is not None and (b"\t" in indent or unit < 2 or len(indent) % unit == 0)


def _moved(text: bytes, made: dict[bytes, bytes | None], rule: Rule) -> bytes:
    if not text.strip():
        blank = text.rstrip(b"\r\n")
        other = rule(blank) if blank else None
        return text if other is None or (b"\t" in other) == (b"\t" in blank) else other + text[len(blank) :]
    indent = indent_of(text)
    return (made[indent] or b"") + text[len(indent) :]


def _rules(indents: Sequence[tuple[bytes, bytes]], *, written: int, unit: int) -> list[Rule]:
    rules: list[Rule] = [dict(indents).get] if len(dict(indents)) == len(indents) else []
    more = {found[: len(found) - len(wanted)] for wanted, found in indents if found.endswith(wanted)}
    less = {wanted[: len(wanted) - len(found)] for wanted, found in indents if wanted.endswith(found)}
    if len(more) == 1 and all(found.endswith(wanted) for wanted, found in indents):
        rules.append(_deeper(more.pop()))
    if len(less) == 1 and all(wanted.endswith(found) for wanted, found in indents):
        rules.append(_shallower(less.pop()))
    candidates: list[Rule] = [_tabs(width) for width in _TAB_WIDTHS] + [_spaces(width) for width in _TAB_WIDTHS]
    if written and unit and written != unit:
        candidates.append(_scaled(written, unit))
    rules += [rule for rule in candidates if all(rule(wanted) == found for wanted, found in indents)]
    general = rules[1:] if rules and len(dict(indents)) == len(indents) else rules
    return general or rules


def _deeper(prefix: bytes) -> Rule:
    return lambda indent: prefix + indent


def _shallower(prefix: bytes) -> Rule:
    return lambda indent: indent[len(prefix) :] if indent.startswith(prefix) else None


def _tabs(width: int) -> Rule:
    def rule(indent: bytes) -> bytes:
        columns = len(indent.expandtabs(width))
        return b"\t" * (columns // width) + b" " * (columns % width)

    return rule


def _spaces(width: int) -> Rule:
    return lambda indent: indent.expandtabs(width)


def _scaled(written: int, unit: int) -> Rule:
    return lambda indent: b" " * (len(indent) * unit // written) if b"\t" not in indent else None


class _AddedRun(NamedTuple):
    added: list[bytes]
    beside: list[int]
    """Indexes of the hunk's context and removed lines beside it; only the removed ones if there are any."""


def _runs(lines: Sequence[Line]) -> list[_AddedRun]:
    runs: list[_AddedRun] = []
    seen = 0
    for place, line in enumerate(lines):
        if line.op != "+":
            seen += 1
            continue
        if place == 0 or lines[place - 1].op != "+":
            runs.append(_AddedRun([], _beside(lines, place, seen)))
        runs[-1].added.append(line.text)
    return runs


def _beside(lines: Sequence[Line], place: int, seen: int) -> list[int]:
    end = next((at for at in range(place, len(lines)) if lines[at].op != "+"), len(lines))
    around = [(lines[place - 1].op, seen - 1)] if place else []
    around += [(lines[end].op, seen)] if end < len(lines) else []
    return [index for op, index in around if op == "-"] or [index for _, index in around]


def _fits(lines: Sequence[Line], way: Sequence[Run], frame: Sequence[bytes]) -> bool:
    """Whether each run's shallowest line is as deep as a line beside it."""
    for run, made in zip(_runs(lines), way, strict=True):
        indents = [indent_of(text) for text in made if text.strip()]
        beside = {indent_of(frame[index]) for index in run.beside if frame[index].strip()}
        if indents and beside and min(indents, key=len) not in beside:
            return False
    return True


def _distinct(ways: list[list[Run]]) -> list[list[Run]]:
    return [way for place, way in enumerate(ways) if way not in ways[:place]]


_CHANGES = re.compile("( *)([^ ]+)")


class Edit(NamedTuple):
    """Lines `start` to `end` (exclusive) are replaced."""

    start: int
    end: int
    lines: tuple[bytes, ...]


class Option(NamedTuple):
    """One possible meaning of a hunk."""

    start: int
    """First line of the file that the hunk covers."""
    edits: tuple[Edit, ...]
    fuzz: Fuzz
    keeps_end: bool = False
    """The file's last line keeps its end, whatever the diff says of its line feed."""
    is_applied: bool = False


def exact_option(file: FileText, hunk: Hunk, start: int) -> Option:
    """Return the option of a hunk that matches the file byte for byte at a line."""
    file.budget.spend(len(hunk.ops))
    places = range(start, start + len(hunk.ops) - hunk.ops.count("+"))
    return Option(start, _edits(hunk.ops, hunk.added, places, start), Fuzz.EXACT)


def options_at(file: FileText, lines: Sequence[Line], places: Sequence[int], *, at_least: Fuzz) -> list[Option]:
    """Return the options of a hunk whose context and removed lines are matched to lines of the file.

    `places` are the lines of the file for each context or removed line, which took the fuzz `at_least` to find.
    """
    before = [line for line in lines if line.op != "+"]
    pairs = [Pair(line, file.lines[place]) for line, place in zip(before, places, strict=True)]
    file.budget.spend(len(lines))
    fuzz = max((likeness(line.text, found, is_context=line.op == " ") for line, found in pairs), default=Fuzz.EXACT)
    unit = file_unit(file.lines) if fuzz is Fuzz.INDENT else 0
    ways = reindented(pairs, lines, unit, is_shifted=file.is_shifted) if fuzz >= Fuzz.MARKER else [_added_runs(lines)]
    ended = [_with_ends(way, pairs) for way in ways] if fuzz is not Fuzz.EXACT else ways
    start = places[0] if places else 0
    keeps_end = any(line.text.endswith(b"\n") != found.endswith(b"\n") for line, found in pairs)
    ops = "".join(line.op for line in lines)
    return [
        Option(start, _edits(ops, [*chain(*way)], places, start), max(fuzz, at_least), keeps_end=keeps_end)
        for way in ended
        if way is not None
    ]


def _added_runs(lines: Sequence[Line]) -> list[Run]:
    return [tuple(run.added) for run in _runs(lines)]


def _with_ends(way: Sequence[Run], pairs: Sequence[Pair]) -> list[Run] | None:
    """Return added lines with the line ends of their surroundings; None if those are mixed."""
    ends = {(_end(line.text), _end(found)) for line, found in pairs if _end(line.text) and _end(found)}
    if all(wanted == found for wanted, found in ends):
        return list(way)
    found_ends = {found for _, found in ends}
    if len(found_ends) != 1:
        return list(way) if not any(way) else None
    end = found_ends.pop()
    return [tuple(text.removesuffix(_end(text)) + end if _end(text) else text for text in run) for run in way]


def _end(line: bytes) -> bytes:
    return b"\r\n" if line.endswith(b"\r\n") else b"\n" if line.endswith(b"\n") else b""


def _edits(ops: str, added: Sequence[bytes], places: Sequence[int], start: int) -> tuple[Edit, ...]:
    """Return the edits of a hunk, one for each run of changed lines."""
    edits: list[Edit] = []
    seen = made = 0
    for kept, changed in _CHANGES.findall(ops):
        seen += len(kept)
        new = made + changed.count("+")
        after = seen + len(changed) - (new - made)
        if after > seen:
            first, last = places[seen], places[after - 1] + 1
        else:
            first = last = places[seen - 1] + 1 if seen else start
        edits.append(Edit(first, last, tuple(added[made:new])))
        seen, made = after, new
    return tuple(edits)


# Models leave out unchanged lines. That is harmless between two context lines, but not next to an inserted line, which
# could belong before or after them.

MAX_GAP = 8
"""The most lines that may be left out in one place."""
_MAX_SKIPPED = 24
_MAX_LINES = 400
_MAX_FOUND = 20
_MAX_STARTS = 100
_MAX_WAYS = 6
_ALIKE = 0.6
"""The least share of the words of two lines that both have."""
_SHARED = 0.3
_MAX_COMPARED = 400
_WORD = re.compile(rb"\w+")

_Way = tuple[int, tuple[int, ...]]
"""The number of lines left out, and the places of the lines."""


class DoubtError(Exception):
    """Lines are left out where the new lines could belong above or below them."""


def alignments(file: FileText, lines: Sequence[Line]) -> list[tuple[int, ...]]:
    """Return the ways to match a hunk's context and removed lines to the file with the fewest lines left out.

    Raises:
        DoubtError: lines are left out beside new ones (the diff's fault).
    """
    before = [line for line in lines if line.op != "+"]
    keys = [key_of(line.text) for line in before]
    filled = [key for key in keys if key]
    if len(before) > _MAX_LINES or len(filled) < MIN_KEPT_LINES or sum(map(len, filled)) < MIN_KEPT_CHARS:
        return []
    if any(key not in file.places for key in keys):
        return []
    starts = _starts(file, keys)
    if len(starts) > _MAX_STARTS:
        return []
    ways = [way for start in starts for way in _ways_from(file, keys, start) if way[0] <= _MAX_SKIPPED]
    fewest = min((skipped for skipped, _ in ways), default=0)
    best = [places for skipped, places in ways if skipped <= fewest + 1]
    gaps = list(_gaps(lines))
    if any(not _is_certain(places, gaps) for places in best):
        raise DoubtError
    return best


def _is_certain(places: Sequence[int], gaps: Sequence[int]) -> bool:
    """Whether lines are left out only where no new line could belong among them."""
    return all(below - above - 1 <= gap for (above, below), gap in zip(pairwise(places), gaps, strict=True))


def _starts(file: FileText, keys: Sequence[bytes]) -> list[int]:
    """Return where the first line may be, near enough to the rarest line."""
    rarest = min(range(len(keys)), key=lambda index: (not keys[index], len(file.places[keys[index]])))
    near = {
        place - rarest - skipped
        for place in file.places[keys[rarest]]
        for skipped in range(min(rarest, 1) * _MAX_SKIPPED + 1)
    }
    file.budget.spend(len(near))
    return [start for start in sorted(near) if start >= 0 and file.keys[start] == keys[0]]


def _ways_from(file: FileText, keys: Sequence[bytes], start: int) -> list[_Way]:
    """Return the ways that begin at one line and leave out the fewest lines."""
    ways: dict[int, list[_Way]] = {start: [(0, (start,))]}
    for index, key in enumerate(keys[1:]):
        following: dict[int, list[_Way]] = {}
        for last, reached in ways.items():
            for place in range(last + 1, min(last + 2 + MAX_GAP, len(file.keys))):
                file.budget.spend(1)
                skipped = place - last - 1
                if file.keys[place] == key:
                    more = [(total + skipped, (*places, place)) for total, places in reached]
                    following[place] = sorted(following.get(place, []) + more)[:_MAX_WAYS]
        file.budget.spend(len(following) * index // 2)
        ways = following
    return sorted(way for reached in ways.values() for way in reached)[:_MAX_FOUND]


def _gaps(lines: Sequence[Line]) -> Iterator[int]:
    """Yield how many lines may be left out between neighbouring context and removed lines."""
    above: Line | None = None
    added: list[bytes] = []
    sizes = _run_sizes(lines)
    for place, line in enumerate(lines):
        if line.op == "+":
            added.append(line.text)
            continue
        if above is not None:
            yield _gap(above, added, line, is_one_for_one=len(set(sizes[place - 1])) == 1)
        above, added = line, []


def _run_sizes(lines: Sequence[Line]) -> list[tuple[int, int]]:
    """Return for each line how many lines its run removes and adds."""
    sizes: list[tuple[int, int]] = []
    for is_context, run in groupby(lines, key=lambda line: line.op == " "):
        ops = [line.op for line in run]
        sizes += [(0, 0) if is_context else (ops.count("-"), ops.count("+"))] * len(ops)
    return sizes


def _gap(above: Line, added: Sequence[bytes], below: Line, *, is_one_for_one: bool) -> int:
    if above.op == below.op == "-":
        return 0  # the line between might stay or go
    if not added:
        return MAX_GAP
    if above.op == below.op:
        return 0  # an insertion could stand on either side
    removed = above.text if above.op == "-" else below.text
    beside = added[0] if above.op == "-" else added[-1]
    if not (is_one_for_one and _is_alike(removed, beside)):
        return 0
    return MAX_GAP


def _is_alike(one: bytes, other: bytes) -> bool:
    """Whether one line is the other rewritten, and so takes its place."""
    one, other = one.strip()[:_MAX_COMPARED], other.strip()[:_MAX_COMPARED]
    if one == other:
        return False  # an equal line was moved past what is left out
    shared = _common(one, other) + _common(one[::-1], other[::-1])
    if shared >= _SHARED * max(len(one), len(other)):
        return True
    words, others = Counter(_WORD.findall(one)), Counter(_WORD.findall(other))
    return 2 * (words & others).total() >= _ALIKE * (words.total() + others.total()) > 0


def _common(one: bytes, other: bytes) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
