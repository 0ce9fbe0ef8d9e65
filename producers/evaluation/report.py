"""A run of cases as it is kept: a line for each result, a summary beside the last one's, and a page."""

from __future__ import annotations

import json
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from statistics import mean, median
from typing import Any, Generic, TypeVar

from jinja2 import Environment, FileSystemLoader

from producers.evaluation.browser import Browser
from producers.evaluation.cases import Case, read_cases
from producers.evaluation.review_cases import Verdict
from producers.evaluation.run import CaseResult, Plan, StepResult, installed_for
from producers.servers import state_home
from routing.policy.platform import load_policy
from routing.policy.prices import decimal_usd

ResultT = TypeVar("ResultT", CaseResult, Verdict)
SITES = "sites"
"""The set of cases whose summaries name none."""
SETTINGS, RESULTS, SUMMARY, PAGE = "settings.json", "results.jsonl", "summary.json", "report.html"


@dataclass(frozen=True)
class Report:
    """What came of a run."""

    summary: Mapping[str, Any]

    @property
    def is_good(self) -> bool:
        """Whether every case that ran came out right, known faults apart."""
        return bool(self.summary["failed"] == 0)


def evaluate_cases(
    plan: Plan,
    *,
    only: str,
    kept: Path | None,
    resume: bool,
    browser: bool,
    pictures: bool,
    environment: Mapping[str, str],
    tell: Callable[[str], None],
) -> Report:
    """Run cases on an installation of their own, keep the results, and tell of them.

    `only` is a glob of ids. Runs are kept in `kept`, by default the state directory; `resume` continues the last one if
    it did not end. A `browser` also looks at the results.

    Raises:
        CaseError, PolicyError, InstallationError: the caller's fault.
    """
    cases = [case for case in read_cases(plan.cases) if fnmatchcase(case.id, only)]
    by_id = {case.id: case for case in cases}
    settings = {**settings_of(plan), "browser": browser, "judge": plan.judge}
    run = KeptRun(CaseResult, kept or state_home(environment) / "eval", settings, resume=resume, tell=tell)
    if left := [case for case in cases if case.id not in run.results]:
        with (
            tempfile.TemporaryDirectory(prefix="pointsman-eval-") as home,
            installed_for(plan, home=Path(home), environment=environment) as runner,
            Browser(takes_pictures=pictures).running() if browser else nullcontext() as opened,
        ):
            runner.browser, runner.pictures = opened, run.directory if pictures else None
            runner.run(left, lambda result: run.keep(result, _line(by_id[result.id], result)))
    results = [run.results[case.id] for case in cases]
    known = frozenset(case.id for case in cases if case.known_fault)
    summary = summarise(results, settings=settings, known=known)
    return run.end(summary, page_of(cases, results, summary, run.before), _table(summary, run.before))


def settings_of(plan: Plan) -> dict[str, Any]:
    """Return what the figures of a run depend on."""
    return {
        "provider": plan.account.name if plan.account else "fake",
        "model": plan.model,
        "policy": load_policy(plan.policy).version,
    }


class KeptRun(Generic[ResultT]):
    """A run in its directory: the results by id, and the summary of the last run `before` of the same set.

    With `resume` it is the last one with the same settings, if that did not end; otherwise a new one.
    """

    def __init__(
        self,
        kind: type[ResultT],
        runs: Path,
        settings: Mapping[str, Any],
        *,
        resume: bool,
        tell: Callable[[str], None],
    ) -> None:
        self.directory = _directory(runs, json.dumps(settings), resume=resume)
        self.before = last_summary(runs, but=self.directory, chosen=settings.get("set", SITES))
        self.results: dict[str, ResultT] = {
            result.id: result for result in _read_results(self.directory / RESULTS, kind)
        }
        self._tell = tell
        self._writing = threading.Lock()

    def keep(self, result: ResultT, line: str) -> None:
        """Store a result and print its line, if it has one; `resume` runs a skipped one again."""
        with self._writing:
            self.results[result.id] = result
            if not result.skipped:
                with (self.directory / RESULTS).open("a", encoding="utf-8") as lines:
                    lines.write(result.model_dump_json() + "\n")
            if line:
                self._tell(line)

    def end(self, summary: Mapping[str, Any], page: str, table: Iterable[str]) -> Report:
        """Store the summary and the page, and print where they are."""
        (self.directory / PAGE).write_text(page, encoding="utf-8")
        (self.directory / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
        for line in (*table, str(self.directory / PAGE)):
            self._tell(line)
        return Report(summary)


def _directory(runs: Path, settings: str, *, resume: bool) -> Path:
    for path in sorted(runs.glob("*"), reverse=True) if resume else ():
        if not (path / SUMMARY).exists() and (path / SETTINGS).exists() and (path / SETTINGS).read_text() == settings:
            return path
    directory = runs / datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")
    directory.mkdir(parents=True)
    (directory / SETTINGS).write_text(settings)
    return directory


def _read_results(path: Path, kind: type[ResultT]) -> Iterable[ResultT]:
    """Return the results that were kept; a line that was torn is removed, or the next one would continue it."""
    if not path.exists():
        return []
    whole, end, _ = path.read_bytes().rpartition(b"\n")
    path.write_bytes(whole + end)
    return [kind.model_validate_json(line) for line in whole.splitlines()]


def last_summary(runs: Path, *, but: Path, chosen: str = SITES) -> Mapping[str, Any]:
    """Return the summary of the last run of a set that ended and is not `but`; empty if there is none."""
    for path in sorted(runs.glob(f"*/{SUMMARY}"), reverse=True):
        summary: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if path.parent != but and summary.get("set", SITES) == chosen:
            return summary
    return {}


def summarise(
    results: Sequence[CaseResult], *, settings: Mapping[str, Any], known: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return the figures of a run, in all, by route, by kind and by model; money in USD, times in seconds.

    A case in `known` is kept from coming out right by a known fault of the product.
    """
    ran = [result for result in results if not result.skipped]
    steps = [step for result in ran for step in result.steps]
    return {
        **settings,
        "ran": len(ran),
        "skipped": {result.id: result.skipped for result in results if result.skipped},
        "passed": sum(result.is_passed for result in ran),
        "first_try": sum(result.is_first_try for result in ran),
        "failed": sum(not result.is_passed and result.id not in known for result in ran),
        "known_faults": sorted(result.id for result in ran if not result.is_passed and result.id in known),
        "cost_usd": decimal_usd(sum(step.cost_nanousd for result in results for step in result.steps)),
        "by_route": _by((step.wanted, step) for step in steps),
        "by_model": _by((model, step) for step in steps for model in step.models),
        "by_prompt": _by((prompt, step) for step in steps for prompt in step.prompts),
        "by_kind": _by((result.kind, step) for result in ran for step in result.steps),
        "wrong": {
            result.id: [finding for step in result.steps for finding in step.findings]
            for result in ran
            if not result.is_passed
        },
        "right": sorted(result.id for result in ran if result.is_passed),
        "repaired": sorted(result.id for result in ran if result.is_passed and not result.is_first_try),
    }


def _by(named: Iterable[tuple[str, StepResult]]) -> dict[str, dict[str, Any]]:
    groups: defaultdict[str, list[StepResult]] = defaultdict(list)
    for name, step in named:
        groups[name].append(step)
    return {name: _figures(groups[name]) for name in sorted(groups)}


def _figures(steps: Sequence[StepResult]) -> dict[str, Any]:
    return {
        "requests": len(steps),
        "passed": sum(not step.findings for step in steps),
        "first_try": sum(not step.findings and not step.is_repaired for step in steps),
        "repaired": sum(step.is_repaired for step in steps),
        "refused": sum(step.is_refused for step in steps),
        "calls": sum(step.calls for step in steps),
        "cost_usd": decimal_usd(sum(step.cost_nanousd for step in steps)),
        "judged": round(mean(judged), 1) if (judged := [s.judgement.lowest for s in steps if s.judgement]) else None,
        "median_seconds": round(median([step.seconds for step in steps]), 2),
    }


def _mark(result: CaseResult) -> str:
    return "-" if result.skipped else "ok" if result.is_first_try else "repaired" if result.is_passed else "WRONG"


def _line(case: Case, result: CaseResult) -> str:
    why = [result.skipped, *(finding for step in result.steps for finding in step.findings)]
    known = [f"known: {case.known_fault}"] if case.known_fault and not result.is_passed else []
    return f"{_mark(result):<9} {result.id:<36} {'; '.join(filter(None, [*known, *why]))}".rstrip()


_COLUMNS = ("requests", "passed", "first_try", "repaired", "refused", "calls", "judged", "cost_usd", "median_seconds")


def rows_of(
    summary: Mapping[str, Any],
    before: Mapping[str, Any],
    *,
    groups: Sequence[str] = ("by_route", "by_model"),
    columns: Sequence[str] = _COLUMNS,
) -> list[tuple[str, ...]]:
    """Return the figures of some groups below their names; one that changed since the last run shows both."""
    rows: list[tuple[str, ...]] = [("", *(name.replace("_", " ") for name in columns))]
    for group in groups:
        for name, figures in summary[group].items():
            last = before.get(group, {}).get(name, {})
            rows.append((name, *(_beside(figures[column], last.get(column)) for column in columns)))
    return rows


def _table(summary: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    rows = rows_of(summary, before)
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return ["", *lines, "", _verdict(summary, before)]


def _verdict(summary: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    now = f"{summary['passed']} of {summary['ran']} cases came out right, {summary['first_try']} at the first try"
    last = f"; last run: {before['passed']} of {before['ran']}, {before['first_try']}" if before else ""
    return f"{now}, for ${summary['cost_usd']}{last}{_moves(summary, before)}"


def _moves(summary: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """Return which cases came out otherwise than in the last run, in which they may not have run."""
    if not before:
        return ""
    wrong, was = set(summary["wrong"]), set(before["wrong"])
    moves = {"newly wrong": wrong - was, "right again": was & set(summary["right"])}
    return "".join(f"; {what}: {', '.join(sorted(names))}" for what, names in moves.items() if names)


def _beside(now: Any, last: Any) -> str:
    now = "" if now is None else now
    return str(now) if last is None or last == now else f"{now} ({last})"


def page_of(
    cases: Sequence[Case], results: Sequence[CaseResult], summary: Mapping[str, Any], before: Mapping[str, Any]
) -> str:
    """Return the report as a page without scripts; what models and owners wrote is escaped."""
    shown = [(case, result, _mark(result)) for case, result in zip(cases, results, strict=True)]
    return render_page(PAGE, verdict=_verdict(summary, before), rows=rows_of(summary, before), cases=shown)


def render_page(template: str, *, verdict: str, rows: Sequence[Sequence[str]], cases: Sequence[Any]) -> str:
    """Return a report: a sentence, a table whose first row is its head, and what the template says of each case."""
    places = FileSystemLoader(str(resources.files("producers.evaluation")))
    templates = Environment(loader=places, autoescape=True, trim_blocks=True)
    templates.filters["usd"] = decimal_usd
    return templates.get_template(template).render(verdict=verdict, rows=rows, cases=cases)
