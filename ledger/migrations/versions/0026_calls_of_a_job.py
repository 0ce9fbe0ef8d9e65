"""The planner is told how many calls a job has: few.

A sample of a large table finds six times as many, as a job's calls lie side by side: among 10^7 jobs the costs of fifty
were summed by two parallel workers, whose start took ten times as long as the sum.
"""

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

CALLS = "ALTER TABLE call ALTER job_id SET (n_distinct = -0.8)"


def upgrade() -> None:
    op.execute(CALLS)
