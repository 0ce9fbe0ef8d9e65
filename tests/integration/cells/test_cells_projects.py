"""Cells: a tenant with code projects moves while its runs rest, and they go on in the new cell where they were."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy.exc import OperationalError

from ledger.cells import tenant_rows
from ledger.cells.directory import CellRecord, Directory
from ledger.errors import CellError
from ledger.runs.reviews import NewComment, keep_comment
from ledger.runs.shells import begin_shell
from ledger.store import Ledger, create_ledger_engine
from producers.cells.move import Timing, move_tenant
from routing.jobs import State
from sites.config import ContentStoreConfig
from sites.content_store import ContentStore
from sites.ownership import adopt
from sites.repository.copies import claim_root
from sites.repository.workspace import Workspace
from tests.directories import new_directory
from tests.factories import Shop
from tests.integration.runs.run_world import FIX, Yard
from tests.services import Postgres
from workers.runs import shell

NOW = Timing(drain=0.0, let_go=1.0, lease=0.0)


@dataclass
class Two:
    """Two cells; acme begins in the first, with a project of its own."""

    directory: Directory
    east: Yard
    west: Yard

    def move(self, target: str) -> None:
        move_tenant(self.directory, "acme", target, timing=NOW)


@pytest.fixture
def two(postgres: Postgres, tmp_path: Path) -> Iterator[Two]:
    with ExitStack() as stack:
        _, directory = stack.enter_context(new_directory(postgres))
        shops = []
        for name in ("east", "west"):
            url = stack.enter_context(postgres.database())
            ledger = Ledger(create_ledger_engine(url, pool_size=4))
            stack.callback(ledger.close)
            store = ContentStoreConfig(root=tmp_path / name / "content-store")
            adopt(ledger, ContentStore(store.root))
            claim_root(tmp_path / name / "runs", name)
            directory.add_cell(
                CellRecord(
                    name,
                    "http://x",
                    "http://y",
                    "redis://z",
                    url,
                    store.model_dump_json(),
                    runs_root=str(tmp_path / name / "runs"),
                )
            )
            shops.append(Shop(ledger, url))
        east = in_cell(Yard(shops[0], tmp_path), shops[0], tmp_path / "east")
        directory.claim("acme", cell="east")
        yield Two(directory, east, in_cell(east, shops[1], tmp_path / "west"))


def in_cell(yard: Yard, shop: Shop, home: Path) -> Yard:
    """Return the same project with the ledger and the files of another cell."""
    moved = copy(yard)
    moved.shop = shop
    shop.policy = yard.policy
    runs = yard.resources.runs.model_copy(update={"root": home / "runs"})
    store = ContentStore(home / "content-store")
    moved.resources = replace(yard.resources, ledger=shop.ledger, content_store=store, runs=runs)
    return moved


def to_gate(yard: Yard) -> UUID:
    run_id = yard.submit("Fix the broken header", priority="P0")
    yard.settle()
    assert yard.job(run_id).state == State.AWAITING_APPROVAL
    return run_id


def tree_of(workspace: Workspace) -> dict[str, bytes]:
    files = (path for path in workspace.path.rglob("*") if path.is_file())
    return {str(path.relative_to(workspace.path)): path.read_bytes() for path in files}


def test_a_run_moves_after_each_of_its_steps_and_is_published_as_if_it_had_stayed(two: Two) -> None:
    here, there = (two.east, "east"), (two.west, "west")
    two.east.team.plan = FIX
    run_id = two.east.submit("Fix the broken header", priority="P0")
    moves = 0
    while (job := here[0].job(run_id)).ended_at is None:
        if not here[0].turn():
            here[0].decide(here[0].open_gate(run_id))
        before = tree_of(here[0].workspace(run_id)) if here[0].workspace(run_id).exists() else {}
        here, there = there, here
        two.move(here[1])
        moves += 1
        now = here[0].workspace(run_id)
        assert (tree_of(now) if now.exists() else {}) == before
        assert not there[0].workspace(run_id).exists()
    assert moves > 8
    assert job.state == State.PUBLISHED, (job.reason, job.detail)
    assert len(set(two.east.executed)) == len(two.east.executed), "no step was done twice"
    assert "src/fix-frontend.ts" in here[0].workspace(run_id).read(job.result["commit"]).files
    calls, booked = here[0].bill(run_id)
    assert calls == booked


def test_gates_comments_and_rounds_go_on_in_the_new_cell(two: Two) -> None:
    run_id = to_gate(two.east)
    comment = NewComment("review:1", "bob", "Make it wider", is_order=False)
    with two.east.shop.ledger.begin() as session:
        keep_comment(session, run_id, comment)
    said = two.east.resources.content_store.put(b"what an agent said")
    step = two.east.executions(run_id)[0].job_id
    for name, sha256 in (("begun", said), ("agent", "0" * 64)):
        two.east.shop.execute(
            "UPDATE job SET result = result || jsonb_build_object(CAST(:name AS text),"
            " jsonb_build_object('transcript_sha256', CAST(:sha256 AS text))) WHERE id = :id",
            name=name,
            sha256=sha256,
            id=step,
        )
    notes = two.east.shop.rows("SELECT kind FROM ticket_note WHERE run_id = :id ORDER BY 1", id=run_id)
    two.move("west")
    assert two.west.shop.scalar("SELECT body FROM review_comment WHERE root_id = :id", id=run_id) == "Make it wider"
    assert two.west.shop.rows("SELECT kind FROM ticket_note WHERE run_id = :id ORDER BY 1", id=run_id) == notes
    assert two.west.resources.content_store.exists(said), "a conversation that is gone already holds nothing up"
    two.west.decide(two.west.open_gate(run_id))
    two.west.settle()
    assert two.west.job(run_id).state == State.PUBLISHED
    for table in ("project", "run", "run_step", "agent_executions", "gate", "review_comment", "ticket_note"):
        assert two.east.shop.scalar(f"SELECT count(*) FROM {table}") == 0


def test_nobody_changes_a_run_of_a_closed_tenant_by_hand_at_a_gate_or_from_a_forge(two: Two) -> None:
    run_id = to_gate(two.east)
    gate = two.east.open_gate(run_id)
    tenant_rows.close(two.east.shop.ledger, "acme")
    with pytest.raises(OperationalError, match=tenant_rows.TENANT_CLOSED):
        two.east.decide(gate)
    with two.east.shop.ledger.begin() as session, pytest.raises(OperationalError, match=tenant_rows.TENANT_CLOSED):
        keep_comment(session, run_id, NewComment("review:1", "bob", "Make it wider", is_order=False))
    with two.east.shop.ledger.begin() as session, pytest.raises(OperationalError, match=tenant_rows.TENANT_CLOSED):
        begin_shell(session, run_id, tenant="acme", actor="bob", seconds=60)


def test_who_wants_a_shell_at_a_gate_of_a_closed_tenant_is_told_why_there_is_none(
    two: Two, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = to_gate(two.east)
    tenant_rows.close(two.east.shop.ledger, "acme")

    def hold(given: Namespace, settings: shell.ShellSettings) -> None:
        with two.east.shop.ledger.begin() as session:
            begin_shell(session, given.run, tenant=given.tenant, actor=given.actor, seconds=60)

    monkeypatch.setattr(shell, "_hold", hold)
    assert shell.main([str(run_id), "--tenant", "acme", "--as", "bob", "--author", "Bob <bob@example.com>"]) == 2
    assert "moving to another cell" in capsys.readouterr().err


def test_a_shell_at_a_gate_holds_a_move_until_it_ends_or_its_time_is_over(two: Two) -> None:
    run_id = to_gate(two.east)
    with two.east.shop.ledger.begin() as session:
        begin_shell(session, run_id, tenant="acme", actor="bob", seconds=60)
    with pytest.raises(CellError, match=f"bob has a shell at a gate of run '{run_id}'"):
        two.move("west")
    assert two.directory.move_of("acme") is None
    assert two.east.shop.scalar("SELECT paused_at FROM tenant") is None
    two.east.shop.execute("UPDATE gate SET facts = facts - 'open_shells'")
    with two.east.shop.ledger.begin() as session:
        begin_shell(session, run_id, tenant="acme", actor="bob", seconds=-1)
    two.move("west")


def test_what_a_project_needs_and_the_new_cell_lacks_is_named_before_anything_is_done(two: Two) -> None:
    def refused(match: str) -> None:
        with pytest.raises(CellError, match=match):
            two.move("west")
        assert two.directory.move_of("acme") is None

    run_id = to_gate(two.east)
    image = '{"id": "sha256:1", "reference": "x", "source": "y"}'
    two.east.shop.execute("UPDATE project SET image = CAST(:image AS jsonb)", image=image)
    refused("project 'shop' .* an image of its own")
    two.east.shop.execute("UPDATE project SET image = NULL")
    account = '{"account": "acme-git"}'
    two.east.shop.execute(
        "UPDATE project SET config = jsonb_set(config, '{repo}', config->'repo' || CAST(:account AS jsonb))",
        account=account,
    )
    refused("account 'acme-git'")
    west = two.directory.cell("west")
    two.directory.add_cell(west._replace(accounts='{"acme-git": ["neighbour"]}'))
    refused("account 'acme-git'")
    two.directory.add_cell(west._replace(accounts='{"acme-git": ["acme"]}', runs_root=""))
    refused("cell 'west' has not said where its workspaces are")
    two.directory.add_cell(west._replace(accounts='{"acme-git": ["acme"]}', runs_root=str(two.east.home / "elsewhere")))
    refused("are not those of cell 'west'")
    two.directory.add_cell(west._replace(accounts='{"acme-git": ["acme"]}'))
    workspace = two.east.workspace(run_id).path
    workspace.rename(workspace.with_suffix(".lost"))
    refused(f"run '{run_id}' has no workspace")
    workspace.with_suffix(".lost").rename(workspace)
    two.move("west")
