"""An approval keeps when its preview would have expired, so that it can be undone."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("approval", sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True))
