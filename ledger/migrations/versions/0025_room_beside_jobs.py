"""A page of `job` keeps room for what changes of its rows: an update that stays on its page logs only that."""

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

JOBS = "ALTER TABLE job SET (fillfactor = 80)"


def upgrade() -> None:
    op.execute(JOBS)
