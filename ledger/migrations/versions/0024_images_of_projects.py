"""A project's record names the image of its boxes, where an operator built one for it."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("project", sa.Column("image", postgresql.JSONB(), nullable=True))
