"""Rules over paths: three forms, nothing outside the project, nothing that belongs to the service."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.path_rules import check_path_rule, is_covered


@pytest.mark.parametrize(
    "rule", ["src/", "src/features/cart/", "package.json", "*.css", "*.test.ts", "*.module.css", "app/[slug]/"]
)
def test_a_directory_a_file_and_a_suffix_are_rules(rule: str) -> None:
    assert check_path_rule(rule) == rule


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "/",
        "/etc/passwd",
        "../up/",
        "src/../",
        "a//b",
        "*",
        "*.*",
        "src/*.ts",
        "**/x",
        "a b",
        "src\\x",
        ".",
        "./src/",
        "x\n",
        "x/\n",
    ],
)
def test_anything_else_is_no_rule(rule: str) -> None:
    with pytest.raises(ValueError, match="must be a directory"):
        check_path_rule(rule)


@pytest.mark.parametrize("rule", [".git/", ".git/hooks/", ".agent-context/", ".agent-result.json"])
def test_what_belongs_to_the_service_is_no_agent_s_to_write(rule: str) -> None:
    with pytest.raises(ValueError, match="belongs to the service"):
        check_path_rule(rule)


@pytest.mark.parametrize(
    ("path", "rules", "covered"),
    [
        ("src/a.ts", ["src/"], True),
        ("src2/a.ts", ["src/"], False),
        ("src", ["src/"], False),
        ("package.json", ["package.json"], True),
        ("sub/package.json", ["package.json"], False),
        ("src/deep/a.test.ts", ["*.test.ts"], True),
        ("artifacts/qa/a.test.ts", ["*.test.ts"], False),
        ("src/a.ts", ["tests/", "*.css"], False),
        ("src/a.ts", [], False),
    ],
)
def test_a_rule_covers_what_it_says(path: str, rules: list[str], covered: bool) -> None:
    assert is_covered(path, rules) is covered


@given(st.text(max_size=40))
def test_no_rule_leaves_the_project(text: str) -> None:
    try:
        rule = check_path_rule(text)
    except ValueError:
        return
    assert not rule.startswith("/")
    assert ".." not in rule.split("/")
    assert not is_covered(".git/config", [rule])
