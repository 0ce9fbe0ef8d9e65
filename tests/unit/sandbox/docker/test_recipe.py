"""What an engine says it made, against what was asked: every weakening has to be seen before anything starts."""

import copy
import ipaddress
import json
from collections.abc import Callable
from typing import Any

import pytest

from routing.policy.services import MAX_SERVICES
from sandbox.box_spec import BoxLimits, BoxSpec, Target
from sandbox.docker import recipe
from sandbox.docker.engine import reason_of
from sandbox.docker.recipe import (
    FORWARDER_MEMORY,
    SECURITY,
    Kind,
    Slot,
    box_container,
    check_box,
    check_forwarder,
    check_given_outer,
    check_inner,
    check_volume,
    inner_network,
    workspace_volume,
)
from sandbox.docker.seccomp import SECCOMP

SPEC = BoxSpec(image="sha256:abc", gateway=Target("", 8090))
SLOT = Slot("test", "0123", "me", 9_999_999_999)
INNER, OUTER = SLOT.name(Kind.INNER), "pointsman-test-outer"


def confined(**host: Any) -> dict[str, Any]:
    return {
        "Image": "sha256:abc",
        "Config": {"User": "1000:1000", "Env": ["PATH=/usr/bin"]},
        "HostConfig": {
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "CapAdd": None,
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "AutoRemove": True,
            "SecurityOpt": list(SECURITY),
            "Privileged": False,
            "Binds": None,
            "MaskedPaths": ["/proc/kcore"],
            "ReadonlyPaths": ["/proc/sys"],
            "PidMode": "",
            "Runtime": "runc",
        }
        | host,
        "Mounts": [],
    }


def box() -> dict[str, Any]:
    made = confined(
        NetworkMode=INNER,
        Memory=SPEC.limits.memory_bytes,
        MemorySwap=SPEC.limits.memory_bytes,
        NanoCpus=2_000_000_000,
        PidsLimit=256,
        ExtraHosts=["egress:10.0.0.2"],
        Tmpfs={"/tmp": "rw,nosuid,nodev"},
        Ulimits=[{"Name": "fsize", "Hard": SPEC.limits.file_bytes}, {"Name": "core", "Hard": 0}],
    )
    made["Mounts"] = [{"Type": "volume", "Name": SLOT.name(Kind.WORKSPACE), "Destination": "/workspace"}]
    made["NetworkSettings"] = {"Networks": {INNER: {}}}
    return made


def forwarder() -> dict[str, Any]:
    made = confined(
        NetworkMode=OUTER,
        Memory=FORWARDER_MEMORY,
        MemorySwap=FORWARDER_MEMORY,
        PidsLimit=32,
        Sysctls={"net.ipv4.ip_forward": "0"},
    )
    made["NetworkSettings"] = {"Networks": {INNER: {}, OUTER: {}}}
    return made


def host(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda found: found["HostConfig"].update(values)


WEAKER: dict[str, Callable[[dict[str, Any]], None]] = {
    "privileged": host(Privileged=True),
    "bind": host(Binds=["/:/host"]),
    "writable_root": host(ReadonlyRootfs=False),
    "capability_added": host(CapAdd=["NET_ADMIN"]),
    "capabilities_kept": host(CapDrop=None),
    "one_capability_dropped": host(CapDrop=["NET_RAW"]),
    "new_privileges": host(SecurityOpt=None),
    "no_seccomp": host(SecurityOpt=["no-new-privileges:true", "seccomp=unconfined"]),
    "the_engine_s_seccomp": host(SecurityOpt=["no-new-privileges:true"]),
    "seccomp_alone": host(SecurityOpt=[SECURITY[1]]),
    "no_apparmor": host(SecurityOpt=[*SECURITY, "apparmor=unconfined"]),
    "host_network": host(NetworkMode="host"),
    "default_network": host(NetworkMode="bridge"),
    "host_processes": host(PidMode="host"),
    "shared_memory": host(IpcMode="host"),
    "host_users": host(UsernsMode="host"),
    "host_name": host(UTSMode="host"),
    "host_cgroups": host(CgroupnsMode="host"),
    "device": host(Devices=[{"PathOnHost": "/dev/kmsg"}]),
    "gpu": host(DeviceRequests=[{"Driver": "x"}]),
    "volumes_of_another": host(VolumesFrom=["other"]),
    "no_memory_limit": host(Memory=0),
    "swap": host(MemorySwap=-1),
    "no_cpu_limit": host(NanoCpus=0),
    "no_process_limit": host(PidsLimit=None),
    "no_file_size_limit": host(Ulimits=[{"Name": "core", "Hard": 0}]),
    "core_files": host(Ulimits=[{"Name": "fsize", "Hard": SPEC.limits.file_bytes}]),
    "published_port": host(PortBindings={"80/tcp": [{}]}),
    "unmasked_proc": host(MaskedPaths=[]),
    "another_host_name": host(ExtraHosts=["egress:10.0.0.2", "evil:1.2.3.4"]),
    "stays_behind": host(AutoRemove=False),
    "set_user_id_on_tmpfs": host(Tmpfs={"/tmp": "rw"}),
    "root": lambda found: found["Config"].update(User=""),
    "user_of_another_box": lambda found: found["Config"].update(User="1000:1001"),
    "environment": lambda found: found["Config"].update(Env=["PATH=/usr/bin", "ANTHROPIC_API_KEY=x"]),
    "another_image": lambda found: found.update(Image="sha256:def"),
    "second_network": lambda found: found["NetworkSettings"]["Networks"].update(bridge={}),
    "host_mount": lambda found: found["Mounts"].append({"Type": "bind", "Source": "/", "Destination": "/host"}),
    "another_volume": lambda found: found["Mounts"][0].update(Name="other"),
}


@pytest.mark.req("H-109", "H-112")
def test_a_box_as_it_was_asked_for_may_start() -> None:
    assert check_box(box(), SLOT, SPEC, hosts={"egress": "10.0.0.2"}) == []


@pytest.mark.req("S-058")
def test_the_engine_is_asked_to_isolate_a_box() -> None:
    asked = box_container(SLOT, SPEC, hosts={"egress": "10.0.0.2"}, lifetime_seconds=9)

    assert (asked["privileged"], asked["read_only"], asked["user"]) == (False, True, SLOT.user)
    assert (asked["cap_drop"], asked["security_opt"]) == (["ALL"], list(SECURITY))
    assert (asked["ipc_mode"], asked["cgroupns"]) == ("private", "private")
    assert asked.keys().isdisjoint({"cap_add", "devices", "pid_mode", "userns_mode", "uts_mode"})


@pytest.mark.threat("A14")
@pytest.mark.req("H-109", "H-110", "H-111", "H-112", "S-058")
@pytest.mark.parametrize("name", WEAKER)
def test_a_box_that_is_weaker_in_one_thing_may_not(name: str) -> None:
    found = copy.deepcopy(box())
    WEAKER[name](found)

    assert len(check_box(found, SLOT, SPEC, hosts={"egress": "10.0.0.2"})) >= 1


def test_a_runtime_that_was_asked_for_has_to_be_the_one() -> None:
    spec = BoxSpec(image=SPEC.image, gateway=SPEC.gateway, runtime="runsc")

    assert check_box(box(), SLOT, spec, hosts={"egress": "10.0.0.2"}) == ["HostConfig.Runtime is another"]


@pytest.mark.threat("A14")
def test_a_forwarder_has_no_volume_and_forwards_no_packets() -> None:
    assert check_forwarder(forwarder(), SLOT, SPEC, outer=OUTER) == []

    routing = forwarder()
    routing["HostConfig"]["Sysctls"] = {"net.ipv4.ip_forward": "1"}
    holding = forwarder()
    holding["Mounts"] = [{"Type": "volume"}]
    assert check_forwarder(routing, SLOT, SPEC, outer=OUTER)
    assert check_forwarder(holding, SLOT, SPEC, outer=OUTER)


def network() -> dict[str, Any]:
    wanted = inner_network(SLOT, "10.0.0.0/29")
    return {
        "Name": wanted["name"],
        "Driver": "bridge",
        "Scope": "local",
        "Internal": True,
        "EnableIPv6": False,
        "Attachable": False,
        "Ingress": False,
        "Labels": dict(wanted["labels"]),
        "Options": {
            "com.docker.network.bridge.inhibit_ipv4": "true",
            "com.docker.network.bridge.name": "pm-0123",
        },
        "IPAM": {"Config": [{"Subnet": "10.0.0.0/29"}]},
        "Containers": {},
    }


WEAKER_NETWORK: dict[str, Callable[[dict[str, Any]], None]] = {
    "not_internal": lambda found: found.update(Internal=False),
    "host_has_an_address": lambda found: found.update(Options={}),
    "another_driver": lambda found: found.update(Driver="macvlan"),
    "ipv6": lambda found: found.update(EnableIPv6=True),
    "anybody_may_join": lambda found: found.update(Attachable=True),
    "another_subnet": lambda found: found["IPAM"].update(Config=[{"Subnet": "10.0.0.0/8"}]),
    "two_subnets": lambda found: found["IPAM"]["Config"].append({"Subnet": "fd00::/64"}),
    "somebody_is_there": lambda found: found.update(Containers={"x": {}}),
    "of_another_slot": lambda found: found["Labels"].update({"pointsman.slot": "x"}),
}


@pytest.mark.req("H-092", "H-093", "H-111")
def test_a_box_is_asked_for_in_its_own_network_which_leads_nowhere() -> None:
    wanted = inner_network(SLOT, "10.0.0.0/29")
    asked = box_container(SLOT, SPEC, hosts={"egress": "10.0.0.2"}, lifetime_seconds=9)

    assert asked["network"] == wanted["name"] == INNER
    assert "network_mode" not in asked
    assert (wanted["internal"], wanted["attachable"], wanted["enable_ipv6"]) == (True, False, False)


@pytest.mark.threat("A14", "B2")
@pytest.mark.req("H-111")
@pytest.mark.parametrize("name", WEAKER_NETWORK)
def test_a_network_that_is_weaker_in_one_thing_is_not_used(name: str) -> None:
    assert check_inner(network(), SLOT, subnet="10.0.0.0/29") == []

    found = network()
    WEAKER_NETWORK[name](found)
    assert check_inner(found, SLOT, subnet="10.0.0.0/29")


@pytest.mark.threat("A14")
@pytest.mark.req("H-109", "H-112")
def test_a_workspace_that_is_not_in_memory_or_has_no_limit_is_not_used() -> None:
    wanted = workspace_volume(SLOT, SPEC)
    found = {"Name": wanted["name"], "Driver": "local", "Labels": wanted["labels"], "Options": wanted["driver_opts"]}
    assert check_volume(found, SLOT, SPEC) == []

    bind = {"type": "none", "device": "/etc", "o": "bind"}
    weaker = [{"Options": None}, {"Options": bind}, {"Driver": "nfs"}, {"Labels": None}]
    assert all(check_volume(found | fields, SLOT, SPEC) for fields in weaker)


GIVEN = {
    "Driver": "bridge",
    "Scope": "local",
    "Internal": True,
    "EnableIPv6": False,
    "Options": {"com.docker.network.bridge.inhibit_ipv4": "true"},
    "Labels": {"whose": "the operator's"},
}


@pytest.mark.threat("B2")
@pytest.mark.parametrize(
    "weaker", [{"Internal": False}, {"Options": {}}, {"Options": None}, {"Driver": "macvlan"}, {"EnableIPv6": True}]
)
def test_a_network_of_the_operator_s_that_leads_further_takes_no_forwarder(weaker: dict[str, Any]) -> None:
    assert check_given_outer(GIVEN) == []
    assert check_given_outer(GIVEN | weaker)


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
        taken = {found.forwarder, *found.services, str(next(subnet.hosts()))}
        assert len(taken) == 2 + MAX_SERVICES
        assert len({*map(str, subnet.hosts())} - taken) == 1, "one is left for the box"


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
        recipe.box_container(SLOT, spec(), hosts={"egress": "10.0.0.2"}, lifetime_seconds=60),
        recipe.forwarder_container(SLOT, spec(), outer="o", listen="10.0.0.2", host="172.18.0.1", lifetime_seconds=60),
        recipe.bridge_container(SLOT, "sha256:abc"),
    ]

    for wanted in made:
        labels = wanted["labels"]
        assert (labels["pointsman.install"], labels["pointsman.slot"], labels["pointsman.owner"]) == (
            "test",
            "0123",
            "me",
        )
        assert labels["pointsman.deadline"].isdigit()


@pytest.mark.parametrize("uids", [recipe.UIDS, recipe.MAPPED_UIDS])
def test_each_slot_has_a_user_of_its_own_that_owns_all_of_it(uids: range) -> None:
    slots = [Slot.new("test", "me", lifetime_seconds=60, uids=uids) for _ in range(5)]

    assert len({slot.uid for slot in slots}) > 1
    for slot in slots:
        assert slot.uid in uids
        made = recipe.box_container(slot, spec(), hosts={"egress": "10.0.0.2"}, lifetime_seconds=60)
        own = f"uid={slot.uid},gid={slot.uid},mode=0700"
        assert made["user"] == f"{slot.uid}:{slot.uid}"
        assert [own in options for options in made["tmpfs"].values()] == [False, True, True]
        assert own in workspace_volume(slot, spec())["driver_opts"]["o"]


@pytest.mark.threat("B2")
def test_the_container_in_the_host_s_network_has_no_capability_and_runs_our_own_script_only() -> None:
    wanted = recipe.bridge_container(SLOT, "sha256:abc")

    assert wanted["command"] == ["/usr/local/lib/pointsman/bridge", "pm-0123"]
    assert wanted["host_config"]["CapDrop"] == ["ALL"]
    assert wanted["host_config"]["SecurityOpt"][:2] == list(SECURITY)
    assert not {"Privileged", "Binds", "Mounts", "CapAdd", "Devices"} & set(wanted["host_config"])


@pytest.mark.req("H-093")
def test_a_forwarder_leads_to_the_gateway_and_the_mirror_alone_on_the_host_unless_a_target_names_another() -> None:
    wanted = recipe.forwarder_container(
        SLOT,
        spec(mirror=Target("192.0.2.9", 8091)),
        outer="o",
        listen="10.0.0.2",
        host="172.18.0.1",
        lifetime_seconds=60,
    )

    routes = ["8080=172.18.0.1:8090", "8081=192.0.2.9:8091"]
    assert wanted["command"][-4:] == [f"{recipe.TOOLS}/forward.mjs", "10.0.0.2", *routes]


@pytest.mark.threat("C1")
@pytest.mark.req("H-076", "H-109", "H-110", "H-112")
def test_a_box_is_asked_for_with_its_limits_and_with_neither_environment_nor_mount_of_the_host() -> None:
    wanted = recipe.box_container(SLOT, SPEC, hosts={"egress": "10.0.0.2"}, lifetime_seconds=60)
    limits = SPEC.limits

    assert wanted["environment"] == {}
    assert [mount["Type"] for mount in wanted["mounts"]] == ["volume"]
    assert wanted.keys().isdisjoint({"volumes", "volumes_from", "devices"})
    assert wanted["mem_limit"] == wanted["memswap_limit"] == limits.memory_bytes > 0
    assert (wanted["nano_cpus"], wanted["pids_limit"]) == (limits.cpus * 10**9, limits.processes)
    workspace = workspace_volume(SLOT, SPEC)["driver_opts"]["o"].split(",")
    assert {f"size={limits.workspace_bytes}", f"nr_inodes={limits.workspace_files}"} <= set(workspace)


@pytest.mark.threat("A15")
@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        (403, "Pool overlaps with other one on this address space", "subnet_taken"),
        (400, "network pointsman-x-outer is ambiguous (2 matches found on name)", "network_ambiguous"),
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
