"""Failures of a task, counted over its jobs; a failed job is debated once."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "task_failure",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("rejections", sa.Integer(), nullable=False),
        sa.Column("is_debated", sa.Boolean(), nullable=False),
        sa.Column("error_signature", sa.String(), nullable=True),
        sa.Column("recent", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("ix_task_failure_signature", "task_failure", ["tenant", "error_signature"], unique=False)
    op.create_index(
        "uq_job_failure_debate",
        "job",
        ["parent_id"],
        unique=True,
        postgresql_where=sa.text("(result ->> 'failure_debate') = 'true'"),
    )
