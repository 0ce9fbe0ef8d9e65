"""What a fleet under fire needs: holds, lanes, back-pressure, dead letters, supersede."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "backlog",
        sa.Column("queue", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("waiting", sa.Integer(), nullable=False),
        sa.Column("drained_per_second", sa.Float(), nullable=False),
        sa.Column("turn", sa.Float(), server_default="0", nullable=False),
        sa.Column("counted_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("queue", "tenant"),
    )
    op.create_table(
        "lane",
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("parked_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("probing_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("requests", sa.Float(), nullable=False),
        sa.Column("tokens", sa.Float(), nullable=False),
        sa.Column("filled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("changed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("provider", "model"),
    )
    op.create_index("ix_attempt_started", "attempt", ["started_at"], unique=False)
    op.add_column("audit_seal", sa.Column("archived", sa.String(), nullable=True))
    op.create_index(op.f("ix_call_attempt_id"), "call", ["attempt_id"], unique=False)
    op.add_column("job", sa.Column("held_for", sa.String(), nullable=True))
    op.add_column("job", sa.Column("held_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("job", sa.Column("supersede_key", sa.String(), nullable=True))
    op.add_column("job", sa.Column("superseded_by", sa.Uuid(), nullable=True))
    op.add_column("job", sa.Column("failure_signature", sa.String(), nullable=True))
    op.add_column("job", sa.Column("dismissed_at", sa.DateTime(timezone=True), nullable=True))
    op.drop_index(
        op.f("ix_job_unpushed"),
        table_name="job",
        postgresql_where="((waiting_since IS NOT NULL) AND (pushed_at IS NULL))",
    )
    op.create_index(
        "ix_job_dead",
        "job",
        ["tenant", "failure_signature", "ended_at"],
        unique=False,
        postgresql_where=sa.text("failure_signature IS NOT NULL AND dismissed_at IS NULL"),
    )
    op.create_index("ix_job_ended", "job", ["ended_at"], unique=False, postgresql_where=sa.text("ended_at IS NOT NULL"))
    op.create_index(
        "ix_job_held_for_site",
        "job",
        ["site_id", "queue", "priority", "created_at"],
        unique=False,
        postgresql_where=sa.text("held_for = 'site'"),
    )
    op.create_index(
        "ix_job_held_until", "job", ["held_until"], unique=False, postgresql_where=sa.text("held_until IS NOT NULL")
    )
    op.create_index(
        "ix_job_ready",
        "job",
        ["queue", "tenant", "priority", "created_at"],
        unique=False,
        postgresql_where=sa.text("waiting_since IS NOT NULL AND pushed_at IS NULL AND held_for IS NULL"),
    )
    op.create_index(
        "ix_job_site_next",
        "job",
        ["site_id", "queue"],
        unique=False,
        postgresql_where=sa.text("waiting_since IS NOT NULL AND held_for IS NULL"),
    )
    op.create_index("ix_job_site_open", "job", ["site_id"], unique=False, postgresql_where=sa.text("ended_at IS NULL"))
    op.create_index(
        "ix_job_supersede",
        "job",
        ["tenant", "supersede_key"],
        unique=False,
        postgresql_where=sa.text("supersede_key IS NOT NULL AND ended_at IS NULL"),
    )
    op.drop_index("ix_job_waiting", table_name="job")
    op.create_index(
        "ix_job_waiting",
        "job",
        ["queue", "waiting_since"],
        unique=False,
        postgresql_include=["tenant"],
        postgresql_where=sa.text("waiting_since IS NOT NULL"),
    )
    op.create_index(op.f("ix_release_job_id"), "release", ["job_id"], unique=False)
    op.add_column("tenant", sa.Column("weight", sa.Integer(), server_default="1", nullable=False))
    op.add_column("tenant", sa.Column("max_running", sa.Integer(), nullable=True))
