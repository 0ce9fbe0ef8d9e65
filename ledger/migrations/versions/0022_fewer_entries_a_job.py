"""Rows of a job have fewer index entries and no foreign keys; a release has room on its page to be published.

The primary key of `event` served no query but the ages of a partition, which the index of the metrics tells too. A
token is looked up as a whole: the hash index has 4 bytes of it where the unique one had all 64. Attempts and calls are
written under their job's lock by statements that have just read what they name, and deleted before it: to check that
again took a query and a lock for each.

An update that stays on its page logs what lies between the first and the last byte that changed: of a release not its
manifest. Of other tables that part is nearly the whole row. Tables that may have 10^9 rows are vacuumed when a fiftieth
is dead, not a fifth.
"""

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

RELEASES = "ALTER TABLE release SET (fillfactor = 60)"
JOBS = "ALTER TABLE job SET (autovacuum_vacuum_scale_factor = 0.02)"
ATTEMPTS = "ALTER TABLE attempt SET (autovacuum_vacuum_scale_factor = 0.02)"
CALLS = "ALTER TABLE call SET (autovacuum_vacuum_scale_factor = 0.02)"
CAPS = "ALTER TABLE cap SET (autovacuum_vacuum_scale_factor = 0.02)"


def upgrade() -> None:
    op.create_index("ix_attempt_token", "attempt", ["token_hash"], postgresql_using="hash")
    with op.get_context().autocommit_block():  # no table stays locked while another one is waited for
        for name in ("attempt_token_hash_key", "attempt_job_id_fkey"):
            op.drop_constraint(name, "attempt", if_exists=True)
        for name in ("call_job_id_fkey", "call_attempt_id_fkey"):
            op.drop_constraint(name, "call", if_exists=True)
        op.drop_constraint("event_pkey", "event", if_exists=True)
        op.execute(RELEASES)
        op.execute(JOBS)
        op.execute(ATTEMPTS)
        op.execute(CALLS)
        op.execute(CAPS)
