"""Webhooks are delivered in turn by tenant."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("notification", sa.Column("tenant", sa.String(), server_default=sa.text("''"), nullable=False))
    op.create_index(
        "ix_notification_turn",
        "notification",
        ["tenant", "next_at"],
        unique=False,
        postgresql_where=sa.text("next_at IS NOT NULL"),
    )
