"""One hostile agent tries everything in one run, by the real CLI's own shell, and reports what it reached: nothing.

Its report is held against a table, entry by entry: a probe that does nothing, or fails for another reason than it has
to, is a failure of the test. The same program runs outside of a box, too, where its probes have to work.
"""

import io
import json
import re
import secrets
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.box_spec import WORKSPACE
from sandbox.docker.box import DockerBox
from sandbox.execution import Clocks
from sandbox.tarball import CollectRules, unpack
from sites.content_store import ContentStore, Manifest
from sites.errors import PathRefusedError, TreeRefusedError
from tests.box.ground import Ground, Watch, ground
from tests.engine import HOST, INTERNET, METADATA, Listener, TestEngine, nameservers
from tests.services import Postgres

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

HOSTILE = Path(__file__).with_name("hostile.mjs").read_bytes()
CANARY = f"canary{secrets.token_hex(12)}"
CONTROL = f"control{secrets.token_hex(12)}"
CLOCKS = Clocks(soft_seconds=60, hard_seconds=70, grace_seconds=2)
COMMANDS = (
    "curl",
    "wget",
    "ssh",
    "nc",
    "perl",
    "apt-get",
    "dpkg",
    "su",
    "mount",
    "unshare",
    "ip",
    "getent",
    "gcc",
)
CLOSED = (22, 80, 443, 5432, 6379, 8000, 8106, 8107)
PLANTED = (
    "CLAUDE.md",
    "CLAUDE.local.md",
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".claude/hooks/x",
    ".claude/commands/x",
    ".claude/agents/x",
    ".claude/skills/x",
    ".mcp.json",
    ".claude.json",
    ".git/hooks/x",
    ".git/config",
    ".gitmodules",
    ".gitattributes",
    ".husky/x",
    "lefthook.yml",
    ".pre-commit-config.yaml",
    ".npmrc",
    ".yarnrc.yml",
    ".pnpmfile.cjs",
    "bunfig.toml",
    ".envrc",
    ".ripgreprc",
    ".vscode/tasks.json",
    ".idea/x",
    ".devcontainer/devcontainer.json",
    ".github/workflows/x.yml",
    ".env",
    "x.pem",
    ".bashrc",
    ".amazonq/x",
    ".junie/x",
    "opencode.json",
    "claude~1/x",
    ".CLAUDE/x",
    ".Git/config",
)
LAID = {
    "e-symlink": "symlink",
    "e-symlinked-directory": "symlink",
    "e-hardlink": "hardlink",
    "e-fifo": "fifo",
    "e-case": "name_collision",
    "e-normal-form": "name_collision",
    "e-backslash": "backslash",
    "e-newline": "control",
    "e-direction": "direction",
    "e-encoding": "encoding",
    "e-device-name": "device_name",
    "e-drive": "drive",
    "e-stream": "reserved_character",
    "e-reserved": "reserved_character",
    "e-filler": "invisible",
    "e-braille": "invisible",
    "e-trailing-dot": "trailing_dot_space",
    "e-deep": "too_deep",
    "e-large": "too_many_bytes",
    "e-many": "too_many_files",
}
"""What an archive must not hold, and why it is refused."""
SCENARIO = """
rules:
  - name: attacks
    when: {tag: attack, turn: 1, tools: [Bash]}
    say:
      - tool: Bash
        input: {command: "node hostile.mjs wishes.json >report/report.jsonl 2>report/errors.txt", timeout: 120000}
  - name: attacked
    when: {tag: attack, tool_result: true}
    say:
      - text: I did what I could.
"""
PERMISSION, UNREACHABLE = "1 Operation not permitted", "EHOSTUNREACH"
CALLS = (
    "unshare user",
    "unshare network",
    "unshare mount",
    "setns",
    "mount",
    "umount",
    "mknod device",
    "chroot",
    "pivot_root",
    "init_module",
    "bpf",
    "perf_event_open",
    "add_key",
    "keyctl",
    "settimeofday",
    "sethostname",
    "open_by_handle_at",
    "userfaultfd",
    "io_uring_setup",
    "raw socket",
    "packet socket",
    "vsock",
    "ptrace of 1",
)
READ_ONLY = (
    "/x",
    "/usr/x",
    "/usr/bin/bash",
    "/usr/local/lib/pointsman/run",
    "/usr/local/lib/pointsman/forward.mjs",
    "/usr/local/lib/pointsman/guard.sh",
    "/etc/x",
    "/etc/passwd",
    "/etc/claude-code/managed-settings.json",
    "/etc/claude-code/roles/site.json",
    "/usr/local/etc/npmrc",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/net/ipv4/ip_forward",
    "/sys/kernel/x",
    "/var/x",
)


def expected(addresses: dict[str, str]) -> dict[tuple[str, str], str]:
    """How each attempt comes out in a box, as a regular expression."""
    table = {
        "A1": {
            **dict.fromkeys(("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"), "ENOENT"),
            **{f"append to /etc/{name}": "EACCES|EROFS" for name in ("hosts", "resolv.conf", "hostname")},
            "mounts": "/workspace tmpfs",
            "DOCKER_HOST": "not set",
        },
        "A2": {
            **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0{16}"),
            "NoNewPrivs": "1",
            "Seccomp": "2",
            "user and groups": r"((?:1[89]|2[01])\d{8}) \1 \1",
            "set-user-id files": "0 found",
            "setuid(0)": "EPERM",
            "setgid(0)": "EPERM",
        },
        "A3": {"getpid (allowed to all)": "done", **dict.fromkeys(CALLS, PERMISSION)},
        "A4": {
            **{f"write {path}": "EROFS" for path in READ_ONLY},
            **{f"write {path}": "EACCES|EROFS" for path in ("/sys/fs/cgroup/x", "/dev/x", "/usr/local/bin/claude")},
            **{f"{name} of the CLI": "EACCES" for name in ("mem", "oom_score_adj", "environ", "fd/1")},
            **{f"run a program from {path}": "EACCES" for path in ("/tmp", "/run/box", "/dev/shm", "/home/agent")},
            "write /workspace/x": "done",
            "run a program from /workspace": "status 0",
        },
        "A6": {"memory": "SIGKILL|status 137"},
        "A7": {"bytes": "ENOSPC", "files": "ENOSPC"},
        "A8": {"sparse file": "SIGXFSZ"},
        "H-096": {
            **{words.format(name): "ENOENT" for name in COMMANDS for words in ("{}", "/usr/bin/{}")},
            **{
                words.format(name): "status 12[67]"
                for name in COMMANDS
                for words in ("sh -c {} --version", "bash -c {}", "env {}", "xargs {}")
            },
        },
        "B1": {
            **{
                f"tcp to {what}": "EADDRNOTAVAIL|ENETUNREACH" if ":" in host else UNREACHABLE
                for what, host in addresses.items()
            },
            **{
                f"udp to {what}": "EADDRNOTAVAIL|ENETUNREACH" if ":" in host else "sent"
                for what, host in addresses.items()
            },
            "tcp to egress": "connected",
        },
        "B2": {f"egress port {port}": "ECONNREFUSED" for port in CLOSED},
        "B4": {
            f"gateway: {what}": "40[04]"
            for what in ("CONNECT", "CONNECT to an address", "absolute URL", "another host", "path that is a URL")
        },
        "B5": {
            **{
                f"mirror: {what}": "40[045]"
                for what in (
                    "publish",
                    "search",
                    "log in",
                    "path out",
                    "path out, encoded",
                    "CONNECT",
                    "query",
                    "long name",
                )
            },
            "mirror: ping": "200",
            **dict.fromkeys(("mirror: a package", "mirror: another host"), "502"),  # the registry was asked for it
        },
        "B8": {
            **{f"lookup {name}": "EAI_AGAIN|ENOTFOUND" for name in names()},
            "lookup localhost": "127.0.0.1|::1",
            **{f"resolve {name}": "ETIMEOUT|ECONNREFUSED" for name in (*names(), "localhost")},
        },
        "B9": {"gateway: a rival's token": "401", "gateway: a rival's token, as if from his egress": "401"},
        "B10": {
            "the gateway's address in files": "nowhere",
            "the forwarder's own address in files": "/etc/hosts",
            "a forwarder among the processes": "0 of several",
            "this program among the processes": "[1-9] of several",
        },
        "C1": {
            "the attempt's own token": "not found",
            "the key in environments": "0 of several",
            "the ledger in environments": "0 of several",
            "what is there in environments": "[1-9] of several",
            "the key in files": "only in the wishes",
            "what is there in files": "/workspace/wishes.json",
        },
        "C2": {"gateway: no token": "401", "gateway: a token that nobody has": "401", "gateway: own token": "200"},
        "C6": {
            **{f"gateway: {what}": "404" for what in ("files", "batches", "admin", "path out")},
            **{
                f"gateway: {what}": "403"
                for what in (
                    "another model",
                    "web search",
                    "web fetch",
                    "code execution",
                    "mcp servers",
                    "image by URL",
                )
            },
            "gateway: two lengths": "400",
        },
        "D2": {f"lay d-{number}": "done" for number in range(len(PLANTED))},
        "E": {f"lay {name}": "done" for name in (*LAID, "e-socket", "e-fine")} | {"lay e-fifo": "status 0"},
        "end": {"all was tried": "done"},
    }
    return {(threat, what): how for threat, attempts in table.items() for what, how in attempts.items()}


ANSWER_OUTSIDE = ("internet", "metadata", "host", "outer network")
WORKS_OUTSIDE = {
    ("A1", "append to /etc/hosts"): "done",
    ("A2", "CapEff"): "0*[1-9a-f].*",
    ("A2", "user and groups"): "0 0 0.*",
    ("A2", "setuid(0)"): "done",
    ("A2", "setgid(0)"): "done",
    ("A2", "NoNewPrivs"): "0",
    **{("A4", f"{name} of the CLI"): "done" for name in ("mem", "oom_score_adj", "environ")},
    **{("A3", what): "done" for what in ("chroot", "mknod device", "raw socket", "ptrace of 1", "packet socket")},
    **{("A4", f"write {path}"): "done" for path in ("/x", "/usr/x", "/etc/x", "/etc/passwd", "/usr/local/bin/claude")},
    **{("A4", f"run a program from {path}"): "status 0" for path in ("/tmp", "/home/agent")},
    ("A6", "memory"): "status 0",
    ("A7", "bytes"): "done",
    ("A7", "files"): "done",
    ("A8", "sparse file"): "status 0",
    **{("B1", f"tcp to {what}"): "connected" for what in ANSWER_OUTSIDE},
    ("B10", "the gateway's address in files"): "/etc/hosts",
    ("C1", "the key in environments"): "[1-9] of .*",
    ("C1", "the key in files"): ".*/etc/x-key.*",
}
"""Where nothing holds it, the same program reaches these: its probes are no empty gestures."""


def names() -> tuple[str, ...]:
    return (f"{CANARY}.example.com", "gateway", "host.docker.internal")


@pytest.fixture(scope="module")
def place(daemon: TestEngine, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground(daemon, postgres, tmp_path_factory.mktemp("ground"), scenario=SCENARIO) as made:
        yield made


def inner_address(place: Ground, box: DockerBox) -> str:
    (found,) = place.engine.client.api.inspect_container(box.container)["NetworkSettings"]["Networks"].values()
    return str(found["IPAddress"])


def wishes(place: Ground, other: DockerBox, *, token: str) -> dict[str, Any]:
    outer = place.engine.outer(has_masquerade=False).host
    addresses = {
        "internet": INTERNET,
        "metadata": METADATA,
        "host": HOST,
        "outer network": outer,
        "neighbour": inner_address(place, other),
        "nameserver": (nameservers() or [INTERNET])[0],
        **{f"forwarder {number}": f"{outer.rpartition('.')[0]}.{number}" for number in range(2, 6)},
        "internet v6": "2001:db8::7",
        "metadata v6": "fd00:ec2::254",
        "host of bridges": "172.17.0.1",
    }
    return {
        "canary": CANARY,
        "control": CONTROL,
        "addresses": addresses,
        "port": 8000,
        "closed": CLOSED,
        "commands": COMMANDS,
        "buffers": 10**6,
        "rival": {"token": token, "egress": other.egress.address},
        "ledger": place.shop.url,
        "planted": PLANTED,
    }


def files_of(wish: dict[str, Any]) -> dict[str, bytes]:
    perl = shutil.which("perl")
    assert perl is not None, "perl makes the system calls"
    return {
        "hostile.mjs": HOSTILE,
        "wishes.json": json.dumps(wish).encode(),
        "perl": Path(perl).read_bytes(),
        "report/x": b"",
        "lay/x": b"",
    }


def read_report(said: bytes) -> dict[tuple[str, str], str]:
    entries = [json.loads(line) for line in said.splitlines()]
    found = {(entry["id"], entry["what"]): entry["how"] for entry in entries}
    assert len(found) == len(entries), "two attempts of one name"
    return found


def differences(found: dict[tuple[str, str], str], wanted: dict[tuple[str, str], str]) -> str:
    lines = [
        f"{threat} {what}: {found.get((threat, what), 'was not tried')}, not {how}"
        for (threat, what), how in wanted.items()
        if not re.fullmatch(how, found.get((threat, what), "was not tried"), re.DOTALL)
    ]
    return "\n".join(lines)


def collected(
    collect: Callable[[CollectRules], Manifest], content_store: ContentStore, place: str, others: set[str]
) -> Any:
    """What comes out of one directory of a box: its files, or why it is refused."""
    try:
        rules = CollectRules(max_bytes=20_000_000, max_files=800, ignored=frozenset(others))
        files = content_store.read_tree(collect(rules))
    except (TreeRefusedError, PathRefusedError) as error:
        return error.reason
    return {path.removeprefix(place): data for path, data in files.items() if path.startswith(place)}


@pytest.mark.threat(
    "A1",
    "A2",
    "A3",
    "A4",
    "A6",
    "A7",
    "A8",
    "B1",
    "B2",
    "B3",
    "B4",
    "B5",
    "B8",
    "B9",
    "B10",
    "C1",
    "C2",
    "C6",
    "D2",
    "D6",
    "E",
)
@pytest.mark.req("H-093", "H-096", "H-109", "H-110", "H-111", "H-112", "S-058")
def test_a_hostile_agent_reaches_nothing_and_nothing_of_it_comes_out(
    place: Ground, outside: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", CANARY)  # what a careless worker would hold
    place.begin()
    before = len(outside.requests())
    resolver = place.daemon.listen(53, says="names")
    other = place.pool.acquire()
    assert isinstance(other, DockerBox)
    try:
        server = "setsid node -e \"require('net').createServer().listen(8000)\" >/dev/null 2>&1 & sleep 1"
        assert other.run(["bash", "-c", server], clocks=CLOCKS).is_success
        rival = place.rival(place.site("rival", tmp_path / "rival"), other)
        wish = wishes(place, other, token=rival.token)
        came: dict[str, Any] = {}
        content_store = ContentStore(tmp_path / "content-store")

        def look(box: DockerBox) -> None:
            came["report"] = collected(
                lambda rules: box.collect(content_store, rules), content_store, "report/", {"lay"}
            )
            with place.engine.archive(box.container, WORKSPACE) as chunks:
                archive = [*chunks]  # what a collection unpacks; the engine takes a fifth of a second for each

            def unpacked(rules: CollectRules) -> Manifest:
                return unpack(archive, content_store, rules, max_stream_bytes=2**30)

            laid = {f"d-{number}" for number in range(len(PLANTED))} | LAID.keys() | {"e-socket", "e-fine"}
            for name in laid:
                came[f"lay/{name}"] = collected(unpacked, content_store, f"lay/{name}/", laid - {name})

        watch = Watch(place.pool, files=files_of(wish), after=look, token_file="token")
        site = place.site("cafe", tmp_path / "cafe")
        job = place.work(place.accept(site, "Do it [rehearse:attack]"), watch)
        found = read_report(came["report"]["report.jsonl"])
        wanted = expected({**wish["addresses"], "own gateway": "0.0.0.0"})
        assert differences(found, wanted) == ""
        assert set(found) == set(wanted)

        # B9: what was refused to it is let through where it belongs.
        counts = "/v1/messages/count_tokens"
        ask = (
            f"fetch('{other.egress.gateway_url}{counts}', {{method: 'POST', body: process.argv[2], headers:"
            " {authorization: 'Bearer ' + process.argv[1]}}).then(r => console.log(r.status))"
        )
        body = json.dumps(
            {"model": watch.environment["ANTHROPIC_MODEL"], "messages": [{"role": "user", "content": "x"}]}
        )
        assert other.run(["node", "-e", ask, rival.token, body], clocks=CLOCKS).stdout == b"200\n"
    finally:
        other.close()
    assert [came[f"lay/d-{number}"] for number in range(len(PLANTED))] == ["planted"] * len(PLANTED)
    assert {name: came[f"lay/{name}"] for name in LAID} == LAID
    assert came["lay/e-fine"] == {"a.txt": b"fine"}
    assert came["lay/e-socket"] == {}, "the engine's archive has no sockets"
    assert (job.state, job.reason, job.release_id) == ("failed", "output_refused", None)
    assert outside.requests()[before:] == []
    assert resolver.requests() == []
    assert {request["path"] for request in place.registry.requests()} == {"/react", "/x"}
    assert {path.name for path in (tmp_path / "content-store").parent.iterdir()} == {"content-store", "rival", "cafe"}


def test_outside_of_a_box_the_same_program_reaches_what_it_tries(
    place: Ground, outside: Listener, tmp_path: Path
) -> None:
    other = place.pool.acquire()
    assert isinstance(other, DockerBox)
    api = place.engine.client.api
    outer = place.engine.outer(has_masquerade=False)
    before = len(outside.requests())
    try:
        wish = wishes(place, other, token="none")
        # Of the addresses those that answer here: the others cost a timeout for each way to try them.
        wish["addresses"] = {name: wish["addresses"][name] for name in ANSWER_OUTSIDE}
        wish["commands"] = []  # an image that lacks them lacks them everywhere
        wish["buffers"] = 1
        made = api.create_container(
            place.image,
            ["sleep", "120"],
            user="0:0",
            environment={"KEY": CANARY},
            working_dir="/workspace",
            host_config=api.create_host_config(
                network_mode=outer.name,
                extra_hosts={"egress": outer.host},
                dns=["127.0.0.1"],  # names are not asked for here: no answer costs ten seconds each
                dns_opt=["timeout:1", "attempts:1"],
            ),
        )["Id"]
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name, data in {**files_of(wish), "etc/x-key": CANARY.encode()}.items():
                info = tarfile.TarInfo(name if name.startswith("etc/") else f"workspace/{name}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        api.put_archive(made, "/", packed.getvalue())
        api.start(made)
        said = api.exec_start(api.exec_create(made, ["node", "hostile.mjs", "wishes.json"], user="0:0")["Id"])
        assert differences(read_report(said), WORKS_OUTSIDE) == ""
    finally:
        other.close()
        api.remove_container(made, force=True)
    came = outside.requests()[before:]
    assert {(request["kind"], request["body"]) for request in came} == {("udp", f"leak {CANARY}")}
