"""An instant Messages API: answers whatever it is asked with one word. `python -m benchmarks.peers.model PORT`."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn

_ANSWER = (
    b'{"id":"msg_1","type":"message","role":"assistant","model":"claude-haiku-4-5-20251001","content":[{"type":"text",'
    b'"text":"Yes."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}'
)
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(_ANSWER)).encode())]


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """Serve one request."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _ANSWER})


if __name__ == "__main__":
    uvicorn.run(
        answer,
        port=int(sys.argv[1]),
        http="httptools",
        loop="uvloop",
        lifespan="off",
        log_config=None,
        timeout_keep_alive=75,
    )
