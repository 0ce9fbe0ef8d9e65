"""A notification has no foreign key, as calls and attempts have none; its dead rows wait no longer for a vacuum.

It is written under its job's lock by the statement that ends the job, and deleted before it: to check that again took
a query and a lock for each job.
"""

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

NOTIFICATIONS = "ALTER TABLE notification SET (autovacuum_vacuum_scale_factor = 0.02)"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.drop_constraint("notification_job_id_fkey", "notification", if_exists=True)
        op.execute(NOTIFICATIONS)
