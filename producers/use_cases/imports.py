"""Take an archive of a site from a sender, and submit the job that unpacks it.

The archive is streamed to disk and stored under its digest before the job is accepted; here nobody looks into it
further than its first bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool

from ledger.store import Ledger
from producers.errors import BodyTooLargeError, InvalidInputError, TooManyUploadsError, UploadTooSlowError
from producers.intake.decisions import check_uploads
from producers.intake.submit import Submitted, Submitter
from producers.use_cases.tenants import Caller
from routing.jobs import JobRequest, Upload
from routing.policy.platform import Policy
from sites.archives import MAGIC_BYTES, is_archive
from sites.content_store import ContentStore
from sites.ownership import adopt

_WRITTEN_BYTES = 1_048_576
"""Held in memory of one upload, and then written."""
_MEGABYTE = 1_000_000


class Order(NamedTuple):
    """What is to be imported, and for whom."""

    caller: Caller
    site: str
    idempotency_key: str | None = None
    stated_bytes: int | None = None
    """What its sender says that the archive has."""


@dataclass(eq=False)
class Imports:
    """Takes the archives that come to this process."""

    ledger: Ledger
    content_store: ContentStore
    policy: Policy
    submitter: Submitter
    _open: Counter[str] = field(default_factory=Counter, init=False)
    """By tenant, the archives that are being taken."""

    async def take(self, order: Order, chunks: AsyncIterator[bytes]) -> Submitted:
        """Store an archive and submit the job that imports it into a site, which is made if there is none.

        To be called within `one_more`.

        Raises:
            BodyTooLargeError, InvalidInputError, UploadTooSlowError: the caller's fault.
            InvalidJobError, IdempotencyConflictError: the caller's fault.
            AdmissionRefusedError: nobody's fault: it says when to come back.
            OSError: the operator's fault: the store is away or full.
        """
        most = self.policy.uploads.archive_bytes
        if (order.stated_bytes or 0) > most:
            raise BodyTooLargeError(most)
        await run_in_threadpool(self._prepare, order)
        with self.content_store.taking() as draft:
            upload = await _write(in_time(chunks, self.policy.uploads.seconds), draft, most=most)
            return await run_in_threadpool(self._submit, order, upload, draft)

    @contextmanager
    def one_more(self, tenant: str) -> Iterator[None]:
        """Hold one of this process's few places for archives; to be entered before anything of one is read.

        Raises:
            TooManyUploadsError: nobody's fault: it says when to come back.
        """
        uploads = self.policy.uploads
        if self._open.total() >= uploads.per_process:
            raise TooManyUploadsError(uploads.per_process, uploads.retry_seconds)
        if self._open[tenant] >= uploads.per_tenant:
            raise TooManyUploadsError(uploads.per_tenant, uploads.retry_seconds, whose=tenant)
        self._open[tenant] += 1
        try:
            yield
        finally:
            self._open[tenant] -= 1
            self._open += Counter()  # drops tenants without any

    def _prepare(self, order: Order) -> None:
        """Refuse what there is no room for, before it is sent."""
        with self.ledger.begin() as session:
            check_uploads(session, order.caller.tenant, policy=self.policy)
        adopt(self.ledger, self.content_store)
        self.content_store.check_room(order.stated_bytes or self.policy.uploads.archive_bytes)

    def _submit(self, order: Order, upload: Upload, draft: Path) -> Submitted:
        """Submit the job; one that was submitted before, or is refused, stores nothing."""
        caller = order.caller
        request = JobRequest(
            prompt=f"Import {order.site} from an archive of {_size(upload.total_bytes)}",
            site=order.site,
            upload=upload,
            idempotency_key=order.idempotency_key,
        )
        if (earlier := self.submitter.find_or_refuse(request, tenant=caller.tenant, source=caller.source)) is not None:
            return earlier
        self.content_store.put_file(upload.sha256, draft)
        return self.submitter.submit(request, tenant=caller.tenant, source=caller.source, actor=caller.actor)


async def in_time(chunks: AsyncIterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    """Yield what arrives within so many seconds, all in all; only a wait for the sender is broken off.

    Raises:
        UploadTooSlowError: the caller's fault: it did not arrive in time.
    """
    ends = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            async with asyncio.timeout_at(ends):
                chunk = await anext(chunks, None)
        except TimeoutError:
            raise UploadTooSlowError(seconds) from None
        if chunk is None:
            return
        yield chunk


async def _write(chunks: AsyncIterator[bytes], draft: Path, *, most: int) -> Upload:
    """Write an archive to a new file, in the pieces that come."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    digest, total, head, held = hashlib.sha256(), 0, b"", bytearray()
    with open(os.open(draft, flags, 0o600), "wb", buffering=0) as file:

        def flush() -> None:
            digest.update(held)
            file.write(held)
            held.clear()

        async for chunk in chunks:
            head += chunk[: MAGIC_BYTES - len(head)]
            if len(head) == MAGIC_BYTES:
                _check_head(head)
            total += len(chunk)
            if total > most:
                raise BodyTooLargeError(most)
            held += chunk
            if len(held) >= _WRITTEN_BYTES:
                await run_in_threadpool(flush)
        _check_head(head)
        await run_in_threadpool(flush)
    return Upload(sha256=digest.hexdigest(), total_bytes=total)


def _check_head(head: bytes) -> None:
    if not is_archive(head):
        raise InvalidInputError("body", "must be a zip or tar.gz archive")


def _size(count: int) -> str:
    return f"{count / _MEGABYTE:.1f} MB" if count >= _MEGABYTE else f"{count:,} bytes"
