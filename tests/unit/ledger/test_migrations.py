"""Migrations only add: read from the scripts themselves, since processes of the version before run beside them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

from ledger.store import SCRIPTS, Fit, fit_of, wanted_revision

BEFORE_RELEASE = ("0001", "0010")
"""The first ledger, and the names that were changed before anybody ran a release."""
EXCHANGED = "0021"
"""Makes the table of events the first partition of one with its name; `test_ledger_upgrade` writes to it meanwhile."""
ADDING = frozenset({"create_table", "add_column", "create_index", "drop_index", "drop_constraint", "f", "get_context"})
"""Operations of Alembic that take nothing away from a process that knows only the schema before."""
NARROWER = frozenset({"uq_job_key", "uq_job_next"})
"""Unique indexes on fewer rows than the ones they take the place of: they refuse nothing that those would not."""

OF_JOBS = {f"{name}_fkey" for name in ("job_tenant", "job_site_id", "attempt_job_id", "call_job_id", "call_attempt_id")}
OTHERS = {"job_tenant_idempotency_key_key", "attempt_token_hash_key", "event_pkey", "notification_job_id_fkey"}
LOOSER = OF_JOBS | OTHERS
"""Constraints that no statement of an earlier version names, and whose rule an index or what writes the row keeps."""
_SETTINGS = r"(?:(?:fillfactor|autovacuum_\w+|n_distinct) = [-\d.]+(?:, |\)$))+"
TUNING = re.compile(rf"ALTER TABLE \w+ (?:ALTER \w+ )?SET \({_SETTINGS}")
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


def named(node: ast.expr, tree: ast.AST) -> set[object]:
    """Return the names that an argument stands for: itself, or those that the loop around it goes through."""
    loops = (each for each in ast.walk(tree) if isinstance(each, ast.For) and node in ast.walk(each))
    around = next((each.iter for each in loops if ast.unparse(each.target) == ast.unparse(node)), node)
    values = around.elts if isinstance(around, ast.Tuple) else [around]
    return {value.value if isinstance(value, ast.Constant) else ast.unparse(value) for value in values}


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
        if name_of(call) == "drop_constraint" and not named(call.args[0], tree) <= LOOSER:
            found.append("op.drop_constraint may take away what the version before relies on")
        is_unique = name_of(call) == "create_index" and is_true(option(call, "unique"))
        if is_unique and isinstance(call.args[0], ast.Constant) and call.args[0].value in NARROWER:
            continue
        if is_unique and ast.unparse(call.args[1]) not in made:
            found.append(f"{ast.unparse(call.args[0])} may refuse what the version before writes")
    return found


def scripts() -> list[Path]:
    found = sorted((SCRIPTS / "versions").glob("[0-9]*_*.py"))
    return [path for path in found if not path.name.startswith((*BEFORE_RELEASE, EXCHANGED))]


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.stem)
def test_a_migration_only_adds(path: Path) -> None:
    assert breaches(path.read_text()) == []


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
    names = sorted(path.stem for path in (SCRIPTS / "versions").glob("[0-9]*_*.py"))
    for number, stem in enumerate(names, 1):
        script = (SCRIPTS / "versions" / f"{stem}.py").read_text()
        assert stem.startswith(f"{number:04}_")
        assert f'revision = "{number:04}"' in script
        before = f'"{number - 1:04}"' if number > 1 else "None"
        assert f"down_revision = {before}" in script
    assert wanted_revision() == f"{len(names):04}"


@pytest.mark.parametrize(
    ("found", "wanted", "fit"),
    [
        ("0002", "0002", Fit.CURRENT),
        (None, "0002", Fit.OLDER),
        ("0001", "0002", Fit.OLDER),
        ("0003", "0002", Fit.NEWER),
        ("0099", "0002", Fit.NEWER),
        ("0100", "0002", Fit.FOREIGN),
        ("0007", "0101", Fit.OLDER),
    ],
)
def test_how_a_ledger_stands_to_a_version(found: str | None, wanted: str, fit: Fit) -> None:
    assert fit_of(found, wanted) is fit
