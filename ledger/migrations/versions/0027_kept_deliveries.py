"""A tracker's delivery that could not be taken in is kept, and taken in later."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "kept_delivery",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("tracker", sa.String(), nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("next_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_index("ix_kept_delivery_received", "kept_delivery", ["received_at"])
    op.create_index("ix_kept_delivery_tenant", "kept_delivery", ["tenant"])
