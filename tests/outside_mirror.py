"""The product's package mirror with one foot on each side of the tests' wall: reached from the engine's network, and
reaching the machine's own registries.

A socket belongs to the network in which it was made, whoever serves it. So it is made inside, where boxes' forwarders
are seen by their addresses, and handed on to a mirror outside, where there is a way to the registry.
"""

import os
import socket
import ssl
import sys
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx2
import uvicorn

from routing.policy.platform import platform_policy
from sandbox.config import MirrorConfig
from sandbox.errors import RegistryConfigError
from sandbox.package_mirror.app import fleet_mirror, server_config
from sandbox.package_mirror.registries import read_all, read_registries


def unreachable() -> str:
    """Why packages cannot be had on this machine; empty when they can."""
    try:
        registries = read_registries(MirrorConfig().npm, os.environ)
    except RegistryConfigError as error:
        return str(error)
    url = f"{registries.default}three"
    authorization = registries.authorization_of(url)
    headers = {"authorization": authorization} if authorization else {}
    verify = ssl.create_default_context(cafile=registries.ca_file)
    try:
        httpx2.head(url, headers=headers, verify=verify, timeout=30, follow_redirects=True).raise_for_status()
    except httpx2.HTTPError as error:
        return f"npm's registry, as `npm config get registry` names it, does not give packages: {error}"
    return ""


def python_file_hosts(*names: str) -> set[str]:
    """Return the hosts of projects' files, which may be at a private address here; empty where there is no index."""
    registries = read_all(MirrorConfig(), os.environ)
    if registries.python is None:
        return set()
    verify = ssl.create_default_context(cafile=registries.python_ca_file)
    headers = {"accept": "application/vnd.pypi.simple.v1+json"}
    authorization = registries.authorization_of(registries.python)
    if authorization is not None:
        headers["authorization"] = authorization
    hosts = set()
    with httpx2.Client(headers=headers, verify=verify, timeout=30, follow_redirects=True) as client:
        for name in names:
            page = client.get(f"{registries.python}{name}/").raise_for_status()
            hosts |= {urlsplit(urljoin(str(page.url), file["url"])).hostname or "" for file in page.json()["files"]}
    return hosts


def serve(descriptor: int) -> None:
    """Outside: serve a socket of the inside."""
    hosts = frozenset(os.environ["MIRROR_PYTHON_FILES"].split())
    config = MirrorConfig(cache=Path(os.environ["MIRROR_CACHE"]), python_files=hosts)
    registries = read_all(config, os.environ)
    mirror = fleet_mirror(config, os.environ["MIRROR_LEDGER"], platform_policy(), registries)
    server = uvicorn.Server(server_config(config, mirror))
    server.run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    serve(int(sys.argv[1]))
