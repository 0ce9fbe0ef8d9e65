"""The benchmarks' own machinery: fair turns, honest ratios, and a page that says what was measured."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import environments, routing
from benchmarks.answer import Answer, Comparison, Curve, Spread, Unit, read
from benchmarks.chart import chart, sides_of
from benchmarks.curves import curves
from benchmarks.guard import regressions
from benchmarks.inputs import edit, page, site
from benchmarks.page import BEGIN, END, publish, with_figures
from benchmarks.race import command, interleave, warm_up

ROOT = Path(__file__).parents[3]
SVG = "{http://www.w3.org/2000/svg}"


def answer(ours: float = 1e-4, theirs: float = 4e-4, *, target: float | None = 3, calls: int | None = 100) -> Answer:
    compared = Comparison("a <peer> & more", (ours, ours * 2, ours), (theirs, theirs * 2, theirs), target)
    return Answer("What does it cost?", comparisons=(compared,), calls=calls)


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


def test_a_side_that_cannot_start_ends_the_benchmark_with_its_name(capfd: pytest.CaptureFixture[str]) -> None:
    argv = [sys.executable, "-c", "raise SystemExit(3)"]
    with pytest.raises(SystemExit, match=r"raise SystemExit\(3\) ended with status 3"), command(argv):
        pass


def test_only_a_loss_beyond_the_noise_is_a_regression() -> None:
    kept = answer()
    assert list(regressions(kept, answer(ours=1.3e-4))) == []
    (slower,) = regressions(kept, answer(ours=1.6e-4))
    assert "a <peer> & more" in slower
    assert list(regressions(kept, answer(calls=109))) == []
    (more,) = regressions(kept, answer(calls=120))
    assert "120 calls" in more


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
    (tmp_path / "performance.md").write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    answer(target=5).write(tmp_path / "results", "cost")
    Answer("no comparison").write(tmp_path / "results", "other")

    publish(tmp_path / "results", tmp_path)

    text = (tmp_path / "performance.md").read_text()
    assert text.startswith(f"before\n{BEGIN}\n\n### What does it cost?")
    assert text.endswith(f"{END}\nafter\n")
    assert "| a <peer> & more | 4 (4 to 4) | ≥ 5, **missed** | 100 µs | 400 µs |" in text
    assert "old" not in text
    assert (tmp_path / "pictures" / "bench" / "cost.svg").exists()


def test_the_page_says_what_the_kept_results_say(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    (tmp_path / "performance.md").write_text(with_figures(page, "none"))
    publish(ROOT / "benchmarks" / "results", tmp_path)
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
