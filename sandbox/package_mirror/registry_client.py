"""The mirror's way out: to the operator's registries wherever they are, and from there to public addresses only.

What a registry's answer leads to (a tarball elsewhere, a redirect) is the registry's word, and a hostile package may be
behind it: each hop is looked at, and the connection goes to the very address that was judged.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.network import is_public
from sandbox.package_mirror.config import AddressRefusedError, MirrorConfig, MirrorRefusedError, RegistryConfigError
from sandbox.package_mirror.packages import Packument, read_packument
from sandbox.package_mirror.registries import Registries, host_of

_MAX_HOPS = 4
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class VettedResolver(AbstractResolver):
    """Resolves names, and refuses those of which any address is not public. A registry's own host is exempt."""

    def __init__(self, origins: frozenset[tuple[str, int]]) -> None:
        self._origins = origins

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host.

        Raises:
            AddressRefusedError: the registry's fault: one of them is not public.
            OSError: the name cannot be resolved.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        addresses = [(str(entry[4][0]), entry[0]) for entry in found]
        if (host.rstrip("."), port) not in self._origins and not all(is_public(address) for address, _ in addresses):
            raise AddressRefusedError(f"{host} has an address that is not public")
        return [
            ResolveResult(hostname=host, host=address, port=port, family=kind, proto=0, flags=socket.AI_NUMERICHOST)
            for address, kind in addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""


class Outbound:
    """Fetches from the registries. Needs a running event loop."""

    def __init__(self, registries: Registries, config: MirrorConfig) -> None:
        self._registries = registries
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=config.upstream_connections,
                resolver=VettedResolver(registries.origins),
                ssl=_trust(registries),
                use_dns_cache=False,  # a name is judged each time that it is used
            ),
            timeout=aiohttp.ClientTimeout(
                total=config.request_seconds, sock_connect=config.connect_seconds, sock_read=config.silence_seconds
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            headers={"user-agent": "pointsman-mirror"},
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    @asynccontextmanager
    async def get(
        self, url: str, headers: Mapping[str, str], *, is_raw: bool = False
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Fetch a URL, over redirects that lead to allowed places.

        Args:
            url: what to fetch.
            headers: nothing of them may come from a box.
            is_raw: whether the body's bytes are wanted as they are sent, not decompressed.

        Raises:
            MirrorRefusedError: the registry's fault: it cannot be reached, is too slow, or leads to a wrong place.
        """
        try:
            async with self._follow(url, headers, is_raw=is_raw) as response:
                yield response
        except AddressRefusedError:
            raise MirrorRefusedError(502, "the registry leads to an address that is not public") from None
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, AddressRefusedError):
                raise MirrorRefusedError(502, "the registry leads to an address that is not public") from None
            raise MirrorRefusedError(502, "the registry cannot be reached") from None
        except TimeoutError:
            raise MirrorRefusedError(504, "the registry took too long") from None
        except aiohttp.ClientError:
            raise MirrorRefusedError(502, "the registry broke off or cannot be understood") from None

    @asynccontextmanager
    async def _follow(
        self, url: str, headers: Mapping[str, str], *, is_raw: bool
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        for _ in range(_MAX_HOPS):
            self._check(url)
            authorization = self._registries.authorization_of(url)
            sent = {**headers, **({"authorization": authorization} if authorization else {})}
            async with self._session.get(
                url, headers=sent, allow_redirects=False, auto_decompress=not is_raw
            ) as response:
                target = response.headers.get("location")
                if response.status not in _REDIRECTS or target is None:
                    yield response
                    return
            url = urljoin(url, target)
        raise MirrorRefusedError(502, "the registry redirects too often")

    def _check(self, url: str) -> None:
        """Refuse what the resolver does not get to see: schemes, ports and addresses that stand in the URL."""
        try:
            origin = host_of(url)
            scheme = urlsplit(url).scheme
        except ValueError:
            raise MirrorRefusedError(502, "the registry leads to something that is no URL") from None
        if origin in self._registries.origins:
            return
        if scheme != "https" or origin[1] != 443:
            raise MirrorRefusedError(502, "the registry leads to a place that is not https")
        if _is_address(origin[0]) and not is_public(origin[0]):
            raise MirrorRefusedError(502, "the registry leads to an address that is not public")


def _is_address(host: str) -> bool:
    """Tell whether a host is an address in any form that a socket would take: `127.1` and `0x7f.1` are some, too."""
    return ":" in host or host.rpartition(".")[2][:1].isdigit()


def _trust(registries: Registries) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=registries.ca_file)
    except (OSError, ssl.SSLError):
        raise RegistryConfigError(f"npm's cafile {registries.ca_file} cannot be read") from None


# What is known of packages: asked of the registry once for all, kept in memory, and served stale if need be.

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
            packument = await asyncio.to_thread(read_packument, raw, name=key.name, public_url=self._config.public_url)
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
