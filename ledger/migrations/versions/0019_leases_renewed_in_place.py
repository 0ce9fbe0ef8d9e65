"""A lease is renewed in place: no index holds when it runs out, so that renewing it writes to none.

Every running attempt and call renews its lease each few seconds. Whoever looks for those that ran out reads all that
are open: never more than there are slots.
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name, table, columns, where in (
        ("ix_attempt_at_work", "attempt", ["worker"], "ended_at IS NULL"),
        ("ix_attempt_reported", "attempt", ["id"], "ended_at IS NULL AND lost_cause IS NOT NULL"),
        ("ix_call_reserved", "call", ["id"], "state = 'reserved'"),
    ):
        op.create_index(name, table, columns, postgresql_where=sa.text(where))
    op.drop_index("ix_attempt_live", "attempt")
    op.drop_index("ix_call_open", "call")
