"""What is said about a run's pull request, until a round takes it."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "review_comment",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("root_id", sa.Uuid(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("author", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("path", sa.String(), nullable=True),
        sa.Column("line", sa.Integer(), nullable=True),
        sa.Column("is_order", sa.Boolean(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("run_id", sa.Uuid(), nullable=True),
        sa.Column("refused", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["root_id"], ["job.id"]),
        sa.ForeignKeyConstraint(["run_id"], ["job.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("root_id", "source"),
    )
    op.create_index(
        "ix_review_comment_open", "review_comment", ["root_id"], postgresql_where=sa.text("settled_at IS NULL")
    )
    op.create_index("ix_review_comment_run_id", "review_comment", ["run_id"])
