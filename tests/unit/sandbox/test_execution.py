from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.execution import Clocks, Ending, Exchanged, ExecResult, OnLine, OutputLimits, follow

LIMITS = OutputLimits(total_bytes=1000, line_bytes=100, stderr_tail_bytes=10)


class Script:
    """A channel that plays what it is given, one step a second."""

    def __init__(self, *steps: bytes | Exchanged | None, code: int | None = 0, dies: bool = False) -> None:
        self.time = 0.0
        self.has_clock = True
        self.steps: Iterator[bytes | Exchanged | None] = iter(steps)
        self.code = code
        self.dies = dies
        self.is_over = False
        self.interrupts: list[float] = []
        self.stdin = b""
        self.has_end = False

    def now(self) -> float:
        return self.time

    def exchange(self, outgoing: bytes, *, seconds: float) -> Exchanged:
        self.time += 1
        self.stdin += outgoing[:3]
        sent = len(outgoing[:3])
        step = next(self.steps, b"" if not self.dies else None)
        if isinstance(step, Exchanged):
            return step
        if step is None:
            raise ConnectionError("gone")
        if step == b"end":
            self.is_over = True
            return Exchanged(sent, b"", b"", True)
        return Exchanged(sent, step, b"", False)

    def end_input(self) -> None:
        self.has_end = True

    def interrupt(self) -> None:
        self.interrupts.append(self.time)

    def exit_code(self) -> int | None:
        return self.code if self.is_over else None

    def close(self) -> None:
        pass


def run(
    script: Script,
    *,
    stdin: bytes = b"",
    on_line: OnLine | None = None,
    limits: OutputLimits = LIMITS,
    began: float = 0,
    **clocks: float,
) -> tuple[ExecResult, bool]:
    times = Clocks(**({"soft_seconds": 50, "hard_seconds": 60, "grace_seconds": 3} | clocks))  # type: ignore[arg-type]
    frozen: list[bool] = []
    result = follow(
        script,
        freeze=lambda: frozen.append(True),
        stdin=stdin,
        clocks=times,
        limits=limits,
        on_line=on_line,
        began=began,
        now=script.now,
    )
    return result, bool(frozen)


def test_a_command_that_ends_keeps_its_status_and_its_output() -> None:
    result, has_to_freeze = run(Script(b"one\ntw", b"o\n", b"end", code=3))

    assert (result.ending, result.exit_code, result.stdout) == (Ending.EXITED, 3, b"one\ntwo\n")
    assert not result.is_success
    assert not has_to_freeze


@pytest.mark.parametrize(("began", "ending"), [(0, Ending.EXITED), (-7, Ending.SOFT_TIMEOUT)])
def test_a_command_is_timed_from_before_it_was_started(began: float, ending: Ending) -> None:
    """On a busy machine the soft clock ended one before it was followed, and it seemed to have failed (issue 20)."""
    result, _ = run(Script(b"", b"", b"end", code=124), began=began, soft_seconds=10)
    assert result.ending is ending


def test_lines_come_whole_however_they_are_cut() -> None:
    lines: list[bytes] = []
    result, _ = run(Script(b"a", b"b\r\n\nc\rd\ne", b"end"), on_line=lines.append)

    assert lines == [b"ab", b"", b"c\rd", b"e"]
    assert result.stdout == b""


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=8))
def test_cutting_the_stream_elsewhere_changes_no_line(data: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [Exchanged(0, data[a:b], b"", False) for a, b in pairwise(places)]
    lines: list[bytes] = []
    run(Script(*pieces, b"end"), on_line=lines.append, limits=OutputLimits())
    expected = data.split(b"\n")

    assert lines == [line.removesuffix(b"\r") for line in (expected if expected[-1] else expected[:-1])]


def test_stdin_is_sent_in_pieces_and_then_ended() -> None:
    script = Script(b"", b"", b"", b"end")
    run(script, stdin=b"12345678")

    assert (script.stdin, script.has_end) == (b"12345678", True)


@pytest.mark.threat("A9")
def test_output_without_end_is_cut_at_the_cap_and_freezes_the_box() -> None:
    script = Script(*[b"y\n" * 100] * 50)
    result, has_to_freeze = run(script)

    assert (result.ending, has_to_freeze) == (Ending.OUTPUT_LIMIT, True)
    assert len(result.stdout) == 1000
    assert script.time == 6


def test_exactly_as_much_output_as_allowed_passes() -> None:
    assert run(Script(b"y\n" * 500, b"end"))[0].ending is Ending.EXITED


@pytest.mark.threat("A10")
@pytest.mark.parametrize("on_line", [None, lambda line: None])
def test_a_line_that_is_too_long_is_not_kept_until_its_end(on_line: OnLine | None) -> None:
    assert run(Script(b"x" * 60, b"x" * 60, b"\n"), on_line=on_line)[0].ending is Ending.LINE_LIMIT
    assert run(Script(b"x" * 101 + b"\n", b"end"), on_line=on_line)[0].ending is Ending.LINE_LIMIT
    assert run(Script(b"x" * 99 + b"\n", b"end"), on_line=on_line)[0].ending is Ending.EXITED


def test_stderr_counts_and_its_end_is_kept() -> None:
    noise = Exchanged(0, b"", b"0123456789abcdef", False)
    assert run(Script(noise, b"end"))[0].stderr == b"6789abcdef"
    assert run(Script(*[noise] * 63), soft_seconds=90, hard_seconds=99)[0].ending is Ending.OUTPUT_LIMIT


def test_a_caller_who_has_seen_enough_stops_the_command() -> None:
    result, has_to_freeze = run(Script(b"a\nb\nc\n"), on_line=lambda line: line != b"b")

    assert (result.ending, has_to_freeze) == (Ending.STOPPED, True)


def test_a_command_that_never_says_anything_is_interrupted_then_given_up() -> None:
    script = Script()
    result, has_to_freeze = run(script, start_seconds=5)

    assert (result.ending, has_to_freeze) == (Ending.START_TIMEOUT, True)
    assert script.interrupts == [5]
    assert script.time == 9


def test_a_command_that_falls_silent_is_interrupted_and_may_end_well() -> None:
    script = Script(b"a\n", *[b""] * 6, b"result\n", b"end", code=130)
    result, has_to_freeze = run(script, start_seconds=5, idle_seconds=4)

    assert (result.ending, result.exit_code, has_to_freeze) == (Ending.IDLE_TIMEOUT, 130, False)
    assert result.stdout.endswith(b"result\n")
    assert len(script.interrupts) == 1


@pytest.mark.threat("A11")
def test_the_hard_clock_waits_for_nothing() -> None:
    script = Script(*[b"a\n"] * 99)
    result, has_to_freeze = run(script, soft_seconds=10, hard_seconds=12, grace_seconds=30)

    assert (result.ending, has_to_freeze) == (Ending.HARD_TIMEOUT, True)
    assert script.time == 12
    assert script.interrupts == []  # the soft clock's SIGINT comes from inside


def test_the_inner_clock_may_strike_a_little_before_ours() -> None:
    script = Script(*[b"a\n"] * 9, b"end", code=124)
    assert run(script, soft_seconds=10.04)[0].ending is Ending.SOFT_TIMEOUT

    early = Script(b"end", code=124)
    assert run(early, soft_seconds=10)[0].ending is Ending.EXITED


def test_a_channel_that_breaks_is_a_lost_box_and_nothing_to_freeze() -> None:
    result, has_to_freeze = run(Script(b"a\n", None))

    assert (result.ending, result.exit_code, has_to_freeze) == (Ending.BOX_LOST, None, False)


def test_a_command_whose_status_nobody_knows_is_a_lost_box() -> None:
    assert run(Script(b"end", code=None))[0].ending is Ending.BOX_LOST


class LateOutput(Script):
    """The command ends after an exchange that brought nothing, and a child of it holds the channel open."""

    def exit_code(self) -> int | None:
        self.is_over = True
        return self.code


def test_output_that_came_between_the_last_look_and_the_end_is_not_lost() -> None:
    lines: list[bytes] = []
    result, _ = run(LateOutput(b"", b"done\n"))
    assert (result.ending, result.stdout, result.exit_code) == (Ending.EXITED, b"done\n", 0)
    run(LateOutput(b"", b"do", b"ne"), on_line=lines.append)
    assert lines == [b"done"]


def test_a_child_that_stays_behind_and_writes_on_holds_up_nothing_and_keeps_to_the_cap() -> None:
    result, _ = run(LateOutput(b"", *[b"x\n"] * 50))
    assert (result.ending, result.stdout) == (Ending.EXITED, b"x\nx\n"), "two seconds at a step a second"
    loud, _ = run(LateOutput(b"", b"x" * 2000))
    assert loud.ending in (Ending.OUTPUT_LIMIT, Ending.LINE_LIMIT)
    assert run(LateOutput(b"", Exchanged(0, b"done", b"", True)))[0].stdout == b"done"


def test_when_a_command_ended_is_not_when_the_last_of_its_output_came() -> None:
    result, _ = run(LateOutput(b"", b"x", b"x", code=124), soft_seconds=2)
    assert result.ending is Ending.EXITED
