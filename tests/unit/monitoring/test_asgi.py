"""A request that does not arrive in time, or has no end, is given up, and nobody else waits for it."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import uvicorn

from gateway.config import GatewayConfig
from gateway.server import server_config
from monitoring.asgi import TimedHttpProtocol
from producers.api.app import create_server
from producers.config import ApiConfig, PagesConfig
from routing.policy.platform import platform_policy
from tests.threads import serve_in_thread

HEAD_SECONDS, BODY_SECONDS = 0.5, 1.0
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"


class Quick(TimedHttpProtocol):
    head_seconds = HEAD_SECONDS
    body_seconds = BODY_SECONDS
    body_bytes = 100
    head_bytes = 2_000


async def echo(scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
    """Answer with the body's length."""
    size = 0
    while (message := await receive())["type"] == "http.request":
        size += len(message["body"])
        if not message["more_body"]:
            body = str(size).encode()
            length = (b"content-length", str(len(body)).encode())
            await send({"type": "http.response.start", "status": 200, "headers": [length]})
            await send({"type": "http.response.body", "body": body})
            return


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    config = uvicorn.Config(echo, http=Quick, loop="uvloop", lifespan="off", log_config=None, timeout_keep_alive=30)
    with serve_in_thread(config, name="server") as base:
        yield base


Connect = Callable[[bytes], socket.socket]


@pytest.fixture
def connect(url: str) -> Iterator[Connect]:
    """Open connections that have sent so much; they are closed in the end."""
    with ExitStack() as opened:

        def open_one(data: bytes) -> socket.socket:
            made = socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=20)
            opened.enter_context(made).sendall(data)
            return made

        yield open_one


def until_closed(made: socket.socket) -> bytes:
    """Return the status line of what the server says before it closes, by a reset if it has not read all."""
    said = b""
    with suppress(ConnectionResetError):
        while part := made.recv(65536):
            said += part
    return said.split(b"\r\n")[0]


def ask(made: socket.socket) -> None:
    """Make one whole request and take its whole answer."""
    made.sendall(GET)
    said = b""
    while not said.endswith(b"\r\n\r\n0"):
        said += made.recv(65536)
    assert said.startswith(b"HTTP/1.1 200 OK")


def is_silent(made: socket.socket, *, seconds: float) -> bool:
    """Whether the server neither says anything nor closes for so long."""
    return not select.select([made], [], [], seconds)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "said", "seconds"),
    [
        (b"", b"", HEAD_SECONDS),
        (b"\r\n", b"HTTP/1.1 408 Request Timeout", HEAD_SECONDS),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", b"HTTP/1.1 408 Request Timeout", HEAD_SECONDS),
        (POST, b"HTTP/1.1 408 Request Timeout", BODY_SECONDS),
        (POST + b"x" * 50, b"HTTP/1.1 408 Request Timeout", BODY_SECONDS + 0.5),
    ],
)
def test_a_request_that_stops_half_way_is_given_up(connect: Connect, data: bytes, said: bytes, seconds: float) -> None:
    began = time.monotonic()
    assert until_closed(connect(data)) == said
    assert seconds - 0.01 <= time.monotonic() - began < seconds + 5  # the loop counts in milliseconds


def test_a_head_that_trickles_is_given_up_as_well(connect: Connect) -> None:
    made, sent = connect(b"GET / HTTP/1.1\r\n"), 0
    while is_silent(made, seconds=0.05) and sent < 200:
        made.sendall(b"X-A: b\r\n")
        sent += 1
    assert until_closed(made) == b"HTTP/1.1 408 Request Timeout"
    assert sent < 100


@pytest.mark.parametrize("begun", [b"GET /", b"GET / HTTP/1.1\r\nX-A: ", CHUNKED + b"1\r\nx\r\n0\r\nX-A: "])
def test_a_head_or_a_trailer_that_has_no_end_is_no_buffer_without_one(connect: Connect, begun: bytes) -> None:
    made, sent = connect(begun), 0
    while is_silent(made, seconds=0.01) and sent < 100:
        made.sendall(b"b" * 100)
        sent += 1
    assert until_closed(made) == b"HTTP/1.1 431 Request Header Fields Too Large"
    assert sent < 40


def test_as_many_bodies_and_heads_as_somebody_has_are_taken_on_one_connection(connect: Connect) -> None:
    made = connect(b"")
    for _ in range(3):
        made.sendall(POST + b"x" * 1000 + GET.replace(b"Host", b"X-A: " + b"b" * 1500 + b"\r\nHost"))
        said = b""
        while said.count(b"HTTP/1.1 200 OK") < 2 or not said.endswith(b"\r\n\r\n0"):
            said += made.recv(65536)


@pytest.mark.slow
def test_the_next_request_on_a_kept_connection_has_the_same_time(connect: Connect) -> None:
    made = connect(b"")
    ask(made)
    assert is_silent(made, seconds=2 * HEAD_SECONDS), "between requests the server's own, longer limit counts"
    ask(made)
    made.sendall(GET[:9])
    began = time.monotonic()
    assert until_closed(made) == b"HTTP/1.1 408 Request Timeout"
    assert time.monotonic() - began < HEAD_SECONDS + 5


@pytest.mark.slow
def test_a_long_body_that_keeps_coming_is_taken_whole(connect: Connect) -> None:
    made = connect(POST.replace(b"Host", b"Connection: close\r\nHost"))
    for _ in range(10):
        assert is_silent(made, seconds=BODY_SECONDS / 5)
        made.sendall(b"x" * 100)
    assert until_closed(made) == b"HTTP/1.1 200 OK"


def test_hundreds_of_half_open_requests_go_and_good_ones_are_answered_meanwhile(url: str, connect: Connect) -> None:
    half = [connect(GET[:20]) for _ in range(300)]
    began = time.monotonic()
    assert httpx2.get(url, trust_env=False, verify=False).status_code == 200
    assert {until_closed(made) for made in half} == {b"HTTP/1.1 408 Request Timeout"}
    assert time.monotonic() < began + HEAD_SECONDS + 10


def test_api_pages_and_gateway_speak_it() -> None:
    configs = (
        create_server(None, config=ApiConfig()).config,  # type: ignore[arg-type]
        create_server(None, config=PagesConfig()).config,  # type: ignore[arg-type]
        server_config(GatewayConfig(pepper="p" * 32), "postgresql://", platform_policy()),
    )
    assert {config.http for config in configs} == {TimedHttpProtocol}
    assert TimedHttpProtocol.head_seconds <= TimedHttpProtocol.body_seconds <= 30
