"""Choose among several places for a hunk by evidence other than nearness, which is all that git uses.

Line numbers count as evidence once proven: every hunk is exactly where its numbers say, or another hunk with a single
place is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sites.diff.model import FileText, Fuzz, Hunk, indent_of, key_of
from sites.diff.options import Option


def expected_place(hunk: Hunk) -> int | None:
    """Return the line, from 0, where a hunk begins by its numbers; None without numbers."""
    if hunk.span is None:
        return None
    return hunk.span.old_start if hunk.span.old_count == 0 else max(hunk.span.old_start - 1, 0)


def coherent_places(hunks: Sequence[Hunk]) -> list[int] | None:
    """Return where all hunks begin if their numbers fit their lines and each other."""
    places: list[int] = []
    offset, end = 0, 0
    for hunk in hunks:
        place = expected_place(hunk)
        if place is None or hunk.span is None or not hunk.is_counted:
            return None
        new = hunk.span.new_start if hunk.span.new_count == 0 else hunk.span.new_start - 1
        if new - place != offset or place < end:
            return None
        places.append(place)
        offset += hunk.span.new_count - hunk.span.old_count
        end = place + hunk.span.old_count
    return places


def is_as_tools_write(hunk: Hunk, file: FileText) -> bool:
    """Whether a single hunk has as much context above as below, except at the file's ends, so that no line was lost."""
    size = len(hunk.ops)
    head = size - len(hunk.ops.lstrip(" ?"))
    tail = size - len(hunk.ops.rstrip(" ?"))
    start = expected_place(hunk) or 0
    size = max(head, tail)
    is_head_whole = head == size or start == 0
    is_tail_whole = tail == size or start + len(hunk.before) == len(file.lines)
    return is_head_whole and is_tail_whole and (size > 0 or len(hunk.before) == len(file.lines))


_MIN_WITNESSES = 2
_MAX_IN_ORDER = 20
_NOT_A_SCOPE_END = (b"}", b")", b"]", b"</", b"#", b"//", b"/*", b"*", b"<!--")


@dataclass
class Choice:
    """A hunk and its remaining options."""

    hunk: Hunk
    options: list[Option] = field(default_factory=list)

    @property
    def only(self) -> Option | None:
        """The single option; None if there are several or none."""
        return self.options[0] if len(self.options) == 1 else None

    @property
    def expected(self) -> int | None:
        """The line, from 0, where the hunk begins by its numbers."""
        return expected_place(self.hunk)


def narrow(choices: Sequence[Choice], file: FileText, *, is_ordered: bool) -> None:
    """Narrow each hunk of a file to one option where the evidence decides.

    `is_ordered` says that the format lists hunks in the order of the file.
    """
    _by_coherent_numbers(choices, file)
    for choice in choices:
        _by_anchor(choice, file)
        _by_end(choice, file)
        _by_level(choice)
    for decide in (_by_proven_numbers, _by_common_offset):
        for place, choice in enumerate(choices):
            if len(choice.options) > 1:
                decide(place, choices)
    for choice in choices:
        _by_heading(choice, file)
    if is_ordered and _is_in_order(choices):
        _by_order(choices)
    for choice in choices if file.seen is not None else ():
        _by_sight(choice, file.seen or ())


def _by_sight(choice: Choice, seen: Sequence[tuple[int, int]]) -> None:
    """Keep options in the lines that the diff's author saw: of others it cannot mean any (issue 20)."""
    size = len(choice.hunk.before)
    if len(choice.options) > 1:
        inside = [
            any(first <= each.start + 1 and each.start + size <= last for first, last in seen)
            for each in choice.options
        ]
        _keep(choice, [each for each, is_seen in zip(choice.options, inside, strict=True) if is_seen])


def _by_coherent_numbers(choices: Sequence[Choice], file: FileText) -> None:
    """Trust the numbers if all hunks are where they say, even with inexact lines."""
    hunks = [choice.hunk for choice in choices]
    here = [[option for option in choice.options if option.start == choice.expected] for choice in choices]
    if coherent_places(hunks) is None or any(len(options) != 1 for options in here):
        return
    if len(hunks) > 1 or all(is_as_tools_write(hunk, file) for hunk in hunks):
        for choice, options in zip(choices, here, strict=True):
            choice.options = options


def _keep(choice: Choice, options: list[Option]) -> None:
    if options:
        choice.options = options


def _by_anchor(choice: Choice, file: FileText) -> None:
    """Keep options in the scope that a header without numbers names."""
    if choice.hunk.span is not None or not choice.hunk.anchors or len(choice.options) < 2:
        return
    start = 0
    for anchor in choice.hunk.anchors:
        places = [place for place in file.places.get(key_of(anchor), ()) if place >= start]
        if len(places) != 1:
            return
        start = places[0]
    end = _scope_end(file, start)
    _keep(choice, [option for option in choice.options if start <= option.start < end])


def _scope_end(file: FileText, start: int) -> int:
    depth = len(indent_of(file.lines[start]).expandtabs(4))
    for place in range(start + 1, len(file.lines)):
        line = file.lines[place]
        is_outside = len(indent_of(line).expandtabs(4)) <= depth
        if line.strip() and is_outside and not line.strip().startswith(_NOT_A_SCOPE_END):
            file.budget.spend(place - start)
            return place
    return len(file.lines)


def _by_end(choice: Choice, file: FileText) -> None:
    if choice.hunk.is_at_end and len(choice.options) > 1:
        size = len(choice.hunk.before)
        _keep(choice, [option for option in choice.options if option.start + size == len(file.lines)])


def _by_level(choice: Choice) -> None:
    """Prefer the one place that fits exactly, unless another is nearer by the numbers."""
    if len(choice.options) < 2:
        return
    best = [option for option in choice.options if option.fuzz <= Fuzz.WHITESPACE]
    exact = [option for option in best if option.fuzz <= Fuzz.OFFSET]
    for options in (exact, best):
        if len(options) == 1 and _is_nearest(options[0], choice):
            choice.options = options
            return


def _is_nearest(option: Option, choice: Choice) -> bool:
    expected = choice.expected
    return expected is None or all(
        abs(option.start - expected) <= abs(other.start - expected) for other in choice.options
    )


def _by_proven_numbers(place: int, choices: Sequence[Choice]) -> None:
    others = [choice for index, choice in enumerate(choices) if index != place]
    proven = [choice for choice in others if choice.only is not None and choice.only.fuzz <= Fuzz.WHITESPACE]
    if proven and all(choice.only is not None and choice.only.start == choice.expected for choice in proven):
        choice = choices[place]
        _keep_single(choice, [option for option in choice.options if option.start == choice.expected])


def _by_common_offset(place: int, choices: Sequence[Choice]) -> None:
    """Apply the offset that all other hunks share: lines were added or removed above them all."""
    offsets = [
        choice.only.start - choice.expected
        for index, choice in enumerate(choices)
        if index != place and choice.only is not None and choice.expected is not None
    ]
    choice = choices[place]
    if len(offsets) >= _MIN_WITNESSES and len(set(offsets)) == 1 and choice.expected is not None:
        _keep_single(choice, [option for option in choice.options if option.start == choice.expected + offsets[0]])


def _by_order(choices: Sequence[Choice]) -> None:
    """Keep the only combination in which the hunks follow one another, if there is just one."""
    if len(choices) < 2 or any(not 0 < len(choice.options) <= _MAX_IN_ORDER for choice in choices):
        return
    rows: list[list[Option]] = [[]]
    for choice in choices:
        ways = [
            [*row, option]
            for row in rows
            for option in sorted(choice.options, key=lambda option: option.start)
            if not row or option.start > row[-1].start
        ]
        rows = _furthest(ways)
    if len(rows) == 1:
        for choice, option in zip(choices, rows[0], strict=True):
            choice.options = [option]


def _furthest(ways: list[list[Option]]) -> list[list[Option]]:
    """Return at most two rows for each end, enough to see whether there are several."""
    rows: list[list[Option]] = []
    for way in ways:
        if sum(way[-1] is other[-1] for other in rows) < 2:
            rows.append(way)
    return rows


def _is_in_order(choices: Sequence[Choice]) -> bool:
    starts = [choice.hunk.span.old_start for choice in choices if choice.hunk.span is not None]
    return starts == sorted(starts)


def _by_heading(choice: Choice, file: FileText) -> None:
    """Keep the option below the heading that git writes after the numbers."""
    if len(choice.options) < 2 or choice.hunk.span is None or not choice.hunk.anchors:
        return
    heading = choice.hunk.anchors[0]
    _keep_single(choice, [option for option in choice.options if _heading_at(file, option.start).startswith(heading)])


def _heading_at(file: FileText, start: int) -> bytes:
    """Return the heading that git would give a hunk: the last line above that begins with a letter."""
    for place in range(min(start, len(file.lines)) - 1, -1, -1):
        line = file.lines[place]
        if line[:1].isalpha() or line[:1] in (b"_", b"$"):
            file.budget.spend(start - place)
            return line.strip()
    return b""


def _keep_single(choice: Choice, options: list[Option]) -> None:
    if len(options) == 1:
        choice.options = options
