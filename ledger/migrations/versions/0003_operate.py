"""What operating the fleet needs: deliveries of notifications, traces, workers seen."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "worker",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("queues", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("is_draining", sa.Boolean(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "delivery",
        sa.Column("id", sa.BigInteger(), autoincrement=True, nullable=False),
        sa.Column("job_id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["notification.job_id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_delivery_job", "delivery", ["job_id", "id"], unique=False)
    op.add_column("job", sa.Column("trace", sa.String(), nullable=True))
    op.add_column("notification", sa.Column("replays", sa.Integer(), server_default=sa.text("0"), nullable=False))
    op.drop_index(op.f("ix_job_site_id"), table_name="job")
    op.create_index("ix_job_site_created", "job", ["site_id", "created_at"], unique=False)
    op.create_index(
        "ix_job_tenant_open",
        "job",
        ["tenant", "created_at"],
        unique=False,
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_index(
        "ix_job_tenant_ended",
        "job",
        ["tenant", "state", "created_at"],
        unique=False,
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_index(
        "ix_release_swept",
        "release",
        ["swept_at"],
        unique=False,
        postgresql_where=sa.text("swept_at IS NOT NULL"),
    )
