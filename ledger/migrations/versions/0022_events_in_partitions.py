"""Events lie in partitions by id, so that old ones are dropped with their partition and no row is deleted.

Today's table becomes the first partition as it is. That its ids fit in is checked while others write; the exchange of
the two tables then reads no row. Nothing names a partition but `ledger.operations.partitions`: a version before this
one reads, writes and deletes by `event` as ever.
"""

from alembic import op

revision = "0022"
down_revision = "0020"
branch_labels = None
depends_on = None

IS_PLAIN = "SELECT relkind = 'r' FROM pg_class WHERE oid = 'event'::regclass"
BOUNDED = """
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_constraint WHERE conname = 'ck_event_first' AND conrelid = 'event'::regclass) THEN
        ALTER TABLE event ADD CONSTRAINT ck_event_first CHECK (id < 68719476736) NOT VALID;
    END IF;
END $$
"""
CHECKED = "ALTER TABLE event VALIDATE CONSTRAINT ck_event_first"
EXCHANGED = """
LOCK TABLE event IN ACCESS EXCLUSIVE MODE;
ALTER TABLE event RENAME TO event_0;
ALTER INDEX event_pkey RENAME TO event_0_pkey;
ALTER INDEX ix_event_job RENAME TO event_0_job_id_id_idx;
ALTER INDEX ix_event_xid RENAME TO event_0_xid_idx;
CREATE TABLE event (LIKE event_0 INCLUDING DEFAULTS) PARTITION BY RANGE (id);
ALTER TABLE event ADD CONSTRAINT event_pkey PRIMARY KEY (id);
CREATE INDEX ix_event_job ON event (job_id, id);
CREATE INDEX ix_event_xid ON event (xid);
ALTER SEQUENCE event_id_seq OWNED BY event.id;
ALTER TABLE event ATTACH PARTITION event_0 FOR VALUES FROM (MINVALUE) TO (68719476736);
ALTER TABLE event_0 DROP CONSTRAINT ck_event_first;
ALTER TABLE event_0 SET (autovacuum_freeze_min_age = 0)
"""


def upgrade() -> None:
    if not op.get_bind().exec_driver_sql(IS_PLAIN).scalar():
        return
    with op.get_context().autocommit_block():
        op.execute(BOUNDED)
        op.execute(CHECKED)
    op.execute(EXCHANGED)
