"""The field's names for columns, tables and values. Nothing is released yet; from 0.1 on, migrations only add."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_RENAME = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM information_schema.columns
                WHERE table_schema = current_schema() AND table_name = '{table}' AND column_name = '{old}') THEN
        ALTER TABLE {table} RENAME COLUMN {old} TO {new};
    END IF;
END $$
"""
_FUNCTIONS = r"""
DO $$ DECLARE found regprocedure; BEGIN
    FOR found IN SELECT oid FROM pg_proc
                  WHERE pronamespace = current_schema()::regnamespace AND prosrc ~ '\m(door|resting)\M' LOOP
        EXECUTE regexp_replace(
            regexp_replace(pg_get_functiondef(found), '\mdoor\M', 'source', 'g'), '\mresting\M', 'retrying', 'g');
    END LOOP;
END $$
"""
_VALUES = (
    "UPDATE attempt SET outcome = replace(outcome, 'parked', 'deferred') WHERE outcome LIKE 'parked%'",
    "UPDATE attempt SET outcome = 'retrying' WHERE outcome = 'resting'",
    "UPDATE job SET result = result - 'resting' || jsonb_build_object('retrying', result -> 'resting')"
    " WHERE result ? 'resting'",
    "UPDATE event SET kind = 'circuit', data = jsonb_set(data, '{change}', to_jsonb("
    "CAST(CASE data ->> 'change' WHEN 'parked' THEN 'opened' ELSE 'closed' END AS text))) WHERE kind = 'lane'",
    "UPDATE event SET data = data - 'door' || jsonb_build_object('source', data -> 'door') WHERE data ? 'door'",
    r"""UPDATE rollup SET labels = regexp_replace(labels, '"door":("[^"]*"),?(.*)\}$', CASE
        WHEN labels ~ '"door":"[^"]*"\}' THEN '"source":\1}' ELSE '\2,"source":\1}' END)
        WHERE labels LIKE '{"door":%'""",
    """UPDATE rollup SET labels = replace(replace(labels, '"outcome":"parked', '"outcome":"deferred'),
        '"outcome":"resting"', '"outcome":"retrying"')
        WHERE labels LIKE '%"outcome":"parked%' OR labels LIKE '%"outcome":"resting"%'""",
)


def upgrade() -> None:
    op.execute("ALTER TABLE IF EXISTS lane RENAME TO provider_circuit")
    op.execute(_RENAME.format(table="provider_circuit", old="parked_until", new="open_until"))
    op.execute(_RENAME.format(table="job", old="door", new="source"))
    op.execute(_RENAME.format(table="attempt", old="door", new="egress_address"))
    op.execute(_FUNCTIONS)
    for statement in _VALUES:
        op.execute(statement)
