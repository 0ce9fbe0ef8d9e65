"""A cell's ledger that is restored from a backup: the directory knows what has become of its tenants since."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.exc import OperationalError

from ledger.cells.directory import Step
from ledger.cells.tenant_rows import closed_tenants
from producers.backup import Restored, back_up, restore
from producers.cells.move import abort_move, move_tenant
from routing.jobs import Reason, State
from tests.integration.cells.test_cells import NOW, Two, stop, two
from tests.integration.monitoring.driving import Fleet

__all__ = ["two"]


def take_backup(two: Two, cell: str, to: Path) -> Path:
    fleet: Fleet = getattr(two, cell)
    back_up(fleet.ledger, fleet.url, two.stores[cell], to, environment={})
    return to


def bring_back(two: Two, cell: str, source: Path) -> Restored:
    fleet: Fleet = getattr(two, cell)
    options: dict[str, Any] = {"environment": {}, "is_forced": True, "directory": two.directory, "cell": cell}
    return restore(fleet.ledger, fleet.url, two.stores[cell], source, **options)


def closed(fleet: Fleet) -> frozenset[str]:
    with fleet.ledger.begin() as session:
        return closed_tenants(session)


def test_a_tenant_that_has_left_since_the_backup_does_not_work_in_two_cells(two: Two, tmp_path: Path) -> None:
    source = take_backup(two, "east", tmp_path / "backup")
    move_tenant(two.directory, "acme", "west", timing=NOW)
    done = bring_back(two, "east", source)
    assert done.placed == (("acme",), ())
    with pytest.raises(OperationalError, match="moving to another cell"):
        two.east.accept(tier=None)
    two.east.accept(tier=None, site_id=None, tenant="neighbour")
    two.west.end(two.west.claim(two.west.accept(tier=None)), State.ANSWERED, Reason.DONE)
    before = two.fingerprint(two.west)
    move_tenant(two.directory, "acme", "east", timing=NOW)
    assert two.fingerprint(two.east, without=("audit",)) == {
        name: rows for name, rows in before.items() if name != "audit"
    }
    two.east.accept(tier=None)


def test_a_tenant_that_was_moving_at_the_moment_of_the_backup_is_open_again_where_it_is(
    two: Two, tmp_path: Path
) -> None:
    stop(two, Step.FROZEN)
    source = take_backup(two, "east", tmp_path / "backup")
    abort_move(two.directory, "acme")
    assert bring_back(two, "east", source).placed.elsewhere == ()
    assert closed(two.east) == frozenset()
    two.east.accept(tier=None)


@pytest.mark.parametrize("step", [Step.FROZEN, Step.COPIED])
def test_a_move_goes_on_beneath_which_the_old_cell_was_restored(two: Two, tmp_path: Path, step: Step) -> None:
    source = take_backup(two, "east", tmp_path / "backup")
    stop(two, step)
    bring_back(two, "east", source)
    assert closed(two.east) == {"acme"}
    before = two.fingerprint(two.east, without=("audit",))
    move_tenant(two.directory, "acme", "west", timing=NOW)
    assert two.fingerprint(two.west, without=("audit",)) == before


@pytest.mark.parametrize(
    ("step", "was_there"),
    [(Step.COPIED, False), (Step.SWITCHED, False), (Step.OPENED, False), (Step.OPENED, True)],
)
def test_a_move_goes_on_beneath_which_the_new_cell_was_restored(
    two: Two, tmp_path: Path, step: Step, *, was_there: bool
) -> None:
    if was_there:  # its stone is in the backup
        move_tenant(two.directory, "acme", "west", timing=NOW)
        move_tenant(two.directory, "acme", "east", timing=NOW)
    source = take_backup(two, "west", tmp_path / "backup")
    before = two.fingerprint(two.east, without=("audit",))
    stop(two, step)
    assert bring_back(two, "west", source).placed.missing == ()
    assert closed(two.west) == {"acme"}
    assert [place.cell for place in two.directory.places() if place.tenant == "acme"] == ["east"]
    move_tenant(two.directory, "acme", "west", timing=NOW)
    assert two.fingerprint(two.west, without=("audit",)) == before


@pytest.mark.parametrize("step", [Step.SWITCHED, Step.OPENED])
def test_a_move_that_had_come_before_the_backup_of_the_new_cell_copies_nothing_again(
    two: Two, tmp_path: Path, step: Step
) -> None:
    stop(two, Step.OPENED)
    two.west.accept(tier=None)
    before = two.fingerprint(two.west, without=("audit",))
    source = take_backup(two, "west", tmp_path / "backup")
    with psycopg.connect(two.directory_url) as connection:
        connection.execute("UPDATE move SET step = %s", [step.value])
    bring_back(two, "west", source)
    move_tenant(two.directory, "acme", "west", timing=NOW)
    assert two.fingerprint(two.west, without=("audit",)) == before


def test_a_tenant_that_has_come_since_the_backup_is_named(two: Two, tmp_path: Path) -> None:
    source = take_backup(two, "west", tmp_path / "backup")
    move_tenant(two.directory, "acme", "west", timing=NOW)
    assert bring_back(two, "west", source).placed.missing == ("acme",)
