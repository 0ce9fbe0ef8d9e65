"""How a file's indentation follows from a diff's: by a rule that explains every line they share, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import NamedTuple

from sandbox.diff.lines import indent_of
from sandbox.diff.model import Line

_TAB_WIDTHS = (2, 3, 4, 8)
_MAX_SEEN = 5_000


class Pair(NamedTuple):
    """A line of a diff and the line of the file that it means."""

    line: Line
    found: bytes


Rule = Callable[[bytes], bytes | None]
Run = tuple[bytes, ...]


def file_unit(lines: Sequence[bytes]) -> int:
    """Return the number of spaces that every indentation of a file is a multiple of; 0 when no line has any."""
    unit = 0
    for line in lines[:_MAX_SEEN]:
        indent = indent_of(line)
        if indent and b"\t" not in indent:
            unit = gcd(unit, len(indent))
    return unit


def reindented(pairs: Sequence[Pair], lines: Sequence[Line], unit: int, *, is_shifted: bool = False) -> list[list[Run]]:
    """Return all that the added lines of a hunk may be in the file.

    Args:
        pairs: the hunk's context and removed lines, in order, with those of the file.
        lines: the whole hunk.
        unit: of the file's indentation.
        is_shifted: other hunks of the file have lost or gained indentation in removed lines too, and so has this one
            in added lines.

    Returns:
        The ways to read it; in each, the added lines run by run. Not one when nothing explains the indentation, and
        more than one when the evidence allows them.
    """
    as_is = [tuple(run.added) for run in _runs(lines)]
    told = [pair for pair in pairs if pair.found.strip()]
    if not any(as_is) or all(indent_of(line.text) == indent_of(found) for line, found in told):
        return [as_is]
    removed = [pair for pair in told if pair.line.op == "-"]
    if (
        removed
        and all(indent_of(line.text) == indent_of(found) for line, found in removed)
        and not _has_other_tabs(told)
    ):
        return [as_is]  # only context lines have lost theirs, and those keep the file's own bytes
    if not removed and all(_lost_marker(pair) for pair in told):
        return [as_is]
    if not removed and _is_context_stripped(told, as_is):
        return [as_is]
    ways = _ways(told, lines, unit)
    if removed:
        return ways or _by_replaced_line(pairs, lines, unit)
    frame = [found for _, found in pairs]
    if is_shifted and ways:
        return ways
    if _is_flat(told) and any(indent_of(text) for run in as_is for text in run):
        return _distinct([*ways, as_is])
    natural = [way for way in ways if _fits(lines, way, frame)]
    if natural and not _fits(lines, as_is, frame):
        return natural
    if ways and any(indent_of(line.text) for line, _ in told):
        return _distinct([*ways, as_is])
    return [as_is] if _fits(lines, as_is, frame) else ways


def _has_other_tabs(told: Sequence[Pair]) -> bool:
    """Return whether a diff is indented with tabs where the file is with spaces, or the other way round."""
    return any((b"\t" in indent_of(line.text)) != (b"\t" in indent_of(found)) for line, found in told)


def _is_context_stripped(told: Sequence[Pair], as_is: Sequence[Run]) -> bool:
    """Return whether context lines of different depth have lost all their indentation, and added ones have not."""
    if any(indent_of(pair.line.text) for pair in told) or len({indent_of(pair.found) for pair in told}) == 1:
        return False
    return any(indent_of(text) for run in as_is for text in run)


def _is_flat(told: Sequence[Pair]) -> bool:
    """Return whether context lines of one depth have lost all their indentation: perhaps they alone have."""
    return not any(indent_of(pair.line.text) for pair in told) and len({indent_of(pair.found) for pair in told}) == 1


def _lost_marker(pair: Pair) -> bool:
    wanted, found = pair.line.text.rstrip(), pair.found.rstrip()
    return found in (wanted, b" " + wanted) or wanted == b" " + found


def _ways(told: Sequence[Pair], lines: Sequence[Line], unit: int) -> list[list[Run]]:
    indents = sorted({(indent_of(line.text), indent_of(found)) for line, found in told})
    added = {indent_of(line.text) for line in lines if line.op == "+" and line.text.strip()}
    written = gcd(*(len(indent) for indent in {*added, *(one for one, _ in indents)} if b"\t" not in indent), 0)
    ways = []
    for rule in _rules(indents, written=written, unit=unit):
        made = {indent: rule(indent) for indent in added}
        if all(_is_usual(indent, unit) for indent in made.values()):
            ways.append([tuple(_moved(text, made, rule) for text in run.added) for run in _runs(lines)])
    return _distinct(ways)


def _by_replaced_line(pairs: Sequence[Pair], lines: Sequence[Line], unit: int) -> list[list[Run]]:
    """Return added lines moved as the lines that they replace: only those have lost their indentation."""
    way: list[Run] = []
    for run in _runs(lines):
        replaced = {pairs[index] for index in run.beside if pairs[index].line.op == "-" and pairs[index].found.strip()}
        indents = sorted({(indent_of(pair.line.text), indent_of(pair.found)) for pair in replaced})
        added = {indent_of(text) for text in run.added if text.strip()}
        rules = _rules(indents, written=0, unit=unit) if indents else []
        made = [{indent: rule(indent) for indent in added} for rule in rules]
        told = [one for one in made if all(_is_usual(indent, unit) for indent in one.values())]
        if not told or any(one != told[0] for one in told):
            return []
        way.append(tuple(_moved(text, told[0], rules[0]) for text in run.added))
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
    rules: list[Rule] = [_table(indents)] if len(dict(indents)) == len(indents) else []
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


def _table(indents: Sequence[tuple[bytes, bytes]]) -> Rule:
    known = dict(indents)
    return lambda indent: known.get(indent)


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
    """Which of the hunk's context and removed lines it stands beside; where lines are replaced, which of those."""


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
    """Return whether each run's shallowest line is as deep as a line beside it."""
    for run, made in zip(_runs(lines), way, strict=True):
        said = [indent_of(text) for text in made if text.strip()]
        beside = {indent_of(frame[index]) for index in run.beside if frame[index].strip()}
        if said and beside and min(said, key=len) not in beside:
            return False
    return True


def _distinct(ways: list[list[Run]]) -> list[list[Run]]:
    return [way for place, way in enumerate(ways) if way not in ways[:place]]
