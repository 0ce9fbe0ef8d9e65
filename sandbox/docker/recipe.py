"""The posture of a box, as values: what the engine is asked to create, and what it must have created.

A slot is one box and everything of its own: an inner network, a workspace volume, a forwarder (notes 2.2). Before
anything starts, each inspected object is compared with its recipe (threat A14): an engine may silently drop an option
that it does not support. Nothing here talks to an engine.
"""

from __future__ import annotations

import ipaddress
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from docker.types import IPAMConfig, IPAMPool, LogConfig, Mount, Ulimit

from sandbox.box_spec import GATEWAY_PORT, MEBIBYTE, MIRROR_PORT, WORKSPACE, BoxSpec, Target
from sandbox.docker.seccomp import SECCOMP

UIDS: Final = range(0x7000_0000, 0x7FFF_0000)
"""Users of boxes, one each: the kernel counts inotify instances, pipe pages and the like for each user of the host, who
else might be anybody there. By convention no host has accounts in this range."""
MAPPED_UIDS: Final = range(16_384, 49_152)
"""Users of boxes on an engine that maps users, which has only 65,536."""
HOME = "/home/agent"
RUN = "/run/box"
"""Where the runner stores the id of a command's process group."""
TOOLS = "/usr/local/lib/pointsman"
SECURITY = ("no-new-privileges:true", f"seccomp={SECCOMP}")
FORWARDER_MEMORY = 160 * MEBIBYTE
SLACK_SECONDS = 60
"""How much longer a forwarder lives than its box."""

INSTALL = "pointsman.install"
SLOT = "pointsman.slot"
KIND = "pointsman.kind"
OWNER = "pointsman.owner"
DEADLINE = "pointsman.deadline"
PARTS = "pointsman.parts"
"""Label of a project's own image: the digest of what every box's image has of ours."""


class Kind:
    """Kinds of labelled objects."""

    BOX = "box"
    FORWARDER = "forwarder"
    INNER = "inner"
    BRIDGE = "bridge"
    WORKSPACE = "workspace"
    SERVICE = "service"
    OUTER = "outer"


class Addresses(NamedTuple):
    """The addresses in one inner network, a /29."""

    subnet: str
    forwarder: str
    services: tuple[str, ...]
    """Free for these; the box gets the one that is left."""


def addresses(subnet: ipaddress.IPv4Network) -> Addresses:
    """Return a network's addresses; the first one, which the engine would give the host, stays unused."""
    hosts = list(subnet.hosts())
    return Addresses(str(subnet), str(hosts[1]), tuple(map(str, hosts[3:])))


def pick_subnet(pool: ipaddress.IPv4Network) -> ipaddress.IPv4Network:
    """Return a random /29; processes need not coordinate, because the engine refuses one in use."""
    count = 1 << (29 - pool.prefixlen)
    return ipaddress.IPv4Network((int(pool.network_address) + 8 * secrets.randbelow(count), 29))


@dataclass(frozen=True)
class Slot:
    """The names and labels of one box and everything of its own."""

    install: str
    id: str
    owner: str
    deadline: int
    """Unix time after which the reaper removes it, whoever owns it."""
    uid: int = 1000
    """User and group of its programs and files."""

    @classmethod
    def new(cls, install: str, owner: str, *, lifetime_seconds: int, uids: range = UIDS) -> Slot:
        """Return a new slot."""
        deadline = int(time.time()) + lifetime_seconds + SLACK_SECONDS
        return cls(install, secrets.token_hex(6), owner, deadline, secrets.choice(uids))

    @property
    def user(self) -> str:
        """User and group as the engine takes them."""
        return f"{self.uid}:{self.uid}"

    def name(self, kind: str) -> str:
        """Return the name of the slot's object of a kind."""
        return f"pointsman-{self.install}-{self.id}-{kind}"

    def labels(self, kind: str) -> dict[str, str]:
        """Return the labels by which the reaper finds that object."""
        return {
            INSTALL: self.install,
            SLOT: self.id,
            KIND: kind,
            OWNER: self.owner,
            DEADLINE: str(self.deadline),
        }


def bridge_name(slot: Slot) -> str:
    """Return the name of the inner network's bridge on the engine's host."""
    return f"pm-{slot.id}"


def inner_network(slot: Slot, subnet: str) -> dict[str, Any]:
    """Return the arguments of a network whose only members are a box and its forwarder.

    `internal` alone leaves the engine's host reachable by its address on the bridge, so it gets none (threat B2). The
    bridge's name lets an operator's firewall drop what comes from any box: `-i pm-+`.
    """
    return {
        "name": slot.name(Kind.INNER),
        "driver": "bridge",
        "internal": True,
        "attachable": False,
        "enable_ipv6": False,
        "check_duplicate": True,
        "labels": slot.labels(Kind.INNER),
        "options": {
            "com.docker.network.bridge.inhibit_ipv4": "true",
            "com.docker.network.bridge.name": bridge_name(slot),
        },
        "ipam": IPAMConfig(pool_configs=[IPAMPool(subnet=subnet)]),
    }


def outer_network(install: str, *, has_masquerade: bool) -> dict[str, Any]:
    """Return the arguments of the network between an installation's forwarders and its gateway.

    Its members cannot reach each other, nor anything beyond the host unless the gateway is elsewhere.
    """
    return {
        "name": f"pointsman-{install}-{Kind.OUTER}{'-nat' if has_masquerade else ''}",
        "driver": "bridge",
        "attachable": False,
        "enable_ipv6": False,
        "check_duplicate": True,
        "labels": {INSTALL: install, KIND: Kind.OUTER},
        "options": {
            "com.docker.network.bridge.enable_icc": "false",
            "com.docker.network.bridge.enable_ip_masquerade": str(has_masquerade).lower(),
        },
    }


def workspace_volume(slot: Slot, spec: BoxSpec) -> dict[str, Any]:
    """Return the arguments of a volume in memory; a tmpfs mount of the container could not be read from outside."""
    limits = spec.limits
    size = f"size={limits.workspace_bytes},nr_inodes={limits.workspace_files}"
    options = f"{size},uid={slot.uid},gid={slot.uid},mode=0700,nosuid,nodev"
    return {
        "name": slot.name(Kind.WORKSPACE),
        "driver": "local",
        "driver_opts": {"type": "tmpfs", "device": "tmpfs", "o": options},
        "labels": slot.labels(Kind.WORKSPACE),
    }


def confined(slot: Slot, spec: BoxSpec, kind: str) -> dict[str, Any]:
    """Return the arguments common to a slot's containers, but its bridge's."""
    return {
        "image": spec.image,
        "name": slot.name(kind),
        "entrypoint": [],
        "environment": {},
        "labels": slot.labels(kind),
        "user": slot.user,
        "read_only": True,
        "privileged": False,
        "cap_drop": ["ALL"],
        "security_opt": list(SECURITY),
        "ipc_mode": "private",
        "cgroupns": "private",
        "dns": ["127.0.0.1"],
        "dns_opt": ["timeout:1", "attempts:1"],
        "init": True,
        "auto_remove": True,
        "log_config": LogConfig(type="json-file", config={"max-size": "1m", "max-file": "1"}),
        "oom_score_adj": 500,
        **({"runtime": spec.runtime} if spec.runtime else {}),
    }


def bridge_container(slot: Slot, image: str) -> dict[str, Any]:
    """Return the arguments of the container that closes the engine's host to the inner network's bridge.

    It is the only one in the host's network: our own script, in place before anything untrusted is, and gone by then.
    Root needs no capability to set what /proc/sys/net says, but the engine shows it read-only unless told otherwise.
    """
    host = {
        "NetworkMode": "host",
        "UsernsMode": "host",
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": [*SECURITY, "apparmor=unconfined", "label=disable"],
        "ReadonlyPaths": [],
        "Memory": FORWARDER_MEMORY,
        "PidsLimit": 32,
        "LogConfig": {"Type": "none"},
    }
    return {
        "image": image,
        "name": slot.name(Kind.BRIDGE),
        "command": [f"{TOOLS}/bridge", bridge_name(slot)],
        "user": "0:0",
        "labels": slot.labels(Kind.BRIDGE),
        "host_config": host,
    }


def box_container(slot: Slot, spec: BoxSpec, *, hosts: Mapping[str, str], lifetime_seconds: int) -> dict[str, Any]:
    """Return the arguments of the box; it ends by itself after its lifetime, even if its worker is dead.

    `hosts` are the addresses of its forwarder and its services by name.
    """
    limits = spec.limits
    own = f"uid={slot.uid},gid={slot.uid},mode=0700"
    return confined(slot, spec.of_box, Kind.BOX) | {
        "command": ["sleep", str(lifetime_seconds)],
        "hostname": "box",
        "working_dir": WORKSPACE,
        "network": slot.name(Kind.INNER),
        "extra_hosts": dict(hosts),
        "mounts": [Mount(type="volume", source=slot.name(Kind.WORKSPACE), target=WORKSPACE)],
        "tmpfs": {
            "/tmp": f"rw,noexec,nosuid,nodev,size={128 * MEBIBYTE},mode=1777",
            HOME: f"rw,nosuid,nodev,size={256 * MEBIBYTE},{own}",
            RUN: f"rw,noexec,nosuid,nodev,size={MEBIBYTE},{own}",
        },
        "mem_limit": limits.memory_bytes,
        "memswap_limit": limits.memory_bytes,
        "nano_cpus": int(limits.cpus * 1_000_000_000),
        "pids_limit": limits.processes,
        "shm_size": 64 * MEBIBYTE,
        "ulimits": [
            Ulimit(name="fsize", soft=limits.file_bytes, hard=limits.file_bytes),
            Ulimit(name="nofile", soft=4096, hard=4096),
            Ulimit(name="core", soft=0, hard=0),
        ],
        "stop_signal": "SIGINT",
    }


def forwarder_container(
    slot: Slot, spec: BoxSpec, *, outer: str, listen: str, host: str, lifetime_seconds: int
) -> dict[str, Any]:
    """Return the arguments of a box's forwarder, which listens on the inner network only and leads to one or two ports.

    `listen` is its address on the inner network; `host` is the engine's host on the outer network, for targets without
    a host.
    """
    routes = [f"{GATEWAY_PORT}={_address(spec.gateway, host)}"]
    if spec.mirror is not None:
        routes.append(f"{MIRROR_PORT}={_address(spec.mirror, host)}")
    return confined(slot, spec, Kind.FORWARDER) | {
        "command": [
            "timeout",
            str(lifetime_seconds + SLACK_SECONDS),
            "node",
            "--max-old-space-size=48",
            f"{TOOLS}/forward.mjs",
            listen,
            *routes,
        ],
        "hostname": "egress",
        "network": outer,
        "sysctls": {"net.ipv4.ip_forward": "0"},
        "mem_limit": FORWARDER_MEMORY,
        "memswap_limit": FORWARDER_MEMORY,
        "nano_cpus": 500_000_000,
        "pids_limit": 32,
        "ulimits": [Ulimit(name="nofile", soft=1024, hard=1024), Ulimit(name="core", soft=0, hard=0)],
    }


def _address(target: Target, host: str) -> str:
    return f"{target.host or host}:{target.port}"


_HOST_KEYS_EMPTY_TEXT = """
Binds VolumesFrom CapAdd Devices DeviceCgroupRules DeviceRequests GroupAdd Links PortBindings PidMode UTSMode
UsernsMode Privileged PublishAllPorts OomKillDisable
"""
_HOST_KEYS_EMPTY = tuple(_HOST_KEYS_EMPTY_TEXT.split())
"""Keys that must be absent, null, empty or false."""


def check_box(found: Mapping[str, Any], slot: Slot, spec: BoxSpec, *, hosts: Mapping[str, str]) -> list[str]:
    """Return how an inspected box differs from its recipe; empty if it may start."""
    limits = spec.limits
    expected_host = {
        "NetworkMode": slot.name(Kind.INNER),
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,
        "NanoCpus": int(limits.cpus * 1_000_000_000),
        "PidsLimit": limits.processes,
        "ExtraHosts": [f"{name}:{address}" for name, address in sorted(hosts.items())],
        "Sysctls": None,
    }
    return [
        *common(found, slot, spec.of_box, networks={slot.name(Kind.INNER)}),
        *_of_our_image(found),
        *differences("HostConfig", found["HostConfig"], expected_host),
        *_mounts(found, slot),
        *_ulimits(found, limits.file_bytes),
    ]


def check_forwarder(found: Mapping[str, Any], slot: Slot, spec: BoxSpec, *, outer: str) -> list[str]:
    """Return how an inspected forwarder differs from its recipe."""
    expected = {
        "NetworkMode": outer,
        "Memory": FORWARDER_MEMORY,
        "MemorySwap": FORWARDER_MEMORY,
        "PidsLimit": 32,
        "Sysctls": {"net.ipv4.ip_forward": "0"},
    }
    return [
        *common(found, slot, spec, networks={outer, slot.name(Kind.INNER)}),
        *_of_our_image(found),
        *differences("HostConfig", found["HostConfig"], expected),
        *(["Mounts is not empty"] if found["Mounts"] or found["HostConfig"].get("Tmpfs") else []),
    ]


def check_inner(found: Mapping[str, Any], slot: Slot, *, subnet: str) -> list[str]:
    """Return how an inspected inner network differs from its recipe."""
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
        *differences("Network", found, expected),
        *(["Network.IPAM has another subnet"] if subnets != [subnet] else []),
        *(["Network.Containers is not empty"] if found.get("Containers") else []),
    ]


def check_given_outer(found: Mapping[str, Any]) -> list[str]:
    """Return why an inspected network of the operator's is unfit for forwarders.

    The operator chooses its members, but it may lead neither to the internet nor to the engine's host (threat B2).
    """
    expected = {"Driver": "bridge", "Scope": "local", "Internal": True, "EnableIPv6": False}
    inhibit = "com.docker.network.bridge.inhibit_ipv4"
    return [
        *differences("Network", found, expected),
        *differences("Network.Options", found.get("Options") or {}, {inhibit: "true"}),
    ]


def check_volume(found: Mapping[str, Any], slot: Slot, spec: BoxSpec) -> list[str]:
    """Return how an inspected workspace differs from its recipe."""
    return list(volume_differences(found, workspace_volume(slot, spec)))


def volume_differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """Yield how an inspected volume differs from its recipe: above all, it must not be on disk."""
    expected = {"Name": wanted["name"], "Driver": "local", "Labels": wanted["labels"], "Options": wanted["driver_opts"]}
    yield from differences("Volume", found, expected)


def common(found: Mapping[str, Any], slot: Slot, spec: BoxSpec, *, networks: set[str]) -> Iterator[str]:
    """Yield how any inspected container of a slot differs from what `confined` asks for."""
    host = found["HostConfig"]
    for key in _HOST_KEYS_EMPTY:
        if host.get(key):
            yield f"HostConfig.{key} is set"
    expected = {
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "IpcMode": "private",
        "CgroupnsMode": "private",
    }
    yield from differences("HostConfig", host, expected)
    if sorted(host.get("SecurityOpt") or []) != sorted(SECURITY):
        yield "HostConfig.SecurityOpt is not no-new-privileges with our list of system calls"
    if spec.runtime is not None and host.get("Runtime") != spec.runtime:
        yield "HostConfig.Runtime is another"
    if not host.get("MaskedPaths") or not host.get("ReadonlyPaths"):
        yield "HostConfig.MaskedPaths or ReadonlyPaths is empty"
    yield from differences("Config", found["Config"], {"User": slot.user})
    if found["Image"] != spec.image:
        yield "Image is another"
    if set(found["NetworkSettings"]["Networks"]) != networks:
        yield "NetworkSettings.Networks are others"


def _of_our_image(found: Mapping[str, Any]) -> Iterator[str]:
    yield from differences("HostConfig", found["HostConfig"], {"AutoRemove": True})
    if named := [entry.split("=", 1)[0] for entry in found["Config"]["Env"] or [] if not entry.startswith("PATH=")]:
        yield f"Config.Env names {', '.join(named)}"


def differences(part: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    """Yield which values of a part are others than expected; absent, null, empty and zero are the same."""
    for key, value in expected.items():
        if (found.get(key) or None) != (value or None):
            yield f"{part}.{key} is {found.get(key)!r}, not {value!r}"


def _mounts(found: Mapping[str, Any], slot: Slot) -> Iterator[str]:
    volumes = [(mount["Type"], mount.get("Name"), mount["Destination"]) for mount in found["Mounts"]]
    if volumes != [("volume", slot.name(Kind.WORKSPACE), WORKSPACE)]:
        yield f"Mounts are {volumes!r}"
    yield from tmpfs_weaknesses(found)


def tmpfs_weaknesses(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what an inspected container's file systems in memory lack."""
    for where, options in (found["HostConfig"].get("Tmpfs") or {}).items():
        if not {"nosuid", "nodev"} <= set(options.split(",")):
            yield f"HostConfig.Tmpfs of {where} lacks nosuid or nodev"


def _ulimits(found: Mapping[str, Any], file_bytes: int) -> Iterator[str]:
    limits = {limit["Name"]: limit["Hard"] for limit in found["HostConfig"].get("Ulimits") or []}
    if limits.get("fsize") != file_bytes:
        yield "HostConfig.Ulimits has another fsize"
    yield from core_weaknesses(found)


def core_weaknesses(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield whether an inspected container may leave core files."""
    limits = {limit["Name"]: limit["Hard"] for limit in found["HostConfig"].get("Ulimits") or []}
    if limits.get("core") != 0:
        yield "HostConfig.Ulimits allows core files"
