"""The benchmark of growth does on a ledger with a past what it says, and leaves the open jobs as it found them."""

from pathlib import Path

from benchmarks.growth import Bench
from benchmarks.past import ASKING, WAITING, fill
from tests.services import Postgres, Valkey

_OPEN = "SELECT count(*) FROM job WHERE ended_at IS NULL"


def test_every_step_of_growth_works_and_tidies_up(postgres: Postgres, tmp_path: Path) -> None:
    with postgres.database() as url, Valkey(tmp_path) as broker:
        fill(url, 400)
        bench = Bench(url, broker.url)
        try:
            assert bench.scalar("SELECT count(*) FROM job") == 400
            assert bench.scalar(_OPEN) == WAITING + ASKING
            for name in bench.steps:
                assert bench.turn(name)(1) > 0, name
                assert bench.scalar(_OPEN) == WAITING + ASKING, name
            assert bench.scalar("SELECT count(*) FROM job WHERE ended_at < now() - interval '100 days'") == 0, "swept"
        finally:
            bench.close()
