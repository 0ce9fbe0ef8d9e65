"""Let a restored cell agree with the directory, which knows what has become of its tenants since the backup."""

from __future__ import annotations

from typing import NamedTuple

from sqlmodel import col, select

from ledger import audit
from ledger.cells import copying, tenant_rows
from ledger.cells.directory import Directory, Move, Step
from ledger.record_tables import AuditRow
from ledger.store import Ledger
from ledger.tables import Tenant

_CLOSED_AT = frozenset({Step.FROZEN.value, Step.COPIED.value, Step.SWITCHED.value})
"""The steps of a move after which its tenant is closed in both cells."""


_COPIED = frozenset({Step.COPIED, Step.SWITCHED, Step.OPENED})


def _has_come(ledger: Ledger, move: Move) -> bool:
    """Whether this ledger has the tenant that a move has brought here."""
    moved_in = col(AuditRow.action) == audit.MOVED_IN
    with ledger.begin() as session:
        own = select(col(AuditRow.seq)).where(moved_in, col(AuditRow.tenant) == move.tenant)
        return session.exec(own.where(col(AuditRow.detail)["move"].astext == move.begun).limit(1)).first() is not None


class Placed(NamedTuple):
    """Tenants of whom ledger and directory said different things."""

    elsewhere: tuple[str, ...] = ()
    """Those that the directory has in another cell."""
    missing: tuple[str, ...] = ()
    """Those that it has in this cell, and the backup lacks."""


def place_tenants(ledger: Ledger, directory: Directory, cell: str) -> Placed:
    """Close the tenants that the directory does not let work in this cell, and open the others.

    Of one that has left, what a move leaves stays. A move to this cell that had copied its rows copies them again, also
    if it had switched already, as long as the backup is from before: the old cell still has them.
    """
    moves = {place.tenant: directory.move_of(place.tenant) for place in directory.places() if place.step is not None}
    for move in moves.values():
        if move is not None and move.target == cell and move.step in _COPIED and not _has_come(ledger, move):
            directory.take_back(move)
            tenant_rows.close(ledger, move.tenant)
    places = directory.places()
    with ledger.begin() as session:
        known = set(session.exec(select(col(Tenant.name))))
        closed = tenant_rows.closed_tenants(session)
    for place in places:
        may_work = place.cell == cell and place.step not in _CLOSED_AT
        if place.tenant in known and may_work is (place.tenant in closed):
            (tenant_rows.open_again if may_work else tenant_rows.close)(ledger, place.tenant)
        move = moves.get(place.tenant)
        if place.tenant in known and place.cell != cell and (move is None or move.origin != cell):
            copying.clear(ledger, place.tenant, keeps_stone=True)
    return Placed(
        tuple(place.tenant for place in places if place.cell != cell and place.tenant in known),
        tuple(place.tenant for place in places if place.cell == cell and place.tenant not in known),
    )
