"""The benchmarks' own machinery: fair turns, honest ratios, and a page that says what was measured."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import __main__ as bench
from benchmarks import environments, routing, turnover
from benchmarks.answer import Answer, Comparison, Curve, Spread, Unit, read
from benchmarks.chart import chart, sides_of
from benchmarks.curves import curves
from benchmarks.guard import regressions
from benchmarks.inputs import edit, page, site
from benchmarks.page import BEGIN, END, publish, written
from benchmarks.question import Survey, UnavailableError
from benchmarks.race import EndedError, Peer, Race, Start, Turn, command, interleave, warm_up
from benchmarks.registry import BY_NAME, IN_ONE_RUN
from benchmarks.summary import Outcome, summary, verdict

ROOT = Path(__file__).parents[3]
SVG = "{http://www.w3.org/2000/svg}"


def answer(ours: float = 1e-4, theirs: float = 4e-4, *, target: float | None = 3, calls: int | None = 100) -> Answer:
    compared = Comparison("a <peer> & more", (ours, ours * 2, ours), (theirs, theirs * 2, theirs), target)
    return Answer("What does it cost?", comparisons=(compared,), calls=calls)


@pytest.mark.slow
def test_a_race_is_run_written_read_and_drawn(tmp_path: Path) -> None:
    race = replace(routing.QUESTION, peers=routing.QUESTION.peers[:1], turn_seconds=0.01)
    found = race.ask(3)
    (compared,) = found.comparisons

    assert len(compared.ours) == len(compared.theirs) == 3
    assert 0 < compared.ratio.low <= compared.ratio.median <= compared.ratio.high < 1  # no decision beats one regex
    assert found.calls is not None
    assert found.calls > 100
    path = found.write(tmp_path, race.name)
    assert read(path) == found
    assert str(ROOT) not in path.read_text()
    assert list(regressions(found, found)) == []
    assert ElementTree.fromstring(chart(found)).tag == f"{SVG}svg"


def test_ours_and_a_peer_take_turns_and_who_goes_first_changes() -> None:
    order: list[str] = []

    def side(name: str, seconds: float) -> Callable[[int], float]:
        def turn(times: int) -> float:
            order.append(name)
            return seconds * times

        return turn

    taken = interleave(side("ours", 0.01), side("theirs", 0.02), pairs=3, turn_seconds=0.1)

    assert taken == [(0.01, 0.02)] * 3
    assert order[-6:] == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]


def test_a_turn_is_as_many_operations_as_fill_its_time() -> None:
    asked: list[int] = []
    assert warm_up(lambda times: (asked.append(times), times * 0.001)[1], 0.2) == asked[-1] == 200


def test_a_ratio_is_that_of_a_pair_and_not_of_two_medians() -> None:
    drifting = Comparison("peer", ours=(1.0, 2.0, 30.0), theirs=(2.0, 4.0, 60.0), target=2)
    assert drifting.ratio == (2, 2, 2)
    assert drifting.is_met
    assert not replace(drifting, target=2.1).is_met


@contextmanager
def instant() -> Iterator[Turn]:
    yield lambda times: times * 0.2


def side_that_ends() -> AbstractContextManager[Turn]:
    return command([sys.executable, "-c", "raise SystemExit(3)"])


def not_to_be_had() -> AbstractContextManager[Turn]:
    raise UnavailableError("cannot be installed: no network")


def race_beside(*peers: Peer, ours: Start = instant) -> Race:
    return Race("cost", "What does it cost?", ours=ours, peers=peers, pairs=3)


def page_below(directory: Path) -> Path:
    path = directory / "performance.md"
    path.write_text(f"top\n{BEGIN}\nold\n{END}\nafter\n")
    return path


def a_run(directory: Path, **changes: Any) -> bench.Run:
    page_below(directory)
    return bench.Run(results=directory / "results", docs=directory, limits=directory / "limits.json", **changes)


def test_a_peer_that_cannot_be_installed_or_started_is_skipped_and_the_others_are_raced(tmp_path: Path) -> None:
    missing = [Peer("A", not_to_be_had, 2), Peer("B", side_that_ends), Peer("D", lambda: command(["no-such-program"]))]
    race = race_beside(*missing, Peer("C", instant, 1))

    found = race.ask()
    assert [compared.peer for compared in found.comparisons] == ["C"]
    reasons = dict(found.skipped)
    assert reasons["A"] == "cannot be installed: no network"
    assert "ended with status 3" in reasons["B"]
    assert reasons["D"] == "there is no no-such-program"
    assert "skipped: A: cannot be installed: no network" in found.table()

    outcome = a_run(tmp_path).ask(race)
    assert outcome.told == "1 of 1 met; skipped: A, B, D; not kept"
    assert outcome.is_good
    assert not (tmp_path / "results").exists(), "a row that was kept is worth more than a gap"


def test_a_question_that_cannot_be_asked_or_ends_early_does_not_end_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_engine(_: int) -> Answer:
        raise UnavailableError("no dockerd")

    run = a_run(tmp_path)
    without = run.ask(Survey("box", no_engine))
    assert (without.told, without.is_good) == ("skipped: no dockerd", True)
    ended = run.ask(race_beside(ours=side_that_ends))
    assert not ended.is_good, "our own side has to run"
    assert ended.told.startswith("ended early: EndedError: ")
    assert "Traceback" in capsys.readouterr().err
    kept = run.ask(race_beside(Peer("C", instant, 1)))
    assert (kept.told, kept.is_good) == ("1 of 1 met", True)
    assert read(tmp_path / "results" / "cost.json").comparisons[0].peer == "C"


def test_a_side_that_ends_in_a_turn_is_named() -> None:
    argv = [sys.executable, "-c", "print('ready', flush=True); input(); raise SystemExit(3)"]
    with pytest.raises(EndedError, match=r"raise SystemExit\(3\) ended with status 3"), command(argv) as turn:
        turn(1)


def test_a_check_keeps_nothing_and_says_what_is_worse(tmp_path: Path) -> None:
    found = answer()
    found.write(tmp_path / "results", "cost")
    before = (tmp_path / "results" / "cost.json").read_text()
    run = a_run(tmp_path, is_check=True)

    assert run.ask(Survey("cost", lambda _: found)).told == "1 of 1 met; no worse"
    slower = run.ask(Survey("cost", lambda _: answer(ours=2e-4)))
    assert not slower.is_good
    assert slower.told.startswith("0 of 1 met; missed: a <peer> & more (2, wanted ≥ 3); WORSE: 2 times as fast")
    assert not run.ask(Survey("new", lambda _: found)).is_good, "there is nothing to hold it against"
    assert (tmp_path / "results" / "cost.json").read_text() == before


def test_the_end_of_a_run_says_what_each_question_took_and_met() -> None:
    outcomes = [Outcome("submit", 29.6, verdict(answer())), Outcome("gateway-capacity", 4.2, "skipped: no npm")]
    assert summary(outcomes).splitlines() == [
        "submit              30 s  1 of 1 met",
        "gateway-capacity     4 s  skipped: no npm",
        "together            34 s",
    ]


def test_every_question_has_a_name_of_its_own_and_only_growth_to_a_million_is_asked_alone() -> None:
    assert set(BY_NAME) - set(IN_ONE_RUN) == {"growth", "turnover"}
    assert all(name == question.name for name, question in BY_NAME.items())
    kept = {path.stem for path in (ROOT / "benchmarks" / "results").glob("*.json")}
    assert kept <= set(BY_NAME)


def test_counts_of_the_ledger_are_held_as_closely_as_calls() -> None:
    def counted(transactions: float) -> Answer:
        limits = {"machine": "m", "submit_transactions": transactions, "api_submits_per_second": 1 / transactions}
        return Answer("What do the parts bear?", limits=limits)

    assert list(regressions(counted(2.0), counted(2.1))) == []
    assert list(regressions(counted(2.0), counted(3.0))) == ["3 submit transactions, at most 2.2 are kept"]


def test_limits_that_were_measured_are_those_that_ship(tmp_path: Path) -> None:
    limits = {"machine": "two CPUs", "api_submits_per_second": 123.456, "requests_per_minute": {}}
    assert a_run(tmp_path).ask(Survey("capacity", lambda _: Answer("Bear?", limits=limits))).told == "no target"
    shipped = json.loads((tmp_path / "limits.json").read_text())
    assert shipped == limits | {"api_submits_per_second": 123.0}


def test_only_a_loss_beyond_the_noise_is_a_regression() -> None:
    kept = answer()
    assert list(regressions(kept, answer(ours=1.3e-4))) == []
    (slower,) = regressions(kept, answer(ours=1.6e-4))
    assert "a <peer> & more" in slower
    assert list(regressions(kept, answer(calls=109))) == []
    (more,) = regressions(kept, answer(calls=120))
    assert more == "120 calls, at most 110 are kept"


def test_a_picture_is_legible_in_light_and_dark_and_says_in_words_what_it_shows() -> None:
    drawn = ElementTree.fromstring(chart(answer()))
    texts = [text.text for text in drawn.iter(f"{SVG}text")]

    assert "a <peer> & more" in texts
    assert "Pointsman" in texts
    assert "100 µs" in texts
    assert "400 µs" in texts
    assert drawn.findtext(f"{SVG}desc") == "4 (4 to 4) times as fast as a <peer> & more"
    assert "prefers-color-scheme: dark" in (drawn.findtext(f"{SVG}style") or "")


def test_figures_replace_what_stands_between_the_markers_and_nothing_else(tmp_path: Path) -> None:
    path = page_below(tmp_path)
    answer(target=5).write(tmp_path / "results", "cost")
    replace(answer(), question="First?").write(tmp_path / "results", "first")
    Answer("no comparison").write(tmp_path / "results", "other")

    publish(tmp_path / "results", tmp_path, order=["growth", "first"])

    text = path.read_text()
    assert text.startswith(f"top\n{BEGIN}\n\n**1 of 2 targets are met.** Measured on ")
    assert text.endswith(f"{END}\nafter\n")
    first, cost = (line for line in text.splitlines() if "](pictures/bench/" in line)
    assert first == "| [First?](pictures/bench/first.svg) | a <peer> & more | 4 (4–4) | ≥ 3 | 100 µs | 400 µs | 3 |"
    assert cost.startswith("| [What does it cost?](pictures/bench/cost.svg) |")
    assert "| a <peer> & more | 4 (4–4) | ≥ 5 **missed** |" in cost
    assert "old" not in text
    assert (tmp_path / "pictures" / "bench" / "cost.svg").exists()


def test_the_page_says_what_the_kept_results_say(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    (tmp_path / "performance.md").write_text(written(page, "none"))
    publish(ROOT / "benchmarks" / "results", tmp_path, order=[*BY_NAME])
    assert (tmp_path / "performance.md").read_text() == page, "run `make bench`"
    for picture in (tmp_path / "pictures" / "bench").iterdir():
        assert picture.read_text() == (ROOT / "docs" / "pictures" / "bench" / picture.name).read_text()


def test_all_sides_are_given_what_the_questions_say() -> None:
    assert len(page()["elements"]) == 50
    before, after, diff = edit()
    assert len(before) == len(after) == 3
    assert diff.count("\n@@ -") == 8
    assert sum(map(len, site().values())) == pytest.approx(1_000_000, rel=0.05)
    assert site() == site()


def test_an_environment_is_made_once_and_anew_when_it_was_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "CACHE", tmp_path)
    runs: list[list[str]] = []
    monkeypatch.setattr(environments, "_run", lambda argv: runs.append(list(argv)))

    home = environments.node_with({"zod": "4.6.7"})
    assert environments.node_with({"zod": "4.6.7"}) == home
    assert len(runs) == 1
    assert json.loads((home / "package.json").read_text())["dependencies"] == {"zod": "4.6.7"}
    (home / ".complete").unlink()
    (home / "half").touch()
    assert environments.node_with({"zod": "4.6.7"}) == home
    assert len(runs) == 2
    assert not (home / "half").exists()
    assert environments.node_with({"zod": "4.6.8"}) != home


def test_growth_is_drawn_as_a_small_picture_for_each_operation(tmp_path: Path) -> None:
    grown = ((1_000, Spread(1, 1, 1)), (100_000, Spread(0.9, 1, 1.1)), (1_000_000, Spread(1, 1.2, 2.5)))
    found = replace(
        answer(target=1 / 1.3), curves=(Curve("sub<mit>", grown, most=1.3), Curve("claim", grown, most=1.3))
    )

    assert read(found.write(tmp_path, "growth")) == found
    picture = ElementTree.fromstring(curves(found))
    panels = picture.findall(f"{SVG}g")
    assert ["".join(panel.find(f"{SVG}text").itertext()) for panel in panels] == ["sub<mit>: 1.2×", "claim: 1.2×"]
    sizes = [text.text for text in panels[0].findall(f"{SVG}text")][-3:]
    assert sizes == ["1 k", "100 k", "1 M"]
    heights = [float(circle.get("cy")) for circle in panels[0].findall(f"{SVG}circle")]
    assert heights[0] == heights[1] > heights[2] > 0, "further up is dearer"


def test_memory_is_told_in_mebibytes_and_smaller_is_better(tmp_path: Path) -> None:
    weighed = Comparison("peer", (2.0**20,) * 3, (3 * 2.0**20,) * 3, target=3, unit=Unit.BYTES)
    found = Answer("What does it weigh?", comparisons=(weighed,))

    assert "met: 3 (3 to 3) times as small as peer, wanted ≥ 3: 1 MiB, 3 MiB" in found.table()
    assert read(found.write(tmp_path, "weight")) == found
    assert "further left is smaller" in chart(found)
    assert "10 MiB" in chart(found)


def test_different_things_of_ours_are_drawn_apart_each_before_its_peer() -> None:
    pooled = Comparison("a cold box", (1.0, 1.0), (4.0, 4.0), ours_is="a pooled box")
    session = Comparison("bare calls", (2.0, 2.0), (1.0, 1.0), ours_is="a session")
    found = Answer("What does a box cost?", comparisons=(pooled, session))

    assert list(sides_of(found)) == ["a pooled box", "a cold box", "a session", "bare calls"]
    assert chart(found).count('class="ours" cx') == 2


def test_growth_has_one_row_in_the_summary_that_of_its_worst_operation(tmp_path: Path) -> None:
    grown = Curve("submit", ((1_000, Spread(1, 1, 1)), (1_000_000, Spread(1, 1, 1))), most=1.3)
    operations = (Comparison("submit", (1.0,), (1.0,), 1 / 1.3), Comparison("claim", (2.0,), (1.0,), 1 / 1.3))
    Answer("Growth", comparisons=operations, curves=(grown,)).write(tmp_path / "results", "growth")
    path = page_below(tmp_path)

    publish(tmp_path / "results", tmp_path)

    text = path.read_text()
    assert "| [Growth](pictures/bench/growth.svg) | the worst of 2: claim | 0.5 (0.5–0.5) | ≥ 1/1.3 **missed**" in text


@pytest.mark.slow
def test_a_turnover_lets_jobs_come_and_go_and_looks_at_every_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turnover, "JOBS", 240)
    monkeypatch.setattr(turnover, "KEPT_SECONDS", 0.5)
    found = turnover.measure(1)
    sizes = {row[0]: row[1:] for row in found.rows}
    assert set(sizes) == {"job", "attempt", "call", "cap", "notification", "event"}
    assert all(compared.ours_is in sizes for compared in found.comparisons)
    assert sizes["job"][-1] != "0", "they were swept meanwhile"
    assert sizes["event"][-1] == "0", "by the partition"
