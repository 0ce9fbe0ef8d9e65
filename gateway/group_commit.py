"""One wait for a disk serves everybody who asked before it began."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class GroupCommit(Generic[T]):
    """Runs one flush at a time; whoever asks while one runs shares the next."""

    def __init__(self, flush: Callable[[], Awaitable[T]]) -> None:
        self._flush = flush
        self._current: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def wait(self) -> T:
        """Return when a flush is over that began after this call; raise what it raised."""
        if self._next is None:
            self._next = asyncio.create_task(self._run(after=self._current))
        return await asyncio.shield(self._next)

    async def _run(self, *, after: asyncio.Task[T] | None) -> T:
        if after is not None:
            await asyncio.wait({after})
        self._current, self._next = self._next, None  # later callers may have come too late for this flush
        return await self._flush()
