"""Beside the real json-render: what it refuses is refused here, and what it accepts is refused only by a named rule."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from sites.errors import Finding, SpecError, errors_of
from sites.spec.edit import merge
from sites.spec.expressions import (
    complaint_about,
    complaint_about_condition,
    is_visible,
    resolve,
    split_repeat_condition,
)
from sites.spec.model import INDEX, parse_site
from sites.spec.outline import expand_outline
from sites.spec.state import MISSING, Scope
from sites.spec.stream import compile_stream
from sites.spec.validate import auto_fix, validate
from tests.acceptance.json_render_corpus import Corpus
from tests.unit.sites.spec.rulebook import BEFORE_UPSTREAM, EXTRA, UPSTREAM
from tests.unit.sites.spec.samples import demo_site, every_component
from tests.unit.sites.spec.test_outline import OUTLINE

STRICT_JSON = {"duplicate_key", "bad_number", "forbidden_key"}
"""Rules for all JSON here, which a stream's lines keep to as well."""
CORE, ZOD = "@json-render/core@0.21.4", "zod@4.3.6"
ORACLE = Path(__file__).with_name("json_render_oracle.mjs")
pytestmark = [pytest.mark.node, pytest.mark.timeout(300)]
Ask = Callable[[list[dict[str, Any]]], Iterator[tuple[dict[str, Any], dict[str, Any]]]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Ask the real package: one process answers a whole corpus."""
    home = tmp_path_factory.mktemp("json-render")
    (home / "package.json").write_text('{"private": true, "type": "module"}')
    install = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", CORE, ZOD]
    try:
        done = subprocess.run(install, cwd=home, capture_output=True, text=True, timeout=180)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm could not fetch {CORE} within 180 s")
    if done.returncode != 0:
        pytest.skip(f"npm could not fetch {CORE}: {done.stderr[-300:]}")
    oracle = home / ORACLE.name
    oracle.write_text(ORACLE.read_text())

    def ask_all(questions: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        lines = "".join(json.dumps(question) + "\n" for question in questions)
        answered = subprocess.run(
            ["node", str(oracle)], input=lines, capture_output=True, text=True, timeout=120, cwd=home
        )
        assert answered.returncode == 0, answered.stderr[-2000:]
        answers = [json.loads(line) for line in answered.stdout.splitlines()]
        assert len(answers) == len(questions)
        return zip(questions, answers, strict=True)

    return ask_all


def findings_of(spec: dict[str, Any]) -> list[Finding]:
    try:
        return validate(parse_site(spec))
    except SpecError as error:
        return list(error.findings)


def upstream_part(found: Iterable[Finding]) -> Counter[tuple[str, str | None]]:
    """What a site's findings say under upstream's codes, as upstream counts it: by code and element."""
    key = re.compile(rf"/pages/{INDEX}/elements/([^/]+)")
    told = [(finding.code, key.match(finding.path)) for finding in found if finding.code in UPSTREAM]
    return Counter((code, match[1].replace("~1", "/").replace("~0", "~") if match else None) for code, match in told)


def counted(issues: Iterable[dict[str, Any]]) -> Counter[tuple[str, str | None]]:
    keys = ((issue["code"], issue.get("elementKey")) for issue in issues)
    return Counter((code, key if key is None else str(key)) for code, key in keys)


def compiled(text: str) -> tuple[object, str]:
    """What a stream builds, and "built" or the code of the rule that refuses it."""
    try:
        return compile_stream(text), "built"
    except SpecError as error:
        return None, error.code


def as_upstream(scope: dict[str, Any]) -> Scope:
    return Scope(
        state=scope["stateModel"],
        item=scope.get("repeatItem", MISSING),
        index=scope.get("repeatIndex"),
        item_path=scope.get("repeatBasePath"),
    )


def test_verdicts_and_codes_are_upstreams_but_for_named_rules(ask: Ask) -> None:
    corpus = Corpus(seed=1)
    specs = [corpus.spec() for _ in range(150)] + [corpus.damaged_spec() for _ in range(900)]
    verdicts: Counter[str] = Counter()
    for question, answer in ask([{"ask": "validate", "spec": spec} for spec in specs]):
        found = findings_of(question["spec"])
        codes = {finding.code for finding in errors_of(found)}
        issues = answer.get("value", [])
        theirs = counted(issue for issue in issues if issue["severity"] == "error")
        if theirs or "threw" in answer:
            verdicts["refused by both"] += 1
            assert codes, f"upstream refuses it: {answer}"
        else:
            verdicts["refused by a named rule" if codes else "accepted by both"] += 1
            assert codes <= set(EXTRA), f"only named rules may refuse it: {codes}"
        if "threw" not in answer and not codes & BEFORE_UPSTREAM:
            assert upstream_part(errors_of(found)) == theirs
        if not codes and not theirs:
            assert upstream_part(found) == counted(issues)
    assert min(verdicts.values()) > 100, f"the corpus is lopsided: {verdicts}"
    assert len(verdicts) == 3


@pytest.mark.req("H-002")
def test_what_this_product_makes_is_valid_to_upstream(ask: Ask) -> None:
    made = [demo_site(), parse_site(every_component()), expand_outline(OUTLINE)]
    pages = [page for site in made for page in site.pages.values()]
    for question, answer in ask([{"ask": "validate", "spec": page} for page in pages]):
        assert answer["value"] == [], question["spec"]["root"]
    assert len(pages) >= 4


def test_lossless_fixes_are_upstreams(ask: Ask) -> None:
    corpus = Corpus(seed=2)
    specs = []
    while len(specs) < 300:
        spec = corpus.spec()
        for _ in range(corpus.pick(1, 2, 3)):
            corpus._misplaced(spec)
        if not any(set(element) & set(element["props"]) for element in spec["elements"].values()):
            specs.append(spec)
    for question, answer in ask([{"ask": "fix", "spec": spec} for spec in specs]):
        auto_fix({INDEX: question["spec"]})
        assert question["spec"] == answer["value"]["spec"]


def test_a_misplaced_field_never_replaces_one_in_place_as_upstreams_fix_lets_it(ask: Ask) -> None:
    spec = Corpus(seed=3).spec()
    spec["elements"]["t"] |= {"visible": True, "props": {"text": "x", "visible": False}}
    ((_, answer),) = ask([{"ask": "fix", "spec": spec}])
    assert answer["value"]["spec"]["elements"]["t"]["visible"] is False, "upstream loses the field in place"
    fixed = deepcopy(spec)
    auto_fix({INDEX: fixed})
    assert fixed == spec


def test_conditions_are_accepted_and_evaluated_as_upstream_does(ask: Ask) -> None:
    corpus = Corpus(seed=4)
    conditions = [corpus.condition() for _ in range(500)] + [corpus.damaged_condition() for _ in range(400)]
    accepted = []
    for question, answer in ask([{"ask": "accepts", "condition": condition} for condition in conditions]):
        assert (complaint_about_condition(question["condition"]) is None) == answer["value"], question["condition"]
        if answer["value"]:
            accepted.append(question["condition"])
    assert len(accepted) > 400
    questions = [
        {"ask": kind, "condition": item, "scope": corpus.scope()} for item in accepted for kind in ("visible", "split")
    ]
    for question, answer in ask(questions):
        scope = as_upstream(question["scope"])
        if question["ask"] == "visible":
            assert is_visible(question["condition"], scope) == answer["value"], question
            continue
        container, item = split_repeat_condition(question["condition"])
        assert [is_visible(container, Scope(state=scope.state)), is_visible(item, scope)] == answer["value"], question


def test_expressions_resolve_to_what_upstream_shows(ask: Ask) -> None:
    corpus = Corpus(seed=5)
    values = [corpus.expression() for _ in range(1500)] + [corpus.damaged_expression() for _ in range(60)]
    compared = 0
    for question, answer in ask([{"ask": "resolve", "value": value, "scope": corpus.scope()} for value in values]):
        if complaint := complaint_about(question["value"]):
            assert complaint.code in EXTRA, question
            continue
        compared += 1
        mine = resolve(question["value"], as_upstream(question["scope"]))
        assert mine is MISSING if "value" not in answer else mine == answer["value"], question
    assert compared >= 1500


def test_streams_build_what_upstream_builds_or_are_refused_by_a_named_rule(ask: Ask) -> None:
    corpus = Corpus(seed=6)
    outcomes: Counter[str] = Counter()
    for question, answer in ask([{"ask": "stream", "text": corpus.stream()} for _ in range(900)]):
        built, code = compiled(question["text"])
        outcomes[code] += 1
        if "threw" in answer:
            assert code in {"patch_failed", *STRICT_JSON}, question["text"]
        elif code not in STRICT_JSON:
            assert built == answer["value"], question["text"]
    assert outcomes["built"] > 400
    assert outcomes["patch_failed"] > 20


def test_a_stream_applied_to_a_copy_changes_the_copy_alone_where_upstream_changes_both(ask: Ask) -> None:
    lines = [
        {"op": "add", "path": "/a", "value": {"x": 1}},
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "replace", "path": "/b/x", "value": 2},
    ]
    text = "\n".join(json.dumps(line) for line in lines)
    ((_, answer),) = ask([{"ask": "stream", "text": text}])
    assert answer["value"] == {"a": {"x": 2}, "b": {"x": 2}}
    assert compile_stream(text) == {"a": {"x": 1}, "b": {"x": 2}}


def test_merges_give_what_upstream_gives(ask: Ask) -> None:
    corpus = Corpus(seed=7)
    pairs = [{"ask": "merge", "base": corpus.mapping(), "patch": corpus.mapping()} for _ in range(400)]
    for question, answer in ask(pairs):
        assert merge(question["base"], question["patch"]) == answer["value"]
