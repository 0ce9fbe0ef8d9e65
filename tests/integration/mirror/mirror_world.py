"""A real mirror between real attempts in a real ledger and a registry that serves what a test wants."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from aiohttp import web

from ledger.attempts import bind_egress
from ledger.store import Ledger
from ledger.tables import Attempt
from sandbox.config import MirrorConfig
from sandbox.package_mirror.registries import Registries
from tests.integration.gateway.gateway_world import Held, World
from tests.mirror_server import running_mirror
from tests.threads import serve_app_in_thread

HERE = "127.0.0.1"


def tarball(name: str, version: str, files: dict[str, str] | None = None, **manifest: Any) -> bytes:
    """Make a package as `npm pack` does."""
    contents = {"package.json": json.dumps({"name": name, "version": version, **manifest}), **(files or {})}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in contents.items():
            info = tarfile.TarInfo(f"package/{path}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def integrity(content: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


Override = Callable[[web.Request], Any]


@dataclass
class FakeRegistry:
    """An npm registry with a few packages, and whatever else a test wants at certain paths."""

    url: str = ""
    packages: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    """By path."""
    overrides: dict[str, Override] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """Method, path with query, and headers."""

    def add(self, name: str, version: str, *, files: dict[str, str] | None = None, **manifest: Any) -> bytes:
        """Publish a version."""
        content = tarball(name, version, files, **manifest)
        path = f"{name}/-/{name.rpartition('/')[2]}-{version}.tgz"
        self.files[path] = content
        known = self.packages.setdefault(name, {"name": name, "versions": {}, "dist-tags": {}})
        dist = {"tarball": f"{self.url}{path}", "integrity": integrity(content)}
        known["versions"][version] = {"name": name, "version": version, "dist": dist, **manifest}
        known["dist-tags"]["latest"] = version
        return content

    def paths(self) -> list[str]:
        return [path for _, path, _ in self.requests]


@contextmanager
def fake_registry(prefix: str = "") -> Iterator[FakeRegistry]:
    """Serve a registry in a thread."""
    played = FakeRegistry()

    async def answer(request: web.Request) -> Any:
        played.requests.append((request.method, str(request.rel_url), dict(request.headers)))
        path = request.path.removeprefix(f"/{prefix}").removeprefix("/")
        if path in played.overrides:
            made = played.overrides[path](request)
            return await made if asyncio.iscoroutine(made) else made
        if path in played.files:
            return web.Response(body=played.files[path], content_type="application/octet-stream")
        if path in played.packages:
            body = json.dumps(played.packages[path]).encode()
            etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
            if request.headers.get("if-none-match") == etag:
                return web.Response(status=304, headers={"etag": etag})
            return web.Response(body=body, content_type="application/json", headers={"etag": etag})
        return web.json_response({"error": "not found"}, status=404)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    with serve_app_in_thread(app) as origin:
        played.url = f"{origin}/{prefix}"
        yield played


@dataclass
class MirrorWorld:
    """One mirror, its registry, and an attempt with an egress address."""

    url: str
    registry: FakeRegistry
    world: World
    held: Held
    cache: Path

    def request(
        self, path: str, *, method: str = "GET", address: str = HERE, body: bytes | str | None = None, **headers: str
    ) -> httpx2.Response:
        """Ask the mirror from an address of this machine."""
        transport = httpx2.HTTPTransport(local_address=address, verify=False)
        with httpx2.Client(transport=transport, trust_env=False, verify=False, timeout=20) as client:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return client.request(method, f"{self.url}{path}", content=body, headers=named)

    def kept(self) -> list[Path]:
        return [path for path in self.cache.rglob("*") if path.is_file()]


@contextmanager
def mirror_world(
    ledger: Ledger,
    ledger_url: str,
    directory: Path,
    *,
    registries: Registries | None = None,
    prefix: str = "",
    **fields: Any,
) -> Iterator[MirrorWorld]:
    """A mirror of a registry that plays, or of others; one attempt is bound to this machine's own address."""
    world = World(ledger, "")
    world.tenant()
    held = world.attempt()
    with ledger.begin() as session:
        bind_egress(session, session.get_one(Attempt, held.attempt_id), address=HERE)
    with fake_registry(prefix) as registry:
        cache = directory / "cache"
        base = {"cache": cache, "caller_cache_seconds": 0.05, "record_seconds": 0.1, "public_url": "http://egress:8081"}
        config = MirrorConfig.model_validate({**base, **fields})
        chosen = registries or Registries(default=registry.url)
        with running_mirror(config, ledger_url, world.policy, chosen) as url:
            yield MirrorWorld(url, registry, world, held, cache)
