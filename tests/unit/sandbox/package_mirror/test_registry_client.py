import asyncio
import socket
from pathlib import Path

import pytest

from gateway.network import is_public
from sandbox.package_mirror.config import AddressRefusedError, MirrorConfig, RegistryConfigError
from sandbox.package_mirror.registries import Registries
from sandbox.package_mirror.registry_client import Outbound, VettedResolver


@pytest.mark.threat("B6")
@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.17.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.100.100.200",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
        "192.0.2.1",
        "198.18.0.1",
        "",
        "example.org",
    ],
)
def test_an_address_behind_the_wall_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.threat("B6")
def test_a_name_is_judged_by_its_addresses_and_the_judged_ones_are_used() -> None:
    resolver = VettedResolver(frozenset({("localhost", 8443)}))
    found = asyncio.run(resolver.resolve("localhost", 8443))
    assert {result["host"] for result in found} <= {"127.0.0.1", "::1"}
    assert all(result["flags"] == socket.AI_NUMERICHOST for result in found)
    for port in (443, 80):
        with pytest.raises(AddressRefusedError):
            asyncio.run(resolver.resolve("localhost", port))


def test_a_ca_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    async def start() -> None:
        Outbound(Registries(default="https://packages.example/", ca_file=tmp_path / "gone"), MirrorConfig())

    with pytest.raises(RegistryConfigError, match="cafile"):
        asyncio.run(start())
