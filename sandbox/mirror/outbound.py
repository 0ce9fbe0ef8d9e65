"""The mirror's way out: to the operator's registries wherever they are, and from there to public addresses only.

What a registry's answer leads to (a tarball elsewhere, a redirect) is the registry's word, and a hostile package may be
behind it: each hop is looked at, and the connection goes to the very address that was judged.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from sandbox.addresses import is_public
from sandbox.mirror.config import MirrorConfig
from sandbox.mirror.errors import AddressRefusedError, MirrorRefusedError, RegistryConfigError
from sandbox.mirror.registries import Registries, host_of

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
