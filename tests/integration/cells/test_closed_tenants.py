"""What a cell does for all tenants a batch at a time goes on for the others while one is closed, however long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ledger.attempts import stale_jobs
from ledger.cells import tenant_rows
from ledger.dispatch_window import release_due, release_sites
from ledger.job_control import overdue_jobs
from ledger.releases import add_release, lagging_sites, next_unpictured
from ledger.runs.run import overdue_gates
from ledger.runs.steps import find_unmerged_runs
from ledger.runs.tables import AgentExecution, Gate, Project, Run, RunStep
from ledger.store import now
from producers.dispatch.housekeeping import collect_garbage
from routing.queues import QueueName
from routing.scheduling import WaitReason
from sites.content_store import ContentStore
from tests.factories import Shop, make_release

OWNERS = {
    "job": "SELECT tenant FROM job WHERE id = :id",
    "gate": "SELECT tenant FROM gate JOIN job ON job.id = run_id WHERE gate.id = :id",
    "site": "SELECT tenant FROM site WHERE id = :id",
    "release": "SELECT tenant FROM release JOIN site ON site.id = site_id WHERE release.id = :id",
}
BATCHES: Mapping[str, tuple[Callable[..., Any], str]] = {
    "held for a time": (partial(release_due, limit=1), "job"),
    "held for a site": (partial(release_sites, limit=1), "job"),
    "waiting too long": (partial(stale_jobs, wait_seconds={QueueName.ANSWER: 60.0}, limit=1), "job"),
    "undecided too long": (partial(overdue_jobs, limit=1), "job"),
    "gate": (partial(overdue_gates, limit=1), "gate"),
    "run": (partial(find_unmerged_runs, limit=1), "job"),
    "lagging": (partial(lagging_sites, limit=1), "site"),
    "unpictured": (lambda session: [next_unpictured(session)], "release"),
}


@pytest.fixture
def closed(shop: Shop) -> Iterator[Shop]:
    """The same is due for two tenants; the one for which it is due longer is closed."""
    due = "now() - make_interval(days => :days)"
    for tenant, days in (("acme", 9), ("neighbour", 5)):
        site_id = shop.site(tenant=tenant)
        shop.show(site_id)
        shop.accept(tenant=tenant, site_id=site_id, held_for=WaitReason.SITE)
        held = shop.accept(tenant=tenant, tier=None)
        times = f"held_until = {due}, waiting_since = {due}, expires_at = {due}"
        shop.execute(f"UPDATE job SET held_for = 'time', {times} WHERE id = :id", days=days, id=held)
        run_id = shop.accept(tenant=tenant, tier=None, queue=QueueName.CONTROL)
        step_id = shop.accept(tenant=tenant, tier=None, queue=QueueName.STEPS, root_id=run_id, parent_id=run_id)
        shop.execute("UPDATE job SET waiting_since = NULL WHERE id = :id", id=run_id)
        with shop.ledger.begin() as session:
            draft = add_release(session, make_release(site_id))
            project = Project(tenant=tenant, name="shop", config={})
            session.add(project)
            session.flush()
            session.add(Run(job_id=run_id, project_id=project.id))
            session.flush()
            session.add(RunStep(run_id=run_id, key="fix", position=0, phase="work", task="fix it", tries=1))
            session.add(Gate(run_id=run_id, key="plan", kind="plan", reason="new", state="open"))
            session.flush()
            session.add(AgentExecution(job_id=step_id, run_id=run_id, step_key="fix", attempt=1, settled_at=now()))
        shop.execute(f"UPDATE gate SET expires_at = {due} WHERE run_id = :id", days=days, id=run_id)
        shop.execute(f"UPDATE release SET created_at = {due} WHERE id = :id", days=days, id=draft.id)
        newest = "published_at = now() + make_interval(days => :days)"  # is pictured first
        shop.execute(
            f"UPDATE release SET {newest} WHERE published_at IS NOT NULL AND site_id = :id", days=days, id=site_id
        )
    tenant_rows.close(shop.ledger, "acme")
    yield shop
    tenant_rows.open_again(shop.ledger, "acme")


@pytest.mark.parametrize("what", BATCHES)
def test_what_is_due_for_others_has_its_turn_though_a_closed_tenant_s_is_the_oldest(closed: Shop, what: str) -> None:
    find, kind = BATCHES[what]
    with closed.ledger.begin() as session:
        (found,) = find(session)
    assert closed.scalar(OWNERS[kind], id=getattr(found, "job_id", found)) == "neighbour"


def test_a_tenant_that_is_closed_while_retention_is_under_way_keeps_its_drafts_and_no_other_s(
    closed: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.dispatch.housekeeping.closed_tenants", lambda session: frozenset())
    done = collect_garbage(closed.ledger, ContentStore(tmp_path), closed.policy)
    swept = closed.rows("SELECT tenant FROM release JOIN site ON site.id = site_id WHERE swept_at IS NOT NULL")
    assert ([row.tenant for row in swept], done.releases) == (["neighbour"], 1)


def test_retention_takes_others_drafts_and_leaves_a_closed_tenant_s_for_later(closed: Shop, tmp_path: Path) -> None:
    for expected in (["neighbour"], ["acme", "neighbour"]):
        collect_garbage(closed.ledger, ContentStore(tmp_path), closed.policy)
        swept = closed.rows("SELECT tenant FROM release JOIN site ON site.id = site_id WHERE swept_at IS NOT NULL")
        assert sorted(row.tenant for row in swept) == expected
        tenant_rows.open_again(closed.ledger, "acme")
