"""Which of several places a hunk means: only when something beside nearness says so. git takes the nearest.

Line numbers are believed where they have proven right: all counts fit and every hunk of the file stands exactly where
its numbers say, or another hunk of the file that can stand in one place only stands exactly there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sites.diff.model import FileText, Fuzz, Hunk, indent_of, key_of
from sites.diff.options import Option

# When the numbers of a file's hunks are to be believed: when all of them agree with all that can be checked.


def expected_place(hunk: Hunk) -> int | None:
    """Return the line of the file, from 0, where a hunk's numbers say that it begins; None without numbers."""
    if hunk.span is None:
        return None
    return hunk.span.old_start if hunk.span.old_count == 0 else max(hunk.span.old_start - 1, 0)


def coherent_places(hunks: Sequence[Hunk]) -> list[int] | None:
    """Return where all hunks of a file begin if their numbers fit their lines and each other."""
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
    """Return whether a lone hunk has as much context above as below, but at the file's ends: no line was lost."""
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
    """A hunk and what it may mean, narrowed down step by step."""

    hunk: Hunk
    options: list[Option] = field(default_factory=list)

    @property
    def only(self) -> Option | None:
        """The one thing that it means; None while there are several or none."""
        return self.options[0] if len(self.options) == 1 else None

    @property
    def expected(self) -> int | None:
        """The line of the file, from 0, where the hunk's numbers say that it begins."""
        return expected_place(self.hunk)


def narrow(choices: Sequence[Choice], file: FileText, *, is_ordered: bool) -> None:
    """Leave one option to each hunk for which the evidence decides.

    Args:
        choices: the hunks of a file, with all that each may mean.
        file: the file.
        is_ordered: the format lists hunks in the order of the file.
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


def _by_coherent_numbers(choices: Sequence[Choice], file: FileText) -> None:
    """Believe the numbers where all hunks stand where they say, however lines were changed on their way."""
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
    """Keep what stands below the lines that a header without numbers names, innermost scope first."""
    if choice.hunk.span is not None or not choice.hunk.anchors or len(choice.options) < 2:
        return
    start = 0
    for anchor in choice.hunk.anchors:
        found = [place for place in file.places.get(key_of(anchor), ()) if place >= start]
        if len(found) != 1:
            return
        start = found[0]
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
    """Prefer the one place that fits to the letter, unless the numbers say that another is meant."""
    if len(choice.options) < 2:
        return
    best = [option for option in choice.options if option.fuzz <= Fuzz.WHITESPACE]
    exact = [option for option in best if option.fuzz <= Fuzz.OFFSET]
    for found in (exact, best):
        if len(found) == 1 and _is_nearest(found[0], choice):
            choice.options = found
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
    """Move by as much as all the other hunks have moved: something was put in or taken out above them all."""
    offsets = [
        choice.only.start - choice.expected
        for index, choice in enumerate(choices)
        if index != place and choice.only is not None and choice.expected is not None
    ]
    choice = choices[place]
    if len(offsets) >= _MIN_WITNESSES and len(set(offsets)) == 1 and choice.expected is not None:
        _keep_single(choice, [option for option in choice.options if option.start == choice.expected + offsets[0]])


def _by_order(choices: Sequence[Choice]) -> None:
    """Keep the one way in which the hunks stand one below another, where there is only one."""
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
    """Return rows enough to tell whether there is more than one: two for each end."""
    kept: list[list[Option]] = []
    for way in ways:
        if sum(way[-1] is other[-1] for other in kept) < 2:
            kept.append(way)
    return kept


def _is_in_order(choices: Sequence[Choice]) -> bool:
    starts = [choice.hunk.span.old_start for choice in choices if choice.hunk.span is not None]
    return starts == sorted(starts)


def _by_heading(choice: Choice, file: FileText) -> None:
    """Keep what stands below the heading that git writes behind the numbers."""
    if len(choice.options) < 2 or choice.hunk.span is None or not choice.hunk.anchors:
        return
    heading = choice.hunk.anchors[0]
    _keep_single(choice, [option for option in choice.options if _heading_at(file, option.start).startswith(heading)])


def _heading_at(file: FileText, start: int) -> bytes:
    """Return the line that git would write as a heading for a hunk: the last one above that begins with a letter."""
    for place in range(min(start, len(file.lines)) - 1, -1, -1):
        line = file.lines[place]
        if line[:1].isalpha() or line[:1] in (b"_", b"$"):
            file.budget.spend(start - place)
            return line.strip()
    return b""


def _keep_single(choice: Choice, options: list[Option]) -> None:
    if len(options) == 1:
        choice.options = options
