"""Run migrations on the connection that `ledger.operations.migrate` hands over."""

from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlmodel import SQLModel
from sqlmodel.sql.sqltypes import AutoString

from ledger.record_tables import Event
from ledger.runs.tables import Run
from ledger.tables import Job

assert Job.__tablename__ == "job"  # the imports fill SQLModel.metadata
assert Event.__tablename__ == "event"
assert Run.__tablename__ == "run"


def render_item(kind: str, item: Any, _: AutogenContext) -> str | Literal[False]:
    """Write SQLModel's strings as what they are, so that a migration needs no SQLModel."""
    return "sa.String()" if kind == "type" and isinstance(item, AutoString) else False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    render_item=render_item,
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
