"""What the engine is asked for, as values: every object of a slot, and how each is named and labelled.

A slot is one box with all that is its own: an inner network, a workspace volume, a forwarder (notes 2.2). Nothing here
talks to an engine, so what is asked for can be read, digested and tested without one.
"""

from __future__ import annotations

import ipaddress
import secrets
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

from docker.types import IPAMConfig, IPAMPool, LogConfig, Mount, Ulimit

from sandbox.box import DOOR_HOST, GATEWAY_PORT, MEBIBYTE, MIRROR_PORT, WORKSPACE, BoxSpec, Target
from sandbox.docker.seccomp import SECCOMP

USER = "1000:1000"
HOME = "/home/agent"
RUN = "/run/box"
"""Where the runner leaves the id of a command's process group."""
TOOLS = "/usr/local/lib/pointsman"
SECURITY = ("no-new-privileges:true", f"seccomp={SECCOMP}")
FORWARDER_MEMORY = 160 * MEBIBYTE
SLACK_SECONDS = 60
"""How much longer than its box a forwarder lives."""

INSTALL = "pointsman.install"
SLOT = "pointsman.slot"
KIND = "pointsman.kind"
OWNER = "pointsman.owner"
DEADLINE = "pointsman.deadline"


class Kind:
    """What a labelled object is."""

    BOX = "box"
    FORWARDER = "forwarder"
    INNER = "inner"
    WORKSPACE = "workspace"
    OUTER = "outer"


class Addresses(NamedTuple):
    """The addresses within one inner network, a /29 of its own."""

    subnet: str
    forwarder: str
    box: str


def addresses(subnet: ipaddress.IPv4Network) -> Addresses:
    """Return who gets which address; the first is what the engine would give to the host, which gets none."""
    hosts = list(subnet.hosts())
    return Addresses(str(subnet), str(hosts[1]), str(hosts[2]))


def pick_subnet(pool: ipaddress.IPv4Network) -> ipaddress.IPv4Network:
    """Return a random /29: two processes need not agree on which are taken, as the engine refuses a second use."""
    count = 1 << (29 - pool.prefixlen)
    return ipaddress.IPv4Network((int(pool.network_address) + 8 * secrets.randbelow(count), 29))


@dataclass(frozen=True)
class Slot:
    """The name and the labels of one box and all that is its own."""

    install: str
    id: str
    owner: str
    deadline: int
    """Unix seconds after which the reaper takes it, whoever owns it."""

    @classmethod
    def new(cls, install: str, owner: str, *, lifetime_seconds: int) -> Slot:
        """Return a slot that nobody has used."""
        return cls(install, secrets.token_hex(6), owner, int(time.time()) + lifetime_seconds + SLACK_SECONDS)

    def name(self, kind: str) -> str:
        """Return the name of one of its objects."""
        return f"pointsman-{self.install}-{self.id}-{kind}"

    def labels(self, kind: str) -> dict[str, str]:
        """Return the labels by which the reaper finds one of its objects."""
        return {
            INSTALL: self.install, SLOT: self.id, KIND: kind, OWNER: self.owner, DEADLINE: str(self.deadline),
        }  # fmt: skip


def inner_network(slot: Slot, subnet: str) -> dict[str, Any]:
    """Return arguments of a network whose only members are a box and its forwarder.

    `internal` alone leaves the engine's host reachable by its address on the bridge; without an address there is
    nothing to reach (threat B2).
    """
    return {
        "name": slot.name(Kind.INNER),
        "driver": "bridge",
        "internal": True,
        "attachable": False,
        "enable_ipv6": False,
        "check_duplicate": True,
        "labels": slot.labels(Kind.INNER),
        "options": {"com.docker.network.bridge.inhibit_ipv4": "true"},
        "ipam": IPAMConfig(pool_configs=[IPAMPool(subnet=subnet)]),
    }


def outer_network(install: str, *, has_masquerade: bool) -> dict[str, Any]:
    """Return arguments of the network between the forwarders of an installation and its gateway.

    Its members cannot reach each other, and it leads no further than the host unless the gateway is elsewhere.
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
    """Return arguments of a volume in memory: a tmpfs mount of the container itself could not be read from outside."""
    limits = spec.limits
    options = (
        f"size={limits.workspace_bytes},nr_inodes={limits.workspace_files},uid=1000,gid=1000,mode=0700,nosuid,nodev"
    )
    return {
        "name": slot.name(Kind.WORKSPACE),
        "driver": "local",
        "driver_opts": {"type": "tmpfs", "device": "tmpfs", "o": options},
        "labels": slot.labels(Kind.WORKSPACE),
    }


def _confined(slot: Slot, spec: BoxSpec, kind: str) -> dict[str, Any]:
    """Return what holds for every container of a slot."""
    return {
        "image": spec.image,
        "name": slot.name(kind),
        "entrypoint": [],
        "environment": {},
        "labels": slot.labels(kind),
        "user": USER,
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


def box_container(slot: Slot, spec: BoxSpec, *, forwarder: str, lifetime_seconds: int) -> dict[str, Any]:
    """Return arguments of the box itself; it ends by itself after its lifetime, even if its worker is long dead."""
    limits = spec.limits
    return _confined(slot, spec, Kind.BOX) | {
        "command": ["sleep", str(lifetime_seconds)],
        "hostname": "box",
        "working_dir": WORKSPACE,
        "network": slot.name(Kind.INNER),
        "extra_hosts": {DOOR_HOST: forwarder},
        "mounts": [Mount(type="volume", source=slot.name(Kind.WORKSPACE), target=WORKSPACE)],
        "tmpfs": {
            "/tmp": f"rw,noexec,nosuid,nodev,size={128 * MEBIBYTE},mode=1777",
            HOME: f"rw,nosuid,nodev,size={256 * MEBIBYTE},uid=1000,gid=1000,mode=0700",
            RUN: f"rw,noexec,nosuid,nodev,size={MEBIBYTE},uid=1000,gid=1000,mode=0700",
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
    """Return arguments of a box's door: it listens on the inner network alone, and leads to one or two ports.

    Args:
        slot: whose it is.
        spec: names where the door leads.
        outer: the outer network's name.
        listen: its address on the inner network.
        host: the engine's host on the outer network, where a target names no other.
        lifetime_seconds: how long the box lives.
    """
    ways = [f"{GATEWAY_PORT}={_address(spec.gateway, host)}"]
    if spec.mirror is not None:
        ways.append(f"{MIRROR_PORT}={_address(spec.mirror, host)}")
    return _confined(slot, spec, Kind.FORWARDER) | {
        "command": [
            "timeout", str(lifetime_seconds + SLACK_SECONDS),
            "node", "--max-old-space-size=48", f"{TOOLS}/forward.mjs", listen, *ways,
        ],
        "hostname": "door",
        "network": outer,
        "sysctls": {"net.ipv4.ip_forward": "0"},
        "mem_limit": FORWARDER_MEMORY,
        "memswap_limit": FORWARDER_MEMORY,
        "nano_cpus": 500_000_000,
        "pids_limit": 32,
        "ulimits": [Ulimit(name="nofile", soft=1024, hard=1024), Ulimit(name="core", soft=0, hard=0)],
    }  # fmt: skip


def _address(target: Target, host: str) -> str:
    return f"{target.host or host}:{target.port}"
