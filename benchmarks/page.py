"""docs/performance.md: the table between its markers is made from the results that are kept."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.answer import OURS, Answer, Comparison, read, shown_target
from benchmarks.chart import chart
from benchmarks.curves import curves

BEGIN = "<!-- `make bench` writes what follows -->"
END = "<!-- end of what `make bench` writes -->"
_HEADS = "| | beside | times as fast or small | wanted | ours | theirs | pairs |\n|---|---|---:|---:|---:|---:|---:|"


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
    page.write_text(written(page.read_text(), _table(compared)))


def written(text: str, part: str) -> str:
    """Return the page with another part between its markers."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{part}\n\n{END}{after}"


def _compared(results: Path, order: Sequence[str]) -> Iterator[tuple[str, Answer]]:
    names = {path.stem for path in results.glob("*.json")}
    for name in [*(name for name in order if name in names), *sorted(names.difference(order))]:
        answer = read(results / f"{name}.json")
        if answer.comparisons:
            yield name, answer


def _table(answers: Mapping[str, Answer]) -> str:
    """Return a row for each peer; where operations are held to one target, the worst of them stands for all."""
    verdicts = [peer.is_met for answer in answers.values() for peer in _shown(answer) if peer.target is not None]
    rows = [row for name, answer in answers.items() for row in _rows(name, answer)]
    places: dict[str, list[str]] = {}
    for name, answer in answers.items():
        places.setdefault(f"{answer.at[:10]}, {answer.machine}, Python {answer.python}", []).append(f"`{name}`")
    (most, _), *others = sorted(places.items(), key=lambda item: -len(item[1])) or [("", [])]
    measured = "; ".join([most, *(f"{', '.join(names)} on {place}" for place, names in others)])
    head = f"**{sum(verdicts)} of {len(verdicts)} targets are met.** Measured on {measured}."
    return "\n".join([head, "", _HEADS, *rows])


def _shown(answer: Answer) -> Sequence[Comparison]:
    if not answer.curves:
        return answer.comparisons
    return [min(answer.comparisons, key=lambda compared: compared.ratio.median)]


def _rows(name: str, answer: Answer) -> Iterator[str]:
    question = f"[{answer.question}](pictures/bench/{name}.svg)"
    for compared in _shown(answer):
        ratio = f"{compared.ratio.median:.3g} ({compared.ratio.low:.3g}–{compared.ratio.high:.3g})"
        sides = [compared.unit.shown(statistics.median(side)) for side in (compared.ours, compared.theirs)]
        cells = [question, _beside(answer, compared), ratio, _verdict(compared), *sides, str(len(compared.ours))]
        yield f"| {' | '.join(cells)} |"
        question = ""


def _beside(answer: Answer, compared: Comparison) -> str:
    if answer.curves:
        return f"the worst of {len(answer.comparisons)}: {compared.peer}"
    return compared.peer if compared.ours_is == OURS else f"{compared.ours_is}: {compared.peer}"


def _verdict(compared: Comparison) -> str:
    if compared.target is None:
        return ""
    return f"{shown_target(compared.target)}{'' if compared.is_met else ' **missed**'}"
