"""docs/performance.md: the tables and pictures between its markers are made from the results that are kept."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks.answer import Answer, Comparison, read, shown_ratio, shown_target
from benchmarks.chart import chart, described
from benchmarks.curves import curves

BEGIN, END = "<!-- figures: `make bench` writes what follows -->", "<!-- end of figures -->"
_HEADS = "| beside | times as {} (middle half) | wanted | ours | theirs |\n|---|---:|---:|---:|---:|"


def publish(results: Path, docs: Path) -> None:
    """Draw every kept answer that compares, and write all of them into the page."""
    answers = {path.stem: read(path) for path in sorted(results.glob("*.json"))}
    compared = {name: answer for name, answer in answers.items() if answer.comparisons}
    pictures = docs / "pictures" / "bench"
    pictures.mkdir(parents=True, exist_ok=True)
    for name, answer in compared.items():
        (pictures / f"{name}.svg").write_text(curves(answer) if answer.curves else chart(answer))
    page = docs / "performance.md"
    page.write_text(with_figures(page.read_text(), "\n\n".join(_part(*item) for item in compared.items())))


def with_figures(text: str, figures: str) -> str:
    """Return a page with other figures between its markers."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{figures}\n\n{END}{after}"


def _part(name: str, answer: Answer) -> str:
    """Return one question's part of the page."""
    lines = [f"### {answer.question}", "", _HEADS.format(answer.unit.better), *_rows(answer), ""]
    lines += [f"![{answer.question}: {described(answer)}](pictures/bench/{name}.svg)", ""]
    calls = f" One operation makes {answer.calls:,} calls." if answer.calls else ""
    lines += [f"`make bench ONLY={name}`, {answer.at[:10]}, {answer.machine}, Python {answer.python}.{calls}"]
    return "\n".join(lines)


def _rows(answer: Answer) -> Iterator[str]:
    for compared in answer.comparisons:
        cells = [compared.peer, shown_ratio(compared.ratio), _verdict(compared)]
        cells += [compared.unit.shown(statistics.median(side)) for side in (compared.ours, compared.theirs)]
        yield f"| {' | '.join(cells)} |"


def _verdict(compared: Comparison) -> str:
    if compared.target is None:
        return "for scale"
    return f"{shown_target(compared.target)}, {'met' if compared.is_met else '**missed**'}"
