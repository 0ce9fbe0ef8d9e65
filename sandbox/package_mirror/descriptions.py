"""What the registries say of packages, cached: npm's metadata and the pages of a Python index."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import quote

import aiohttp

from sandbox.config import MirrorConfig
from sandbox.errors import MirrorRefusedError
from sandbox.package_mirror.packages import Outbound, Packument, read_packument
from sandbox.package_mirror.python_packages import ACCEPTED, read_index
from sandbox.package_mirror.registries import Registries

SHORT = "application/vnd.npm.install-v1+json"
"""Media type of the abbreviated metadata, which suffices for an install."""
_PARSED_AT_A_TIME = 2
"""Parsing the largest metadata takes hundreds of MiB for a moment."""
_FILE_COST = 400
"""Approximate memory of a file's name, URL and digest, in bytes."""


class Form(StrEnum):
    """What is asked of a registry."""

    SHORT = f"{SHORT}; q=1.0, application/json; q=0.8"
    """npm's abbreviated metadata; the value is the `Accept` of the request."""
    FULL = "application/json"
    PYTHON = ACCEPTED
    """A project's page of the simple index."""


class _Key(NamedTuple):
    name: str
    form: Form


class _Entry(NamedTuple):
    packument: Packument
    upstream_etag: str | None
    fresh_until: float
    cost: int


class Descriptions:
    """The metadata cache: one request to the registry serves all callers, and stale entries outlive its failures."""

    def __init__(self, outbound: Outbound, registries: Registries, config: MirrorConfig) -> None:
        self._outbound = outbound
        self._registries = registries
        self._config = config
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._cost = 0
        self._pending: dict[_Key, asyncio.Task[Packument]] = {}
        self._parsing = asyncio.Semaphore(_PARSED_AT_A_TIME)

    async def get(self, name: str, form: Form) -> tuple[Packument, bool]:
        """Return a package's metadata, and whether it came from the cache.

        Raises:
            MirrorRefusedError: there is no such package, or the registry failed.
        """
        key = _Key(name, form)
        entry = self._entries.get(key)
        if entry is not None and entry.fresh_until > time.monotonic():
            self._entries.move_to_end(key)
            return entry.packument, True
        task = self._pending.get(key)
        if task is None:
            task = self._pending[key] = asyncio.create_task(self._fetch(key, entry))
            task.add_done_callback(lambda _: self._pending.pop(key, None))
        try:
            return await asyncio.shield(task), False
        except MirrorRefusedError as error:
            if entry is None or error.status == 404:
                raise
            return entry.packument, True

    async def _fetch(self, key: _Key, stale: _Entry | None) -> Packument:
        url = self._url_of(key)
        headers = {"accept": key.form.value, "accept-encoding": "gzip"}
        if stale is not None and stale.upstream_etag is not None:
            headers["if-none-match"] = stale.upstream_etag
        async with self._outbound.get(url, headers) as response:
            if response.status == 304 and stale is not None:
                return self._keep(key, stale.packument, response.headers.get("etag"))
            _check_status(response.status)
            raw = await self._read(response)
            etag = response.headers.get("etag")
            kind, page_url = response.content_type, str(response.url)
        async with self._parsing:
            packument = await asyncio.to_thread(self._parse, key, raw, kind, page_url)
        return self._keep(key, packument, etag)

    def _url_of(self, key: _Key) -> str:
        if key.form is not Form.PYTHON:
            return self._registries.registry_of(key.name) + quote(key.name, safe="@~")
        if self._registries.python is None:
            raise MirrorRefusedError(404, "the operator has named no index of Python packages")
        return f"{self._registries.python}{key.name}/"

    def _parse(self, key: _Key, raw: bytes, kind: str, page_url: str) -> Packument:
        if key.form is not Form.PYTHON:
            return read_packument(raw, name=key.name, public_url=self._config.public_url)
        sdists = self._config.python_sdists
        return read_index(raw, kind=kind, name=key.name, page_url=page_url, sdists=sdists)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        parts = bytearray()
        async for part in response.content.iter_any():
            parts += part
            if len(parts) > self._config.metadata_bytes:
                raise MirrorRefusedError(
                    502, f"the registry's description is longer than {self._config.metadata_bytes} bytes"
                )
        return bytes(parts)

    def _keep(self, key: _Key, packument: Packument, etag: str | None) -> Packument:
        cost = len(packument.body) + _FILE_COST * (1 + len(packument.files))
        if (before := self._entries.pop(key, None)) is not None:
            self._cost -= before.cost
        self._entries[key] = _Entry(packument, etag, time.monotonic() + self._config.fresh_seconds, cost)
        self._cost += cost
        while self._cost > self._config.metadata_kept_bytes and len(self._entries) > 1:
            self._cost -= self._entries.popitem(last=False)[1].cost
        return packument


def _check_status(status: int) -> None:
    """Translate a registry's status for a caller, without revealing anything about the request.

    Raises:
        MirrorRefusedError: the status is not 200.
    """
    if status in (404, 405, 410):
        raise MirrorRefusedError(404, "the operator's registry has no such package")
    if status in (401, 403):
        raise MirrorRefusedError(502, "the registry does not let the mirror in")
    if status != 200:
        raise MirrorRefusedError(502, f"the registry answered {status}")
