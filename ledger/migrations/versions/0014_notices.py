"""Messages about jobs that wait for a person, beside the notification of a job's end, which stays as it was."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "tenant",
        sa.Column("notices", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False),
    )
    op.add_column("tenant", sa.Column("chat_url", sa.String(), nullable=True))
    op.create_table(
        "notice",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("callback_url", sa.String(), nullable=True),
        sa.Column("payload", postgresql.JSONB(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("replays", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_notice_job_id", "notice", ["job_id"])
    op.create_index("ix_notice_turn", "notice", ["tenant", "next_at"], postgresql_where=sa.text("next_at IS NOT NULL"))
    op.create_index("ix_notice_created", "notice", ["tenant", "created_at"])
    op.create_table(
        "notice_delivery",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("notice_id", sa.Uuid(), nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["notice_id"], ["notice.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_notice_delivery_job_id", "notice_delivery", ["job_id"])
    op.create_index("ix_notice_delivery_notice", "notice_delivery", ["notice_id", "id"])
