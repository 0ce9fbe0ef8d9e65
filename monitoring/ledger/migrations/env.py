"""Run migrations on the connection that `monitoring.ledger.migrate` hands over."""

from alembic import context
from sqlmodel import SQLModel

from monitoring.ledger import tables

assert tables.Job.__tablename__ == "job"  # the import fills SQLModel.metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=SQLModel.metadata)
with context.begin_transaction():
    context.run_migrations()
