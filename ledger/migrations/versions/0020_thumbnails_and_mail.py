"""A published release keeps a picture of itself for the console, and tenants hear of waits by e-mail."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("release", sa.Column("thumbnail_sha256", sa.String(), nullable=True))
    op.add_column("tenant", sa.Column("mail_to", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False))
    op.create_index(
        "ix_release_unpictured",
        "release",
        ["published_at"],
        postgresql_where=sa.text("published_at IS NOT NULL AND swept_at IS NULL AND thumbnail_sha256 IS NULL"),
    )
