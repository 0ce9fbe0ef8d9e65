"""The ASGI server of every program: uvicorn's, which otherwise wakes ten times a second to see if it should exit."""

from __future__ import annotations

import asyncio

import uvicorn

_TICK_SECONDS = 0.5


class Server(uvicorn.Server):
    """A server that rests when nobody calls."""

    async def main_loop(self) -> None:
        """Keep the date of replies, and look for the end."""
        while not await self.on_tick(0):
            await asyncio.sleep(_TICK_SECONDS)
