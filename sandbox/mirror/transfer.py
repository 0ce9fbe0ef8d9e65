"""One file's way into a box: passed on while it is hashed, and its last piece only once it is what it must be.

So a caller never gets a whole file with the wrong content, and no file is waited for to the end before its begin is
sent. The next piece is asked for when the one before has gone out, so that a slow box makes a slow download.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, BinaryIO

from sandbox.mirror.config import MirrorConfig
from sandbox.mirror.errors import MirrorRefusedError
from sandbox.mirror.outbound import Outbound
from sandbox.mirror.packument import Digest, Origin
from sandbox.mirror.store import Incoming, Store

logger = logging.getLogger(__name__)

Send = Callable[[Any], Awaitable[None]]

_CHUNK_BYTES = 64 * 1024


class Transfer:
    """Sends one file."""

    def __init__(self, origin: Origin, send: Send) -> None:
        self._origin = origin
        self._send = send
        self.sent_bytes = 0
        self.has_begun = False

    async def from_store(self, store: Store) -> bool:
        """Send the file from the store; False when it has none, or a damaged one, which it then loses.

        A file that proves damaged only after its begin was sent ends broken off.
        """
        found = store.open(self._origin.digest)
        if found is None:
            return False
        file, size = found
        with file:
            is_whole = await self._pass_on(_pieces(file), length=size)
        if not is_whole:
            logger.warning("package_damaged", extra={"digest": self._origin.digest.hex})
            store.remove(self._origin.digest)
        return is_whole or self.has_begun

    async def from_registry(self, outbound: Outbound, store: Store, config: MirrorConfig) -> None:
        """Send the file from the registry, and keep it.

        Raises:
            MirrorRefusedError: the registry's fault.
        """
        async with outbound.get(self._origin.url, {"accept-encoding": "identity"}, is_raw=True) as response:
            if response.status != 200:
                status = 404 if response.status in (404, 410) else 502
                raise MirrorRefusedError(status, f"the registry answered {response.status} for this file")
            length = response.content_length
            if length is not None and length > config.package_bytes:
                raise MirrorRefusedError(502, f"the file is longer than {config.package_bytes} bytes")
            with _Keeper(store) as keeper:
                pieces = keeper.watch(_bounded(response.content.iter_chunked(_CHUNK_BYTES), config.package_bytes))
                if not await self._pass_on(pieces, length=length, keep=lambda: keeper.keep(self._origin.digest)):
                    raise MirrorRefusedError(502, "the file is not what the registry says that it is")

    async def _pass_on(
        self, pieces: AsyncIterator[bytes], *, length: int | None, keep: Callable[[], None] | None = None
    ) -> bool:
        """Send pieces, the last one only if all of them hash to what they must."""
        hasher = self._origin.digest.hasher()
        held = b""
        async for piece in pieces:
            hasher.update(piece)
            if held:
                await self._give(held, length=length, is_last=False)
            held = piece
        if hasher.hexdigest() != self._origin.digest.hex:
            return False
        if keep is not None:
            keep()
        await self._give(held, length=length, is_last=True)
        return True

    async def _give(self, piece: bytes, *, length: int | None, is_last: bool) -> None:
        if not self.has_begun:
            self.has_begun = True
            headers = [(b"content-type", b"application/octet-stream"), (b"cache-control", b"private, max-age=86400")]
            if length is not None:
                headers.append((b"content-length", str(length).encode()))
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": piece, "more_body": not is_last})
        self.sent_bytes += len(piece)


class _Keeper:
    """Writes what passes into the store. A disk that fails costs the cache, not the download."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._incoming: Incoming | None = None
        try:
            self._incoming = store.incoming()
        except OSError as error:
            self._give_up(error)

    async def watch(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for piece in pieces:
            try:
                if self._incoming is not None:
                    self._incoming.write(piece)
            except OSError as error:
                self._give_up(error)
            yield piece

    def keep(self, digest: Digest) -> None:
        try:
            if self._incoming is not None:
                self._store.keep(self._incoming, digest)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        logger.warning("package_not_kept", extra={"error": error.strerror})
        self._close()

    def _close(self) -> None:
        if self._incoming is not None:
            with suppress(OSError):
                self._incoming.__exit__()
            self._incoming = None

    def __enter__(self) -> _Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := file.read(_CHUNK_BYTES):
        yield piece


async def _bounded(pieces: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > limit:
            raise MirrorRefusedError(502, f"the file is longer than {limit} bytes")
        yield piece
