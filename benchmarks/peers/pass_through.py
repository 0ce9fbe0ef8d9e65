"""The floor for a gateway: hands on what comes, counts nothing. `python -m benchmarks.peers.pass_through PORT URL`."""

from __future__ import annotations

import sys
from typing import Any

import aiohttp
import uvicorn


class PassThrough:
    """One process of it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        self._session = self._session or aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=512))
        body, has_more = b"", True
        while has_more:
            message = await receive()
            body += message["body"]
            has_more = message["more_body"]
        async with self._session.post(self._url + scope["path"], data=body) as response:
            answer = await response.read()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    passing = PassThrough(sys.argv[2])
    uvicorn.run(passing, port=int(sys.argv[1]), http="httptools", loop="uvloop", lifespan="off", log_config=None)
