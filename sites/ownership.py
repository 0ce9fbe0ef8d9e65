"""Which ledger a content store's files belong to: a sweep removes what its own ledger does not name.

The store's mark names the ledger's newest epoch, so a ledger that was restored from another's backup is another one.
"""

from __future__ import annotations

from itertools import islice

from ledger.releases import epoch_of, has_releases, some_active_releases
from ledger.store import Ledger
from sites.content_store import ContentStore
from sites.errors import BlobMissingError, StoreTakenError
from sites.releases import manifest_of

_LOOKED_AT = 3
_RESTORING = "a restoration under way"
"""The mark until the restored ledger has its epoch."""


def adopt(ledger: Ledger, content_store: ContentStore) -> None:
    """Mark a store that nobody has marked as this ledger's.

    An empty one only for a ledger without any release: else it is a wrong or emptied place, whose files are elsewhere.

    Raises:
        OSError: the operator's fault: the store is away.
    """
    blobs = content_store.blobs
    if blobs.owner() is not None:
        return
    with ledger.begin() as session:
        epoch, is_new = epoch_of(session), not has_releases(session)
    if is_new or any(blobs.list()):
        blobs.own(epoch)


def check_owner(ledger: Ledger, content_store: ContentStore) -> None:
    """Check that a store is not another ledger's.

    Raises:
        StoreTakenError: the operator's fault: it is.
        OSError: likewise: the store is away.
    """
    owner = content_store.blobs.owner()
    with ledger.begin() as session:
        if owner not in (None, epoch_of(session)):
            raise StoreTakenError(owner)


def check_place(ledger: Ledger, content_store: ContentStore) -> None:
    """Check that a store holds this ledger's files, by those of a few sites; writes nothing.

    Raises:
        StoreTakenError, BlobMissingError: the operator's fault: it is another's, or one of them is not there.
        OSError: likewise: the store is away, or nobody's.
    """
    check_owner(ledger, content_store)
    with ledger.begin() as session:
        shown = some_active_releases(session, limit=_LOOKED_AT)
    for release in shown:
        for entry in islice(manifest_of(release).values(), 1):
            if not content_store.exists(entry.sha256):
                raise BlobMissingError(f"no blob {entry.sha256} of release {release.id}")


def begin_restoring(content_store: ContentStore) -> None:
    """Take a store from whichever ledger has it; nobody sweeps it until `take_over`."""
    content_store.blobs.own(_RESTORING, takes_over=True)


def take_over(ledger: Ledger, content_store: ContentStore) -> None:
    """Mark a store as this ledger's, whoever had it."""
    with ledger.begin() as session:
        epoch = epoch_of(session)
    content_store.blobs.own(epoch, takes_over=True)
