"""A run can continue another one: in its repository, on top of what was pushed."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0016_rounds_of_runs"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("workspace_id", sa.Uuid(), nullable=True))
    op.add_column("run", sa.Column("pushed", postgresql.JSONB(none_as_null=True), nullable=True))
