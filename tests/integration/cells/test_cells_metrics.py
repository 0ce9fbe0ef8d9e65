"""What the metrics of a cell and of a router say: its slice, moves and how far they are, and who was led where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ledger.cells import tenant_rows
from ledger.cells.directory import CellRecord, Directory, Step
from ledger.store import Ledger
from monitoring.exporter import render_metrics
from monitoring.gauges import read_cell
from producers.cells.router import Places, Router
from routing.policy.platform import platform_policy
from tests.directories import new_directory
from tests.integration.api.http_world import World, open_world
from tests.integration.cells.test_cells_router import serve
from tests.services import Postgres

Values = dict[tuple[str, ...], float]


def values_of(page: str, name: str) -> Values:
    """Return a metric's series by the values of their labels, in the order of the labels' names."""
    return {
        tuple(sample.labels[label] for label in sorted(sample.labels)): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == f"pointsman_{name}"
    }


@pytest.fixture
def directory(postgres: Postgres) -> Iterator[Directory]:
    with ExitStack() as stack:
        _, made = stack.enter_context(new_directory(postgres))
        for name in ("east", "west", "north"):
            made.add_cell(CellRecord(name, "http://x", "http://y", "redis://z", "z", "{}"))
        yield made


def test_a_cell_s_metrics_tell_its_slice_and_the_moves_from_and_to_it(ledger: Ledger, directory: Directory) -> None:
    def page(name: str) -> str:
        return render_metrics(ledger, policy=platform_policy(), others=[partial(read_cell, directory, name)]).decode()

    with directory._engine.begin() as connection:
        day = str(connection.exec_driver_sql("SELECT CAST(timezone('UTC', clock_timestamp()) AS date)").scalar_one())
    directory.lease("east", day=day, limit=10**10, known=0, least=1, slice_nanousd=2 * 10**9)
    for tenant in ("acme", "neighbour"):
        directory.claim(tenant, cell="east")
    directory.begin_move("acme", origin="east", target="west", was_paused=False)
    with directory._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE move SET begun_at = begun_at - interval '1 hour'")
    said = page("east")
    assert values_of(said, "cells_directory_up") == {(): 1}
    assert values_of(said, "cells_leased_usd") == {(): 2}
    assert values_of(said, "cells_moves") == {(step.value,): float(step is Step.DRAINING) for step in Step}
    assert 3600 <= values_of(said, "cells_move_age_seconds_max")[()] < 3700
    assert values_of(page("west"), "cells_moves")["draining",] == 1
    assert set(values_of(page("north"), "cells_moves").values()) == {0}
    assert values_of(page("north"), "cells_move_age_seconds_max") == {(): 0}


def test_a_cell_without_its_directory_says_so_and_tells_all_else(ledger: Ledger) -> None:
    away = Directory("postgresql://nobody@127.0.0.1:1/x")
    said = render_metrics(ledger, policy=platform_policy(), others=[partial(read_cell, away, "east")]).decode()
    assert values_of(said, "cells_directory_up") == {(): 0}
    assert values_of(said, "cells_leased_usd") == {}
    assert values_of(said, "dispatcher_leader_present") == {(): 0}
    alone = render_metrics(ledger, policy=platform_policy()).decode()
    assert values_of(alone, "cells_directory_up") == {}
    away.close()


def test_a_router_counts_requests_by_cell_and_outcome_and_an_api_what_it_refuses(
    ledger: Ledger, directory: Directory, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        world: World = stack.enter_context(open_world(ledger, tmp_path, tenant="acme"))
        url = serve(world.app, stack, "east")
        directory.add_cell(directory.cell("east")._replace(api_url=url))
        directory.add_cell(directory.cell("west")._replace(api_url="http://127.0.0.1:1"))
        directory.claim("acme", cell="east")
        directory.claim("gone", cell="west")
        router = serve(Router(Places(directory, lease_seconds=60), url_of=lambda cell: cell.api_url), stack, "router")
        client = stack.enter_context(httpx2.Client(base_url=router, trust_env=False))
        client.get("/live/acme/x")
        client.get("/console/login?tenant=acme")
        client.get("/live/gone/x")
        headers = world.headers()
        tenant_rows.close(ledger, "acme")
        refused = httpx2.post(
            f"{url}/v1/jobs", headers=headers, json={"prompt": f"What is {uuid4()}?"}, trust_env=False
        )
        assert refused.status_code == 503
        said = client.get("/router/metrics").text
        assert values_of(said, "router_requests_total") == {
            ("east", "2xx"): 1,
            ("east", "4xx"): 1,
            ("west", "cell_unreachable"): 1,
        }
        assert values_of(said, "router_directory_up") == {(): 1}
        api = httpx2.get(f"{url}/metrics", trust_env=False).text
        assert values_of(api, "api_problems_total")["tenant_moving",] == 1
