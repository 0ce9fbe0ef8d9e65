"""How the operations of a migration are done beside processes that work on the same tables.

Scripts stay as Alembic writes them. An index on a table that was there before is built and dropped without keeping
writers out, outside of any transaction; so a migration may end in the middle, and every operation can be done again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from alembic.operations import Operations, ops
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text
from sqlalchemy.schema import Column, Table

LOCK_TIMEOUT_MS = 2_000
"""How long a change of a table stands in line for it: others wait behind it."""
_NEW_TABLES = "pointsman_new_tables"


def _new_tables(context: MigrationContext) -> set[str]:
    """Return the tables that this migration has made: nobody works on them yet."""
    made: set[str] = context.opts.setdefault(_NEW_TABLES, set())
    return made


@Operations.implementation_for(ops.CreateTableOp, replace=True)
def create_table(operations: Operations, operation: ops.CreateTableOp) -> Table:
    """Make a table, unless an earlier try did."""
    table = operation.to_table(operations.migration_context)
    operations.impl.create_table(table, if_not_exists=True)  # type: ignore[call-arg]
    _new_tables(operations.migration_context).add(table.name)
    return table


@Operations.implementation_for(ops.AddColumnOp, replace=True)
def add_column(operations: Operations, operation: ops.AddColumnOp) -> None:
    """Add a column, unless an earlier try did."""
    column: Column[object] = operation.column
    operations.impl.add_column(operation.table_name, column, if_not_exists=True)


@Operations.implementation_for(ops.CreateIndexOp, replace=True)
def create_index(operations: Operations, operation: ops.CreateIndexOp) -> None:
    """Build an index: at once on a new table, beside its writers on any other."""
    context = operations.migration_context
    if operation.table_name in _new_tables(context):
        operations.impl.create_index(operation.to_index(context), if_not_exists=True)
        return
    operation.kw["postgresql_concurrently"] = True
    index = operation.to_index(context)
    with _beside_writers(operations):
        _drop_half_built(operations, str(index.name))
        operations.impl.create_index(index, if_not_exists=True)


@Operations.implementation_for(ops.DropIndexOp, replace=True)
def drop_index(operations: Operations, operation: ops.DropIndexOp) -> None:
    """Drop an index beside those who use its table."""
    operation.kw["postgresql_concurrently"] = True
    with _beside_writers(operations):
        operations.impl.drop_index(operation.to_index(operations.migration_context), if_exists=True)


@contextmanager
def _beside_writers(operations: Operations) -> Iterator[None]:
    """Work outside of any transaction, and wait for as long as it takes: this way keeps nobody out meanwhile."""
    with operations.migration_context.autocommit_block():
        operations.execute(text("SET lock_timeout = 0"))
        yield
        operations.execute(text(f"SET lock_timeout = {LOCK_TIMEOUT_MS}"))


def _drop_half_built(operations: Operations, name: str) -> None:
    """Remove what a build that was broken off left behind: such an index costs every write and serves no read."""
    connection = operations.get_bind()
    query = text("SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass(:name) AND NOT indisvalid)")
    if connection.scalar(query, {"name": f'"{name}"'}):
        operations.execute(text(f'DROP INDEX CONCURRENTLY IF EXISTS "{name}"'))
