"""Move a tenant to another cell while it works: drain, close, copy, compare, switch, open, clear.

Each step can be done again, and the directory says how far a move has come, so whoever asks for it again goes on where
another process, or a crash, left it. The switch in the directory is the commit: before it the move can be aborted, and
the old cell has everything; after it the new cell has.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from ledger import audit
from ledger.cells import copying, tenant_rows
from ledger.cells.directory import CellRecord, Directory, Move, Step
from ledger.cells.tenant_runs import check_projects, conversations, files_of_runs, has_projects
from ledger.errors import CellError
from ledger.operations.uploads import kept_uploads
from ledger.releases import epoch_of, kept_releases
from ledger.store import Ledger, create_ledger_engine
from sites.config import ContentStoreConfig
from sites.content_store import ContentStore, open_content_store
from sites.errors import BlobMissingError, WorkspaceMissingError
from sites.releases import manifest_of_dict
from sites.repository.copies import copy_workspace, owner_of, remove_workspace
from sites.repository.workspace import Workspace

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 60.0
"""How long attempts may go on before they are handed back."""
LET_GO_SECONDS = 60.0
"""How long it may take after that: a lost call is closed after 30 s, by the cell's dispatcher."""
LEASE_SECONDS = 2.0
"""How long a router goes by what the directory told it."""
_POLL_SECONDS = 0.2
_FRESH_SECONDS = 1800.0
"""Half of the least time for which a sweep leaves alone what no row names (`retention.draft_hours`)."""


@dataclass(frozen=True)
class Timing:
    """How long a move waits, in seconds."""

    drain: float = DRAIN_SECONDS
    let_go: float = LET_GO_SECONDS
    lease: float = LEASE_SECONDS


class Place:
    """A cell's ledger, content store and workspaces, opened for a move."""

    def __init__(self, record: CellRecord) -> None:
        self.record = record
        self.name = record.name
        self.copied_ahead: copying.Copied | None = None
        self.ledger = Ledger(create_ledger_engine(record.ledger_url, pool_size=2, application="pointsman-move"))

    @cached_property
    def content_store(self) -> ContentStore:
        """The store, once its mark was found to be that of the ledger.

        Raises:
            CellError: the operator's fault: it is another's, or what its path leads to here is.
        """
        store = open_content_store(ContentStoreConfig.model_validate_json(self.record.content_store))
        with self.ledger.begin() as session:
            if store.blobs.owner() != epoch_of(session):
                raise CellError("content_store", self.name)
        return store

    @cached_property
    def runs_root(self) -> Path:
        """The directory of workspaces, once its mark was found to be the cell's.

        Raises:
            CellError: the operator's fault: likewise, or the directory names none.
        """
        if not self.record.runs_root:
            raise CellError("no_runs_root", self.name)
        root = Path(self.record.runs_root)
        if owner_of(root) != self.name:
            raise CellError("runs_root", self.name, str(root))
        return root

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ledger.close()


def move_tenant(
    directory: Directory,
    tenant: str,
    target: str,
    *,
    timing: Timing = Timing(),
    told: Callable[[Move], None] = lambda _: None,
) -> Move | None:
    """Move a tenant, or go on with its move; returns the move, or None where it is there already.

    Args:
        directory: of the fleet.
        tenant: whose rows and files move.
        target: the new cell; of a move that is under way it must be the same.
        timing: how long to wait.
        told: hears of each step that is done.

    Raises:
        CellError: see its rules. What was done stays, and the next call goes on.
        LedgerBusyError: nobody's fault: likewise.
    """
    directory.cell(target)
    with directory.moving(tenant), ExitStack() as opened:
        move = directory.move_of(tenant)
        place = directory.place_of(tenant)
        if place is None:
            raise CellError("unknown_tenant", tenant)
        if move is None and place.cell == target:
            return None
        if move is not None and move.target != target:
            raise CellError("moving", tenant)
        origin = opened.enter_context(Place(directory.cell(move.origin if move else place.cell)))
        new = opened.enter_context(Place(directory.cell(target)))
        if move is None:
            move = _begin(directory, tenant, origin, new)
        while move.step is not Step.OPENED:
            move = directory.advance(move, _STEPS[move.step](move, origin, new, timing))
            logger.info("tenant_move", extra={"tenant": tenant, "step": move.step.value})
            told(move)
        _clear(origin, tenant, timing)
        directory.end_move(move)
        return move


def abort_move(directory: Directory, tenant: str) -> None:
    """Give up a move that has not switched yet: the old cell goes on.

    Raises:
        CellError: the operator's fault: there is none, it has switched, or a path leads to other files here.
    """
    with directory.moving(tenant), ExitStack() as opened:
        move = directory.move_of(tenant)
        if move is None:
            raise CellError("not_moving", tenant)
        if move.step in (Step.SWITCHED, Step.OPENED):
            raise CellError("switched", tenant)
        origin, new = (opened.enter_context(Place(directory.cell(name))) for name in (move.origin, move.target))
        _remove_workspaces(origin, new, tenant)
        copying.clear(new.ledger, tenant, keeps_stone=False)
        tenant_rows.open_again(new.ledger, tenant)
        tenant_rows.open_again(origin.ledger, tenant)
        if not move.was_paused:
            tenant_rows.resume(origin.ledger, tenant)
        directory.end_move(move)


def _begin(directory: Directory, tenant: str, origin: Place, new: Place) -> Move:
    was_paused = tenant_rows.is_paused(origin.ledger, tenant)
    _check_movable(origin, new, tenant)
    return directory.begin_move(tenant, origin=origin.name, target=new.name, was_paused=was_paused)


def _check_movable(origin: Place, new: Place, tenant: str) -> None:
    """Check that all that a tenant has can be moved, from and to the files of the two cells.

    Raises:
        CellError: the operator's fault, or nobody's.
    """
    _ = origin.content_store, new.content_store
    if not has_projects(origin.ledger, tenant):
        return
    check_projects(origin.ledger, tenant, target=new.name, accounts=json.loads(new.record.accounts))
    _ = origin.runs_root, new.runs_root
    _check_workspaces(origin, origin, tenant)


def _check_workspaces(origin: Place, place: Place, tenant: str) -> None:
    """Check that a cell has the work of the runs that go on; what ended may have been lost with a disk before."""
    for files in files_of_runs(origin.ledger, tenant):
        if files.commit is None:
            continue
        try:
            Workspace.of_run(place.runs_root, files.workspace).read_file(files.commit, "")
        except WorkspaceMissingError:
            raise CellError("workspace", tenant, str(files.open_run), str(place.runs_root)) from None


def _drain(move: Move, origin: Place, new: Place, timing: Timing) -> Step:
    """Copy ahead, let its jobs come to rest, and close it; repeated where an attempt was faster."""
    tenant_rows.close(new.ledger, move.tenant)
    _copy_files(origin, new, move.tenant)
    new.copied_ahead = copying.copy(origin.ledger, new.ledger, move.tenant, is_ahead=True)
    logger.info("tenant_copied_ahead", extra={"tenant": move.tenant, "rows": new.copied_ahead.rows})
    until = time.monotonic() + timing.drain
    tenant_rows.pause(origin.ledger, move.tenant)
    while True:
        _wait_for_rest(origin, move.tenant, until=until, timing=timing)
        tenant_rows.close(origin.ledger, move.tenant)
        if not tenant_rows.at_work(origin.ledger, move.tenant):
            break
        tenant_rows.open_again(origin.ledger, move.tenant)
    try:
        _check_movable(origin, new, move.tenant)  # a project may have come meanwhile
    except BaseException:
        tenant_rows.open_again(origin.ledger, move.tenant)
        raise
    return Step.FROZEN


def _wait_for_rest(origin: Place, tenant: str, *, until: float, timing: Timing) -> None:
    is_handed_back = False
    while tenant_rows.at_work(origin.ledger, tenant):
        if not is_handed_back and time.monotonic() >= until:
            tenant_rows.hand_back(origin.ledger, tenant)
            origin.ledger.wake_dispatcher()
            is_handed_back = True
        if time.monotonic() >= until + timing.let_go:
            raise CellError("still_at_work", tenant)
        time.sleep(_POLL_SECONDS)


def _copy(move: Move, origin: Place, new: Place, timing: Timing) -> Step:
    _copy_files(origin, new, move.tenant)  # those that came while the first were copied
    _check_workspaces(origin, new, move.tenant)
    copied = copying.copy(origin.ledger, new.ledger, move.tenant, since=new.copied_ahead)
    logger.info("tenant_copied", extra={"tenant": move.tenant, "rows": copied.rows})
    return Step.COPIED


def _switch(move: Move, origin: Place, new: Place, timing: Timing) -> Step:
    return Step.SWITCHED


def _open(move: Move, origin: Place, new: Place, timing: Timing) -> Step:
    # Before it is opened: what lacks this row after a restore is copied again, and nobody has written there since.
    for place, action, other in ((origin, audit.MOVED_OUT, new), (new, audit.MOVED_IN, origin)):
        with place.ledger.begin() as session:
            audit.append(session, action, actor="operator", tenant=move.tenant, cell=other.name, move=move.begun)
    tenant_rows.open_again(new.ledger, move.tenant)
    if not move.was_paused:
        tenant_rows.resume(new.ledger, move.tenant)
    new.ledger.wake_dispatcher()
    return Step.OPENED


_STEPS: dict[Step, Callable[[Move, Place, Place, Timing], Step]] = {
    Step.DRAINING: _drain,
    Step.FROZEN: _copy,
    Step.COPIED: _switch,
    Step.SWITCHED: _open,
}
"""What leads from each step to the next."""


def _remove_workspaces(origin: Place, place: Place, tenant: str) -> None:
    """Remove the workspaces of the runs that the old cell still names."""
    for files in files_of_runs(origin.ledger, tenant):
        remove_workspace(Workspace.of_run(place.runs_root, files.workspace).path)


def _clear(origin: Place, tenant: str, timing: Timing) -> None:
    """Delete its rows in the old cell once no router leads there; its blobs go as what no release names."""
    time.sleep(timing.lease)
    _remove_workspaces(origin, origin, tenant)
    copying.clear(origin.ledger, tenant, keeps_stone=True)


def _is_fresh(content_store: ContentStore, sha256: str) -> bool:
    """Whether a blob is there, and no sweep takes it before the rows that name it are there, too."""
    found = content_store.blobs.stat(sha256)
    return found is not None and found.touched_at > time.time() - _FRESH_SECONDS


def _copy_files(origin: Place, new: Place, tenant: str) -> None:
    """Copy what its releases, conversations and open imports name, and the workspaces of its runs; all by digest."""
    with origin.ledger.begin() as session:
        wanted = set(kept_uploads(session, tenant))
        for release in kept_releases(session, tenant=tenant):
            wanted |= release.blobs | {entry.sha256 for entry in manifest_of_dict(release.manifest).values()}
        said = conversations(session, tenant)
    for sha256 in sorted(wanted | said):
        if not _is_fresh(new.content_store, sha256):
            try:
                new.content_store.put(origin.content_store.get(sha256))
            except BlobMissingError:
                if sha256 in wanted:
                    raise
    for files in files_of_runs(origin.ledger, tenant):
        source, target = (Workspace.of_run(place.runs_root, files.workspace) for place in (origin, new))
        if source.exists():
            copy_workspace(source.path, target.path)
