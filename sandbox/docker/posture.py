"""Compares what the engine says it made with what a box has to be, before anything runs in it (threat A14).

An engine that does not know an option may drop it silently; a patch of the recipe may weaken it. Whatever differs here
stops the start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sandbox.box import DOOR_HOST, WORKSPACE, BoxSpec
from sandbox.docker.recipe import FORWARDER_MEMORY, SECURITY, USER, Kind, Slot, inner_network, workspace_volume

_HOST_KEYS_EMPTY = (
    "Binds",
    "VolumesFrom",
    "CapAdd",
    "Devices",
    "DeviceCgroupRules",
    "DeviceRequests",
    "GroupAdd",
    "Links",
    "PortBindings",
    "PidMode",
    "UTSMode",
    "UsernsMode",
    "Privileged",
    "PublishAllPorts",
    "OomKillDisable",
)
"""What must be absent, null, empty or false."""


def check_box(found: Mapping[str, Any], slot: Slot, spec: BoxSpec, *, forwarder: str) -> list[str]:
    """Return everything by which an inspected box differs from what it has to be; empty when it may start."""
    limits = spec.limits
    expected_host = {
        "NetworkMode": slot.name(Kind.INNER),
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,
        "NanoCpus": int(limits.cpus * 1_000_000_000),
        "PidsLimit": limits.processes,
        "ExtraHosts": [f"{DOOR_HOST}:{forwarder}"],
        "Sysctls": None,
    }
    return [
        *_common(found, spec, networks={slot.name(Kind.INNER)}),
        *_differences("HostConfig", found["HostConfig"], expected_host),
        *_mounts(found, slot),
        *_ulimits(found, limits.file_bytes),
    ]


def check_forwarder(found: Mapping[str, Any], slot: Slot, spec: BoxSpec, *, outer: str) -> list[str]:
    """Return everything by which an inspected forwarder differs from what it has to be."""
    expected = {
        "NetworkMode": outer,
        "Memory": FORWARDER_MEMORY,
        "MemorySwap": FORWARDER_MEMORY,
        "PidsLimit": 32,
        "Sysctls": {"net.ipv4.ip_forward": "0"},
    }
    return [
        *_common(found, spec, networks={outer, slot.name(Kind.INNER)}),
        *_differences("HostConfig", found["HostConfig"], expected),
        *(["Mounts is not empty"] if found["Mounts"] or found["HostConfig"].get("Tmpfs") else []),
    ]


def check_inner(found: Mapping[str, Any], slot: Slot, *, subnet: str) -> list[str]:
    """Return everything by which an inspected inner network differs from what it has to be."""
    wanted = inner_network(slot, subnet)
    expected = {
        "Name": wanted["name"],
        "Driver": "bridge",
        "Scope": "local",
        "Internal": True,
        "EnableIPv6": False,
        "Attachable": False,
        "Ingress": False,
        "Labels": wanted["labels"],
        "Options": wanted["options"],
    }
    subnets = [part["Subnet"] for part in found["IPAM"]["Config"]]
    return [
        *_differences("Network", found, expected),
        *(["Network.IPAM has another subnet"] if subnets != [subnet] else []),
        *(["Network.Containers is not empty"] if found.get("Containers") else []),
    ]


def check_given_outer(found: Mapping[str, Any]) -> list[str]:
    """Return everything by which an inspected network of the operator's is no place for forwarders.

    Who is on it the operator says; but nothing there may lead to the internet, or to the engine's host (threat B2).
    """
    expected = {"Driver": "bridge", "Scope": "local", "Internal": True, "EnableIPv6": False}
    inhibit = "com.docker.network.bridge.inhibit_ipv4"
    return [
        *_differences("Network", found, expected),
        *_differences("Network.Options", found.get("Options") or {}, {inhibit: "true"}),
    ]


def check_volume(found: Mapping[str, Any], slot: Slot, spec: BoxSpec) -> list[str]:
    """Return everything by which an inspected workspace differs from what it has to be: above all, on no disk."""
    wanted = workspace_volume(slot, spec)
    expected = {"Name": wanted["name"], "Driver": "local", "Labels": wanted["labels"], "Options": wanted["driver_opts"]}
    return list(_differences("Volume", found, expected))


def _common(found: Mapping[str, Any], spec: BoxSpec, *, networks: set[str]) -> Iterator[str]:
    host = found["HostConfig"]
    for key in _HOST_KEYS_EMPTY:
        if host.get(key):
            yield f"HostConfig.{key} is set"
    expected = {
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "AutoRemove": True,
    }
    yield from _differences("HostConfig", host, expected)
    if sorted(host.get("SecurityOpt") or []) != sorted(SECURITY):
        yield "HostConfig.SecurityOpt is not no-new-privileges with our list of system calls"
    if spec.runtime is not None and host.get("Runtime") != spec.runtime:
        yield "HostConfig.Runtime is another"
    if not host.get("MaskedPaths") or not host.get("ReadonlyPaths"):
        yield "HostConfig.MaskedPaths or ReadonlyPaths is empty"
    yield from _differences("Config", found["Config"], {"User": USER})
    if found["Image"] != spec.image:
        yield "Image is another"
    if set(found["NetworkSettings"]["Networks"]) != networks:
        yield "NetworkSettings.Networks are others"
    if named := [entry.split("=", 1)[0] for entry in found["Config"]["Env"] or [] if not entry.startswith("PATH=")]:
        yield f"Config.Env names {', '.join(named)}"


def _differences(part: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    for key, value in expected.items():
        if (found.get(key) or None) != (value or None):
            yield f"{part}.{key} is {found.get(key)!r}, not {value!r}"


def _mounts(found: Mapping[str, Any], slot: Slot) -> Iterator[str]:
    volumes = [(mount["Type"], mount.get("Name"), mount["Destination"]) for mount in found["Mounts"]]
    if volumes != [("volume", slot.name(Kind.WORKSPACE), WORKSPACE)]:
        yield f"Mounts are {volumes!r}"
    for where, options in (found["HostConfig"].get("Tmpfs") or {}).items():
        if not {"nosuid", "nodev"} <= set(options.split(",")):
            yield f"HostConfig.Tmpfs of {where} lacks nosuid or nodev"


def _ulimits(found: Mapping[str, Any], file_bytes: int) -> Iterator[str]:
    limits = {limit["Name"]: limit["Hard"] for limit in found["HostConfig"].get("Ulimits") or []}
    if limits.get("fsize") != file_bytes:
        yield "HostConfig.Ulimits has another fsize"
    if limits.get("core") != 0:
        yield "HostConfig.Ulimits allows core files"
