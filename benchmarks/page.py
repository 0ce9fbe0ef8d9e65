"""docs/performance.md: what stands between its markers is made from the results that are kept."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.answer import OURS, Answer, Comparison, read, shown_ratio, shown_target
from benchmarks.chart import chart, described
from benchmarks.curves import curves


class Markers(NamedTuple):
    """Between which a part of the page is made."""

    begin: str
    end: str


SUMMARY = Markers("<!-- summary: `make bench` writes what follows -->", "<!-- end of summary -->")
FIGURES = Markers("<!-- figures: `make bench` writes what follows -->", "<!-- end of figures -->")
_SUMMARY_HEADS = "| | beside | times as fast or small | wanted | |\n|---|---|---:|---:|---|"
_HEADS = "| {} | times as {} (middle half) | wanted | {} | {} | pairs |\n|---|---:|---:|---:|---:|---:|"


def publish(results: Path, docs: Path, *, order: Sequence[str] = ()) -> None:
    """Draw every kept answer that compares, and write all of them into the page.

    Args:
        results: the directory where answers are kept.
        docs: the directory of the page.
        order: names of questions, as they shall stand there; those that it lacks come last.
    """
    compared = dict(_compared(results, order))
    pictures = docs / "pictures" / "bench"
    pictures.mkdir(parents=True, exist_ok=True)
    for name, answer in compared.items():
        (pictures / f"{name}.svg").write_text(curves(answer) if answer.curves else chart(answer))
    page = docs / "performance.md"
    text = written(page.read_text(), SUMMARY, _summary(compared.values()))
    page.write_text(written(text, FIGURES, "\n\n".join(_part(*item) for item in compared.items())))


def written(text: str, markers: Markers, part: str) -> str:
    """Return a page with another part between two markers."""
    before, _, rest = text.partition(markers.begin)
    _, _, after = rest.partition(markers.end)
    return f"{before}{markers.begin}\n\n{part}\n\n{markers.end}{after}"


def _compared(results: Path, order: Sequence[str]) -> Iterator[tuple[str, Answer]]:
    names = {path.stem for path in results.glob("*.json")}
    for name in [*(name for name in order if name in names), *sorted(names.difference(order))]:
        answer = read(results / f"{name}.json")
        if answer.comparisons:
            yield name, answer


def _summary(answers: Iterable[Answer]) -> str:
    """Return a row for each target; where operations are held to one, the worst of them stands for all."""
    told = [(answer, _told(answer)) for answer in answers]
    verdicts = [compared.is_met for _, some in told for compared in some]
    rows = [row for answer, some in told for row in _summary_rows(answer, some)]
    return "\n".join([f"**{sum(verdicts)} of {len(verdicts)} targets are met.**", "", _SUMMARY_HEADS, *rows])


def _told(answer: Answer) -> list[Comparison]:
    wanted = [compared for compared in answer.comparisons if compared.target is not None]
    return [min(wanted, key=lambda compared: compared.ratio.median)] if answer.curves else wanted


def _summary_rows(answer: Answer, told: Sequence[Comparison]) -> Iterator[str]:
    asked = f"[{answer.question}](#{_anchor(answer.question)})"
    for compared in told:
        verdict = "met" if compared.is_met else "**missed**"
        ratio, wanted = f"{compared.ratio.median:.3g}", shown_target(compared.target)
        yield f"| {asked} | {_beside(answer, compared)} | {ratio} | {wanted} | {verdict} |"
        asked = ""


def _beside(answer: Answer, compared: Comparison) -> str:
    if answer.curves:
        return f"the worst of {len(answer.comparisons)}: {compared.peer}"
    return compared.peer if compared.ours_is == OURS else f"{compared.ours_is}: {compared.peer}"


def _anchor(head: str) -> str:
    """Return the fragment by which a heading is found, as GitHub makes it."""
    kept = "".join(letter for letter in head.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _part(name: str, answer: Answer) -> str:
    """Return one question's part of the page."""
    lines = [f"### {answer.question}", "", _heads(answer), *_rows(answer), ""]
    lines += [f"![{answer.question}: {described(answer)}](pictures/bench/{name}.svg)", ""]
    calls = f" One operation makes {answer.calls:,} calls." if answer.calls else ""
    lines += [f"`make bench ONLY={name}`, {answer.at[:10]}, {answer.machine}, Python {answer.python}.{calls}"]
    return "\n".join(lines)


def _heads(answer: Answer) -> str:
    if not answer.curves:
        return _HEADS.format("beside", answer.unit.better, "ours", "theirs")
    (fewest, _), *_, (most, _) = answer.curves[0].points
    return _HEADS.format("operation", answer.unit.better, f"{most:,} jobs", f"{fewest:,} jobs")


def _rows(answer: Answer) -> Iterator[str]:
    for compared in answer.comparisons:
        cells = [compared.peer, shown_ratio(compared.ratio), _verdict(compared)]
        cells += [compared.unit.shown(statistics.median(side)) for side in (compared.ours, compared.theirs)]
        yield f"| {' | '.join([*cells, str(len(compared.ours))])} |"


def _verdict(compared: Comparison) -> str:
    if compared.target is None:
        return "for scale"
    return f"{shown_target(compared.target)}, {'met' if compared.is_met else '**missed**'}"
