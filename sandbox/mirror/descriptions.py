"""What is known of packages: asked of the registry once for all, kept in memory, and served stale if need be."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import NamedTuple
from urllib.parse import quote

import aiohttp

from sandbox.mirror.config import MirrorConfig
from sandbox.mirror.errors import MirrorRefusedError
from sandbox.mirror.outbound import Outbound
from sandbox.mirror.packument import Packument, read_packument
from sandbox.mirror.registries import Registries

SHORT = "application/vnd.npm.install-v1+json"
"""The media type of the form that holds what an install needs."""
_ACCEPTED = {True: f"{SHORT}; q=1.0, application/json; q=0.8", False: "application/json"}
_PARSED_AT_A_TIME = 2
"""The largest descriptions take hundreds of MiB for a moment."""
_FILE_COST = 400
"""Bytes that a file's name, place and digest take in memory, roughly."""


class _Key(NamedTuple):
    name: str
    is_short: bool


class _Entry(NamedTuple):
    packument: Packument
    upstream_etag: str | None
    fresh_until: float
    cost: int


class Descriptions:
    """Every description that this mirror knows."""

    def __init__(self, outbound: Outbound, registries: Registries, config: MirrorConfig) -> None:
        self._outbound = outbound
        self._registries = registries
        self._config = config
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._cost = 0
        self._pending: dict[_Key, asyncio.Task[Packument]] = {}
        self._parsing = asyncio.Semaphore(_PARSED_AT_A_TIME)

    async def get(self, name: str, *, is_short: bool) -> tuple[Packument, bool]:
        """Return a package's description, and whether it was at hand.

        Raises:
            MirrorRefusedError: there is no such package, or the registry's fault.
        """
        key = _Key(name, is_short)
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

    async def _fetch(self, key: _Key, known: _Entry | None) -> Packument:
        url = self._registries.registry_of(key.name) + quote(key.name, safe="@~")
        headers = {"accept": _ACCEPTED[key.is_short], "accept-encoding": "gzip"}
        if known is not None and known.upstream_etag is not None:
            headers["if-none-match"] = known.upstream_etag
        async with self._outbound.get(url, headers) as response:
            if response.status == 304 and known is not None:
                return self._keep(key, known.packument, response.headers.get("etag"))
            _check_status(response.status)
            raw = await self._read(response)
            etag = response.headers.get("etag")
        async with self._parsing:
            packument = await asyncio.to_thread(
                read_packument, raw, name=key.name, public_url=self._config.public_url
            )  # fmt: skip
        return self._keep(key, packument, etag)

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
    """Say what the registry's answer means to a caller; never how the registry was asked.

    Raises:
        MirrorRefusedError: it is no description.
    """
    if status in (404, 405, 410):
        raise MirrorRefusedError(404, "the operator's registry has no such package")
    if status in (401, 403):
        raise MirrorRefusedError(502, "the registry does not let the mirror in")
    if status != 200:
        raise MirrorRefusedError(502, f"the registry answered {status}")
