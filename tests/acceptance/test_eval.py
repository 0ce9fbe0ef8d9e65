"""`pointsman eval` over the shipped cases and their recorded replies."""

import html
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from gateway.fake_provider.library import library_path
from producers.evaluation.cases import Case, Kind, Round, read_cases
from producers.evaluation.review_cases import read_review_cases, shipped_reviews
from producers.evaluation.run import CaseResult, StepResult
from routing.yaml_data import load_yaml
from tests.acceptance.conftest import pointsman

LEAST_CASES = 60
"""Issue 20."""


def with_mistakes(folder: Path) -> Path:
    """Write a case whose reply does not do what it wants, and two without a reply."""
    shipped = load_yaml((library_path() / "bakery.yaml").read_text())
    right = next(case for case in shipped if case["id"] == "bakery-prices")
    then = {"gone": {"*": ["€6.10"]}, "loses": [".*"]}
    wrong = {**right, "id": "wrong", "request": f"{right['request']} Thank you.", "then": then}
    unknown = {**right, "id": "unknown", "request": "Call the walnut wreath Nut Ring.", "replies": []}
    kept = {**unknown, "id": "kept"}
    file = folder / "cases.yaml"
    file.write_text(yaml.safe_dump([wrong, unknown, kept], allow_unicode=True))
    return file


def marks_of(case: Case) -> Iterator[tuple[Any, ...]]:
    """Yield what kind of case it is: its site, and of each step the route with the language, the checks, the reply."""
    yield "site", case.site, case.profile
    for step in case.steps:
        yield case.kind, step.route
        yield case.lang, step.route, case.new_site
        yield from ((check, step.route) for check in step.then.model_fields_set)
        yield from ((field,) for reply in step.replies for field in reply.model_fields_set)
        if isinstance(step, Round):
            yield from ((option,) for option in step.options)


def few_of_each(cases: Iterable[Case]) -> list[Case]:
    """Return a few cases that have between them every mark of any."""
    every = list(cases)
    marks = {case.id: {*marks_of(case)} for case in every}
    chosen, left = [], set[tuple[Any, ...]]().union(*marks.values())
    while left:
        chosen.append(max(every, key=lambda case: len(marks[case.id] & left)))
        left -= marks[chosen[-1].id]
    return chosen


def documents() -> list[dict[str, Any]]:
    """Return the shipped cases as they are written."""
    return [case for path in sorted(library_path().glob("*.yaml")) for case in load_yaml(path.read_text())]


@pytest.mark.slow
@pytest.mark.parametrize(
    "choose", [few_of_each, pytest.param(list, marks=pytest.mark.long)], ids=["few_of_each", "all"]
)
def test_shipped_cases_come_out_right_at_the_first_try_and_a_wrong_one_is_named(
    tmp_path: Path, choose: Callable[[Iterable[Case]], list[Case]]
) -> None:
    every, runs, mistakes = read_cases(), tmp_path / "runs", with_mistakes(tmp_path)
    shipped = choose(every)
    names, cases = {case.id for case in shipped}, tmp_path / "shipped.yaml"
    cases.write_text(yaml.safe_dump([case for case in documents() if case["id"] in names], allow_unicode=True))
    arguments = ("eval", str(cases), str(mistakes), "--out", str(runs), "--jobs", "3", "--no-browser")
    assert pointsman(*arguments, "--only", "none")[1]["ran"] == 0
    (run,) = runs.iterdir()
    (run / "summary.json").unlink()  # as if it had been killed in the middle of its second result
    kept = CaseResult(id="kept", kind="price", lang="en", steps=(StepResult(findings=("as it was",)),))
    (run / "results.jsonl").write_text(f'{kept.model_dump_json()}\n{{"id": "torn')

    code, summary, said = pointsman(*arguments, "--resume")
    assert (code, summary["skipped"], summary["repaired"]) == (1, {}, []), said
    assert summary["wrong"].keys() == {"wrong", "unknown", "kept"}, summary["wrong"]
    assert summary["wrong"]["kept"] == ["as it was"]
    assert summary["wrong"]["wrong"] == ["index.html still shows '€6.10'"]
    assert "no reply is recorded for a call with edit_site" in summary["wrong"]["unknown"]
    assert summary["first_try"] == len(shipped)
    assert len(every) >= LEAST_CASES
    assert {case.kind for case in shipped} == set(get_args(Kind))
    assert {case.lang for case in shipped if case.new_site} >= {"de", "en", "fr"}
    assert [*runs.iterdir()] == [run]
    assert all(case.id in (run / "report.html").read_text() for case in shipped)
    results = [CaseResult.model_validate_json(line) for line in (run / "results.jsonl").read_text().splitlines()]
    assert len({result.id for result in results}) == len(results) == summary["ran"]


@pytest.mark.slow
def test_reviewers_are_measured_on_wrong_and_right_fixes_and_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    runs, mine = tmp_path / "runs", tmp_path / "mine.yaml"
    [border] = [case for case in read_review_cases() if case.id == "page-border"]
    replies = {side: border.replies[side] for side in ("wrong", "right")}
    blind = border.model_dump(mode="json") | {"id": "blind", "summary": "Pages."}
    swapped = {"wrong": dict(replies["right"]), "right": dict(replies["wrong"])}
    dear = blind | {"id": "dear", "ticket": {"title": "Pages", "body": "Ten rows fill one page. " * 500}}
    mine.write_text(yaml.safe_dump([dear, blind | {"replies": swapped, "files": {"README.md": "A shop."}}]))
    arguments = ("eval", str(mine), str(shipped_reviews()), "--set", "reviews", "--out", str(runs))
    code, less, said = pointsman(*arguments, "--jobs", "1", "--budget", str(budget := Decimal("0.03")))
    assert 0 < Decimal(less["all"]["cost_usd"]) <= budget, said
    assert "the budget is spent" in less["skipped"].values()
    assert less["skipped"]["dear/wrong/code-review"] == "the budget cut it off"

    (run,) = runs.iterdir()
    (run / "summary.json").unlink()  # as if it had been killed
    code, summary, said = pointsman(*arguments, "--jobs", "3", "--resume")
    assert [*runs.iterdir()] == [run]
    assert 0 < less["asked"] < summary["asked"]
    assert (code, summary["wrong_fixes"], summary["wrong_fixes_found"]) == (1, 5, 4), said
    assert summary["wrong"].keys() == {"blind/wrong/code-review", "blind/right/code-review"}, summary["wrong"]
    reviewer = summary["by_agent"]["code-review"]
    assert (reviewer["found"], reviewer["recall"], reviewer["false_alarms"]) == (4, 0.8, 1)
    assert summary["by_agent"]["security"]["calls"] == 2
    assert Decimal(summary["all"]["cost_usd"]) > Decimal(less["all"]["cost_usd"])
    assert set(summary["skipped"].values()) == {"no reply is recorded", "qa needs boxes"}

    page = (run / "report.html").read_text()
    assert "4 of 5 wrong fixes were found by somebody" in page
    assert '<b class="WRONG">WRONG</b> code-review on the wrong fix: ' in page
    assert border.fault in html.unescape(page)


def visited_cases() -> list[dict[str, Any]]:
    """Return the shipped cases whose result is visited."""
    return [case for case in documents() if "visits" in case.get("then", {})]


def with_dead_script(folder: Path, visited: list[dict[str, Any]]) -> Path:
    """Write these cases, and one whose script fails, restyles the page and hides a text."""
    patch = """index.html
<<<<<<< SEARCH
  <script src="js/site.js"></script>
=======
  <style>h2 { color: #ccc }</style>
  <script>localStorage.seen = 1; openMenu()</script>
  <script src="js/site.js"></script>
>>>>>>> REPLACE
"""
    dead = next(case for case in visited_cases() if case["id"] == "salon-badge") | {
        "id": "dead",
        "request": "Put a small menu script on the home page.",
        "then": {"only": ["index.html body"], "looks": [], "visits": [[{"open": "index.html"}, {"sees": "role=menu"}]]},
        "replies": [{"patch_files": {"patch": patch, "summary": "A menu."}}],
    }
    file = folder / "cases.yaml"
    file.write_text(yaml.safe_dump([*visited, dead], allow_unicode=True))
    return file


AS_SHORT = ("bakery-newsletter", "salon-portraits-lift")
"""A visit of each tier: a form in a built page, and a style in one that was written; what changes a script that all
pages load has every page looked at."""


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(600)
@pytest.mark.parametrize("only", [AS_SHORT, pytest.param((), marks=pytest.mark.long)], ids=["two", "all"])
def test_a_browser_does_what_visitors_do_and_sees_what_a_dead_script_and_a_faint_heading_are(
    tmp_path: Path, only: tuple[str, ...]
) -> None:
    visited = [case for case in visited_cases() if case["id"] in only or not only]
    cases = with_dead_script(tmp_path, visited)
    code, summary, said = pointsman("eval", str(cases), "--out", str(tmp_path / "runs"), "--pictures")
    assert code == 1, said
    assert summary["browser"]
    found = summary["wrong"].pop("dead")
    assert summary["wrong"] == {}
    for part in (
        "script: openMenu is not defined",
        "axe: color-contrast",
        "body looks different",
        'a visitor\'s step 2, {"sees"',
    ):
        assert any(part in finding for finding in found), found
    (run,) = (tmp_path / "runs").iterdir()
    assert {path.name for path in run.glob("dead-1-*.png")} == {"dead-1-before.png", "dead-1-after.png"}
