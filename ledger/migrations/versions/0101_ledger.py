"""The tables of `ledger.tables`, `ledger.record_tables` and `ledger.runs.tables`, and the functions that use them."""

from pathlib import Path

from alembic import op

revision = "0101"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))
