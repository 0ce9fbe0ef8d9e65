"""What holds a program in a real box, one wall at a time. The threats are those of notes/sandbox.md, by id."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.docker import box as box_module
from sandbox.docker.box import DockerBox, DockerMaker
from sandbox.docker.engine import Engine
from sandbox.errors import BoxLostError
from sandbox.execution import Clocks, Ending
from sandbox.tarball import CollectRules
from sites.content_store import ContentStore
from sites.errors import TreeRefusedError
from tests.engine import HOST, Listener, TestEngine
from tests.services import wait_until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

CLOCKS = Clocks(soft_seconds=60, hard_seconds=70, grace_seconds=2)


def shell(box: DockerBox, script: str, *, clocks: Clocks = CLOCKS) -> tuple[Ending, int | None, str]:
    result = box.run(["bash", "-c", script], clocks=clocks)
    return result.ending, result.exit_code, (result.stdout + result.stderr).decode(errors="replace")


def test_the_egress_forwarder_leads_to_the_gateway_and_to_the_mirror_by_its_own_address(
    open_box: DockerBox, gateway: Listener, mirror: Listener
) -> None:
    call = f"fetch('{open_box.egress.gateway_url}/v1/messages?beta=true', {{method: 'POST', body: 'x'.repeat(1e6)}})"
    script = f"{call}.then(r => r.text()).then(console.log)"
    assert open_box.run(["node", "-e", script], clocks=CLOCKS).stdout == b"gateway\n"
    assert (
        open_box.run(
            ["node", "-e", f"fetch('{open_box.egress.mirror_url}/react').then(r => r.text()).then(console.log)"],
            clocks=CLOCKS,
        ).stdout
        == b"mirror\n"
    )

    request = gateway.requests()[-1]
    assert (request["path"], request["peer"]) == ("/v1/messages?beta=true", open_box.egress.address)
    assert len(request["body"]) == 1_000_000
    assert mirror.requests()[-1]["peer"] == open_box.egress.address


@pytest.mark.threat("B11")
def test_without_its_forwarder_a_box_reaches_nothing_at_all_and_one_that_dies_under_a_command_is_lost(
    engine: Engine, box: DockerBox, gateway: Listener, content_store: ContentStore
) -> None:
    before = len(gateway.requests())
    engine.client.api.kill(f"pointsman-test-{box.id}-forwarder")
    script = f"fetch('{box.egress.gateway_url}').then(() => process.exit(0), () => process.exit(9))"
    result = box.run(["node", "-e", script], clocks=CLOCKS)

    assert result.exit_code == 9
    assert len(gateway.requests()) == before

    result = box.run(
        ["bash", "-c", "echo on; sleep 60"], clocks=CLOCKS, on_line=lambda line: engine.client.api.kill(box.container)
    )
    assert (result.ending, result.exit_code) == (Ending.BOX_LOST, None)
    with pytest.raises(BoxLostError):
        box.collect(content_store, CollectRules(max_bytes=1000))


@pytest.mark.threat("A5")
@pytest.mark.req("H-112")
def test_a_fork_bomb_stays_in_its_box(box: DockerBox, open_box: DockerBox, content_store: ContentStore) -> None:
    box.put({"a": b"1"})
    bomb = "f() { f | f & }; f; sleep 60"
    result = box.run(["bash", "-c", bomb], clocks=Clocks(soft_seconds=3, hard_seconds=6, grace_seconds=1))
    assert result.ending in (Ending.SOFT_TIMEOUT, Ending.HARD_TIMEOUT, Ending.OUTPUT_LIMIT, Ending.EXITED)

    assert content_store.read_tree(box.collect(content_store, CollectRules(max_bytes=1000))) == {"a": b"1"}
    assert open_box.run(["true"], clocks=CLOCKS).is_success


@pytest.mark.threat("A6")
@pytest.mark.req("H-112")
def test_more_memory_than_allowed_ends_the_program_not_the_box(open_box: DockerBox) -> None:
    hungry = "const held = []; for (;;) held.push(Buffer.alloc(32 << 20, 1))"
    result = open_box.run(["node", "-e", hungry], clocks=CLOCKS)

    assert result.is_resource_limit, result
    assert shell(open_box, "echo alive")[2] == "alive\n"


@pytest.mark.parametrize("script", ["kill -KILL $$", "exit 137", "bash -c 'kill -KILL $PPID'"])
def test_only_what_the_kernel_killed_for_its_memory_is_called_so(open_box: DockerBox, script: str) -> None:
    result = open_box.run(["bash", "-c", script], clocks=CLOCKS)

    assert (result.ending, result.exit_code) == (Ending.EXITED, 137)
    assert not result.is_resource_limit


def test_a_count_that_the_kernel_cut_off_is_read_again(open_box: DockerBox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next command would be called killed for the memory that the one before took."""
    cut = iter([(137, b"")])
    count = box_module.run_quickly
    monkeypatch.setattr(box_module, "run_quickly", lambda *given: next(cut, None) or count(*given))
    assert open_box.run(["bash", "-c", "kill -KILL $$"], clocks=CLOCKS).oom_kills == 0


INOTIFY = "my $n = 0; $n++ while $n < 3000 && syscall(294, 0) >= 0; $| = 1; print qq($n\n); sleep $ARGV[0]"
"""Takes all inotify instances that its user may have, and says how many."""


@pytest.mark.threat("A5")
@pytest.mark.req("H-112")
def test_what_the_kernel_counts_for_a_user_is_a_box_s_own(box: DockerBox, maker: DockerMaker) -> None:
    perl = shutil.which("perl")
    assert perl is not None, "perl makes the system calls"
    other = maker.create()
    try:
        for place in (box, other):
            place.put({"perl": Path(perl).read_bytes()})
        counts = [
            shell(
                place, f"chmod +x perl; (exec ./perl -e '{INOTIFY}' 60 >n) & until [ -s n ]; do sleep 0.1; done; cat n"
            )
            for place in (box, other)
        ]
        at_home = subprocess.run([perl, "-e", INOTIFY, "0"], user=1000, capture_output=True, text=True, check=True)
    finally:
        other.close()
    assert int(at_home.stdout) > 0
    assert int(counts[0][2]) > 0
    assert counts[0] == counts[1]


@pytest.mark.threat("A7")
@pytest.mark.req("H-112")
def test_a_workspace_has_an_end_in_bytes_and_in_files(open_box: DockerBox) -> None:
    _, code, said = shell(open_box, "for n in 1 2 3 4 5 6 7 8; do head -c 12M /dev/zero >f$n || exit 1; done")
    assert (code, "No space left" in said) == (1, True)
    _, code, said = shell(open_box, "rm f*; for n in $(seq 3000); do : >f$n || exit 1; done")
    assert (code, "No space left" in said) == (1, True)
    assert shell(open_box, "rm f*")[1] == 0


@pytest.mark.threat("A8", "A12")
def test_a_sparse_file_is_stopped_by_its_size_and_a_program_that_stayed_behind_cannot_write_while_files_are_collected(
    box: DockerBox, content_store: ContentStore
) -> None:
    assert shell(box, "truncate -s 10G huge")[1] == 153  # SIGXFSZ
    daemon = "setsid bash -c 'while :; do echo $RANDOM >>log; done' >/dev/null 2>&1 & sleep 0.3"
    assert shell(box, f"rm -f huge; truncate -s 150K a b c; {daemon}")[:2] == (Ending.EXITED, 0)

    with pytest.raises(TreeRefusedError) as caught:
        box.collect(content_store, CollectRules(max_bytes=400_000))
    assert caught.value.reason == "too_many_bytes"
    rules = CollectRules(max_bytes=60_000_000, max_file_bytes=60_000_000)

    first = box.collect(content_store, rules)
    assert first["log"].size > 0
    assert box.collect(content_store, rules) == first


def test_the_programs_of_the_image_run_as_they_are_pinned(open_box: DockerBox) -> None:
    ending, code, said = shell(
        open_box, "claude --version && node --version && npm --version && npm config get registry"
    )
    assert (ending, code) == (Ending.EXITED, 0), said
    assert "2.1.330 (Claude Code)\nv24.19.0\n" in said
    assert said.endswith("http://egress:8081/\n")


@pytest.mark.req("H-096")
def test_a_command_that_is_not_there_is_named_by_the_guard(open_box: DockerBox) -> None:
    _, code, said = shell(open_box, "curl -s http://egress:8080")

    assert (code, said) == (126, "guard: curl is not a command of this box\n")


def test_output_is_limited_for_both_streams_together(box: DockerBox) -> None:
    result = box.run(["bash", "-c", "yes >&2"], clocks=CLOCKS)

    assert result.ending is Ending.OUTPUT_LIMIT
    assert len(result.stderr) == 65_536


EVERYBODY = """
const dgram = require('dgram'), os = require('os');
const [own] = os.networkInterfaces().eth0.filter((address) => address.family === 'IPv4');
const octets = own.address.split('.').map(Number);
const all = [...octets.slice(0, 3), octets[3] | 7].join('.');
const send = (type, from, to, set = () => {}) => new Promise((resolve) => {
  const socket = dgram.createSocket(type);
  socket.on('error', () => resolve());
  socket.bind(0, from, () => {
    try { set(socket); } catch {}
    socket.send(`to ${to}`, 8000, to, () => { socket.close(); resolve(); });
  });
});
const wide = (socket) => socket.setBroadcast(true);
const group = (socket) => socket.setMulticastInterface(own.address);
(async () => {
  for (const to of ['255.255.255.255', all]) await send('udp4', own.address, to, wide);
  for (const to of ['224.0.0.1', '224.0.0.251', '239.255.255.250']) await send('udp4', own.address, to, group);
  for (const to of ['ff02::1%eth0', 'ff02::fb%eth0']) await send('udp6', '::', to);
  await send('udp4', own.address, process.argv[1]);
  console.log('sent');
})();
"""
"""Datagrams to everybody on the box's network, and one to the address in the arguments."""


@pytest.mark.threat("B2")
@pytest.mark.req("H-110")
def test_a_datagram_to_everybody_does_not_reach_the_engines_host(
    daemon: TestEngine, open_box: DockerBox, outside: Listener
) -> None:
    before = len(outside.requests())
    assert open_box.run(["node", "-e", EVERYBODY, HOST], clocks=CLOCKS).stdout == b"sent\n"

    control = 'import socket; socket.socket(2, 2).sendto(b"after", ("127.0.0.1", 8000))'
    daemon.inside(sys.executable, "-c", control)

    def heard() -> list[str]:
        return [request["body"] for request in outside.requests()[before:]]

    wait_until(lambda: "after" in heard(), seconds=10, what="the listener has heard the last datagram")
    assert heard() == ["after"]


SIBLINGS = """
claude --print --verbose --input-format=stream-json --output-format=stream-json < <(sleep 60) >/dev/null &
cli=$!
sleep 60 &
other=$!
until [ "$(</proc/$cli/comm)" = claude ]; do sleep 0.05; done
for pid in $cli $PPID $other; do
    cd /proc/$pid
    for file in mem oom_score_adj; do (: >>$file) 2>/dev/null && echo "$(<comm): write $file"; done
    for file in environ maps; do head -c 1 $file >/dev/null 2>&1 && echo "$(<comm): read $file"; done
    ls fd/ >/dev/null 2>&1 && echo "$(<comm): open fd"
done
kill $cli $other
"""
"""What a child of the CLI can do to it, to the clock above it, and to a program that nothing protects."""


@pytest.mark.threat("A2", "C7")
def test_the_cli_and_its_clock_are_closed_to_what_they_start(open_box: DockerBox) -> None:
    _, _, said = shell(open_box, SIBLINGS)

    deeds = ("write mem", "write oom_score_adj", "read environ", "read maps", "open fd")
    assert said.splitlines() == [f"sleep: {deed}" for deed in deeds]
