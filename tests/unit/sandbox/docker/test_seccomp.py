"""The list of system calls: what is not on it, and that it is one the engine can read."""

import json

import pytest

from sandbox.docker.seccomp import SECCOMP

PROFILE = json.loads(SECCOMP)
ALLOWED = {name: rule for rule in PROFILE["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}


def test_what_is_not_named_is_refused() -> None:
    assert PROFILE["defaultAction"] == "SCMP_ACT_ERRNO"
    assert {"architectures", "archMap"}.isdisjoint(PROFILE)


@pytest.mark.threat("A3")
@pytest.mark.parametrize(
    "name",
    ["ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "io_uring_setup", "io_uring_enter", "mount",
     "unshare", "setns", "bpf", "perf_event_open", "keyctl", "add_key", "userfaultfd", "kexec_load", "init_module",
     "open_by_handle_at", "reboot", "swapon", "chroot", "pivot_root", "socketcall", "acct", "iopl", "quotactl",
     "fsopen", "move_mount", "clone3", "settimeofday", "sethostname", "syslog", "modify_ldt"],
)  # fmt: skip
def test_what_a_box_has_no_need_of_is_not_named(name: str) -> None:
    assert name not in ALLOWED


@pytest.mark.threat("A3", "B1")
def test_sockets_are_of_the_kinds_that_a_network_namespace_holds() -> None:
    families = {name: sorted(rule["args"][0]["value"] for rule in PROFILE["syscalls"] if rule["names"] == [name])
                for name in ("socket", "socketpair")}  # fmt: skip
    assert families == {"socket": [1, 2, 10, 16], "socketpair": [1]}


def test_what_node_and_the_shell_live_on_is_named() -> None:
    assert {"read", "write", "openat", "futex", "epoll_wait", "execve", "connect", "statx", "mmap"} <= set(ALLOWED)
