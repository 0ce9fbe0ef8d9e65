"""Migrations only add: read from the scripts themselves, since processes of the version before run beside them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

from ledger.store import SCRIPTS, Fit, fit_of, wanted_revision

BASELINE = "0101"
"""The first ledger of an era."""
ADDING = frozenset({"create_table", "add_column", "create_index", "drop_index", "f", "get_context"})
"""Operations of Alembic that take nothing away from a process that knows only the schema before."""
TUNING = re.compile(r"ALTER TABLE \w+ (?:ALTER \w+ )?SET \((?:\w+ = [-\d.]+(?:, |\)$))+")
"""How full a page gets, when a table is vacuumed, what the planner assumes: nothing that a statement could tell."""


def operations(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "op":
            yield node


def name_of(call: ast.Call) -> str:
    assert isinstance(call.func, ast.Attribute)
    return call.func.attr


def option(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def is_text(node: ast.AST) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)


def only_adds(call: ast.Call, texts: dict[str, ast.expr]) -> bool:
    """Whether a statement tunes a table or makes a new function.

    A function that replaced another would not be what the version before calls.
    """
    text = texts.get(ast.unparse(call.args[0]))
    if name_of(call) != "execute" or not isinstance(text, ast.Constant):
        return False
    statement = str(text.value)
    return bool(re.match(r"\s*CREATE FUNCTION \w+_\d+\(", statement) or TUNING.fullmatch(statement))


def breaches(script: str) -> list[str]:
    """Name what a script does that a process of the version before could not live with."""
    tree = ast.parse(script)
    calls = list(operations(tree))
    made = {ast.unparse(call.args[0]) for call in calls if name_of(call) == "create_table"}
    texts = {ast.unparse(node.targets[0]): node.value for node in ast.walk(tree) if is_text(node)}
    found = [
        f"op.{name_of(call)} is no operation that only adds"
        for call in calls
        if name_of(call) not in ADDING and not only_adds(call, texts)
    ]
    for call in calls:
        if name_of(call) == "add_column":
            column = call.args[1]
            assert isinstance(column, ast.Call)
            if not is_true(option(column, "nullable")) and option(column, "server_default") is None:
                found.append(f"{ast.unparse(column.args[0])} must be nullable or have a server_default")
        is_unique = name_of(call) == "create_index" and is_true(option(call, "unique"))
        if is_unique and ast.unparse(call.args[1]) not in made:
            found.append(f"{ast.unparse(call.args[0])} may refuse what the version before writes")
    return found


def scripts() -> list[Path]:
    return sorted((SCRIPTS / "versions").glob("[0-9]*_*.py"))


def test_migrations_after_the_first_only_add() -> None:
    first, *others = scripts()
    assert first.name.startswith(BASELINE)
    assert {path.name: breaches(path.read_text()) for path in others} == {path.name: [] for path in others}


@pytest.mark.parametrize(
    "line",
    [
        "op.drop_column('job', 'prompt')",
        "op.drop_table('job')",
        "op.rename_table('job', 'work')",
        "op.alter_column('job', 'prompt', nullable=False)",
        "op.execute('UPDATE job SET prompt = NULL')",
        "X = 'ALTER TABLE job SET (fillfactor = 80), DROP COLUMN (prompt)'; op.execute(X)",
        "op.add_column('job', sa.Column('x', sa.String(), nullable=False))",
        "op.add_column('job', sa.Column('x', sa.String()))",
        "op.create_index('x', 'job', ['tenant'], unique=True)",
        "op.create_unique_constraint('x', 'job', ['tenant'])",
        "op.drop_constraint('uq_job_key', 'job')",
    ],
)
def test_what_would_break_the_version_before_is_found(line: str) -> None:
    assert len(breaches(f"def upgrade():\n    {line}\n")) == 1


def test_revisions_are_numbered_in_one_line_within_their_era() -> None:
    before = None
    for number, path in enumerate(scripts(), int(BASELINE)):
        revision, script = f"{number:04}", path.read_text()
        assert path.name.startswith(f"{revision}_")
        assert f'revision = "{revision}"' in script
        assert f"down_revision = {before}" in script
        before = f'"{revision}"'
    assert f'"{wanted_revision()}"' == before


@pytest.mark.parametrize(
    ("found", "wanted", "fit"),
    [
        ("0102", "0102", Fit.CURRENT),
        (None, "0102", Fit.OLDER),
        ("0101", "0102", Fit.OLDER),
        ("0103", "0102", Fit.NEWER),
        ("0199", "0102", Fit.NEWER),
        ("0200", "0102", Fit.FOREIGN),
        ("0027", "0102", Fit.FOREIGN),
    ],
)
def test_how_a_ledger_stands_to_a_version(found: str | None, wanted: str, fit: Fit) -> None:
    assert fit_of(found, wanted) is fit
