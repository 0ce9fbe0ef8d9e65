import ipaddress
import json
from typing import Any

import pytest

from sandbox.box import BoxLimits, BoxSpec, Target
from sandbox.docker import recipe
from sandbox.docker.box import Frames
from sandbox.docker.engine import reason_of
from sandbox.docker.recipe import SECCOMP, Slot

SLOT = Slot("test", "0123", "me", 9_999_999_999)


def spec(**fields: Any) -> BoxSpec:
    return BoxSpec(**({"image": "sha256:abc", "gateway": Target("", 8090)} | fields))


def test_a_spec_of_the_same_things_has_the_same_digest_and_any_other_has_another() -> None:
    others = [
        spec(image="sha256:def"),
        spec(gateway=Target("", 1)),
        spec(mirror=Target("", 2)),
        spec(runtime="runsc"),
        spec(limits=BoxLimits(processes=9)),
    ]

    assert spec().digest == spec().digest
    assert len({spec().digest, *(other.digest for other in others)}) == 6


def test_the_addresses_of_a_slot_lie_in_its_own_network() -> None:
    pool = ipaddress.IPv4Network("10.213.0.0/24")
    for _ in range(50):
        subnet = recipe.pick_subnet(pool)
        found = recipe.addresses(subnet)
        assert subnet.prefixlen == 29
        assert subnet.subnet_of(pool)
        assert len({found.box, found.forwarder, str(next(subnet.hosts()))}) == 3
        assert ipaddress.IPv4Address(found.box) in subnet


@pytest.mark.threat("B2")
def test_the_inner_network_gives_the_host_no_address() -> None:
    wanted = recipe.inner_network(SLOT, "10.0.0.0/29")

    assert wanted["internal"]
    assert wanted["options"]["com.docker.network.bridge.inhibit_ipv4"] == "true"


def test_forwarders_cannot_reach_each_other_and_lead_no_further_than_needed() -> None:
    near, far = (recipe.outer_network("test", has_masquerade=value) for value in (False, True))

    assert near["options"]["com.docker.network.bridge.enable_icc"] == "false"
    assert near["options"]["com.docker.network.bridge.enable_ip_masquerade"] == "false"
    assert far["options"]["com.docker.network.bridge.enable_ip_masquerade"] == "true"
    assert near["name"] != far["name"]


def test_every_object_of_a_slot_carries_the_installation_its_owner_and_its_deadline() -> None:
    made = [
        recipe.inner_network(SLOT, "10.0.0.0/29"),
        recipe.workspace_volume(SLOT, spec()),
        recipe.box_container(SLOT, spec(), forwarder="10.0.0.2", lifetime_seconds=60),
        recipe.forwarder_container(SLOT, spec(), outer="o", listen="10.0.0.2", host="172.18.0.1", lifetime_seconds=60),
    ]

    for wanted in made:
        labels = wanted["labels"]
        assert (labels["pointsman.install"], labels["pointsman.slot"], labels["pointsman.owner"]) == (
            "test",
            "0123",
            "me",
        )
        assert labels["pointsman.deadline"].isdigit()


def test_a_forwarder_leads_to_the_host_unless_a_target_names_another() -> None:
    wanted = recipe.forwarder_container(
        SLOT,
        spec(mirror=Target("192.0.2.9", 8091)),
        outer="o",
        listen="10.0.0.2",
        host="172.18.0.1",
        lifetime_seconds=60,
    )

    assert wanted["command"][-3:] == ["10.0.0.2", "8080=172.18.0.1:8090", "8081=192.0.2.9:8091"]


@pytest.mark.threat("C1")
@pytest.mark.req("H-110")
def test_a_box_is_made_without_any_environment() -> None:
    wanted = recipe.box_container(SLOT, spec(), forwarder="10.0.0.2", lifetime_seconds=60)

    assert wanted["environment"] == {}
    assert [mount["Type"] for mount in wanted["mounts"]] == ["volume"]


FRAME = b"\x01\0\0\0\0\0\0\x03abc" + b"\x02\0\0\0\0\0\0\x02no" + b"\x01\0\0\0\0\0\0\0" + b"\x01\0\0\0\0\0\0\x01d"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_frames_are_read_however_they_are_cut(size: int) -> None:
    frames = Frames()
    pieces = [frames.feed(FRAME[place : place + size]) for place in range(0, len(FRAME), size)]

    assert b"".join(piece.stdout for piece in pieces) == b"abcd"
    assert b"".join(piece.stderr for piece in pieces) == b"no"


def test_what_is_no_frame_is_a_broken_connection() -> None:
    with pytest.raises(ConnectionError):
        Frames().feed(b"HTTP/1.1 500 Internal Server Error")


@pytest.mark.threat("A15")
@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        (403, "Pool overlaps with other one on this address space", "subnet_taken"),
        (404, "No such image: pointsman-box:1", "image_missing"),
        (400, "Unknown runtime specified runsc", "runtime_missing"),
        (409, "network with name x already exists", "name_taken"),
        (500, "write /var/lib: no space left on device", "disk_full"),
        (500, "cgroups: cgroup mountpoint does not exist: unknown", "cgroups_missing"),
        (400, "invalid option", "option_refused"),
        (500, "boom", "engine_failed"),
    ],
)
def test_a_refusal_of_the_engine_has_one_reason(status: int, message: str, reason: str) -> None:
    assert reason_of(status, message) == reason


# The list of system calls: what is not on it, and that it is one the engine can read.

PROFILE = json.loads(SECCOMP)
ALLOWED = {name: rule for rule in PROFILE["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}


def test_what_is_not_named_is_refused() -> None:
    assert PROFILE["defaultAction"] == "SCMP_ACT_ERRNO"
    assert {"architectures", "archMap"}.isdisjoint(PROFILE)


@pytest.mark.threat("A3")
@pytest.mark.parametrize(
    "name",
    [
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "pidfd_getfd",
        "io_uring_setup",
        "io_uring_enter",
        "mount",
        "unshare",
        "setns",
        "bpf",
        "perf_event_open",
        "keyctl",
        "add_key",
        "userfaultfd",
        "kexec_load",
        "init_module",
        "open_by_handle_at",
        "reboot",
        "swapon",
        "chroot",
        "pivot_root",
        "socketcall",
        "acct",
        "iopl",
        "quotactl",
        "fsopen",
        "move_mount",
        "clone3",
        "settimeofday",
        "sethostname",
        "syslog",
        "modify_ldt",
    ],
)
def test_what_a_box_has_no_need_of_is_not_named(name: str) -> None:
    assert name not in ALLOWED


@pytest.mark.threat("A3", "B1")
def test_sockets_are_of_the_kinds_that_a_network_namespace_holds() -> None:
    families = {
        name: sorted(rule["args"][0]["value"] for rule in PROFILE["syscalls"] if rule["names"] == [name])
        for name in ("socket", "socketpair")
    }
    assert families == {"socket": [1, 2, 10, 16], "socketpair": [1]}


def test_what_node_and_the_shell_live_on_is_named() -> None:
    assert {"read", "write", "openat", "futex", "epoll_wait", "execve", "connect", "statx", "mmap"} <= set(ALLOWED)
