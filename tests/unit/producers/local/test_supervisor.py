import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from producers.errors import InstallationError
from producers.local.supervisor import Forked, Home, Program, Supervisor, free_port, free_ports, python_module
from tests.services import wait_until


def test_secrets_are_made_once_and_are_nobody_elses(tmp_path: Path) -> None:
    made = Home(tmp_path / "home").secrets()
    path = tmp_path / "home" / "secrets.json"
    assert Home(tmp_path / "home").secrets() == made == json.loads(path.read_text())
    assert set(made) == {"preview", "audit", "webhook", "gateway", "broker", "install"}
    assert len(set(made.values())) == len(made)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_home_of_before_keeps_its_secrets_and_gets_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "secrets.json").write_text(json.dumps({"audit": "kept"}))
    assert Home(tmp_path).secrets()["audit"] == "kept"
    assert Home(tmp_path).secrets()["install"] == Home(tmp_path).secrets()["install"]


def test_two_installations_do_not_share_a_home(tmp_path: Path) -> None:
    first, second = Home(tmp_path), Home(tmp_path)
    first.lock()
    with pytest.raises(InstallationError, match="is used by another installation"):
        second.lock()
    second.unlock()
    first.unlock()
    first.unlock()
    third = Home(tmp_path)
    third.lock()
    third.unlock()


# Processes are started, watched, revived and ended, and none outlives its supervisor.

SLEEP = "import time; print('up', flush=True); time.sleep(60)"


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    made = Supervisor(environment={"PATH": os.environ["PATH"], "SHARED": "1"}, logs=tmp_path / "logs")
    yield made
    made.stop()


def script(code: str, name: str = "one", **fields: object) -> Program:
    return Program(name, (sys.executable, "-S", "-c", code), **fields)  # type: ignore[arg-type]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_log(tmp_path: Path, words: str, name: str = "one") -> str:
    path = tmp_path / "logs" / f"{name}.log"
    wait_until(lambda: path.exists() and words in path.read_text(), seconds=10, what=f"{name} says {words}")
    return path.read_text()


def test_a_program_gets_the_common_environment_and_its_own_secrets_alone(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    show = "import os; print('secret', os.environ.get('OWN'), os.environ.get('SHARED'), 'HOME' in os.environ)"
    supervisor.start(script(show, "a", environment={"OWN": "mine"}))
    supervisor.start(script(show, "b"))
    assert "secret mine 1 False" in wait_for_log(tmp_path, "secret", "a")
    assert "secret None 1 False" in wait_for_log(tmp_path, "secret", "b")


def test_a_dead_program_is_started_again(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor.start(script(SLEEP))
    wait_for_log(tmp_path, "up")
    before = supervisor.pids()["one"]
    assert supervisor.revive() == []
    supervisor.kill("one")
    assert supervisor.revive() == ["one"]
    assert supervisor.pids()["one"] != before
    assert is_alive(supervisor.pids()["one"])


def test_a_program_that_dies_before_it_is_ready_shows_the_end_of_its_log(supervisor: Supervisor) -> None:
    url = f"http://127.0.0.1:{free_port()}/"
    supervisor.start(script("import sys; sys.exit('no room')", ready_url=url))
    with pytest.raises(InstallationError, match=r"one ended with 1:\nno room"):
        supervisor.wait_ready()


def test_a_program_that_never_answers_is_given_up(supervisor: Supervisor) -> None:
    supervisor.start(script(SLEEP, ready_url=f"http://127.0.0.1:{free_port()}/"))
    with pytest.raises(InstallationError, match="one was not ready in time"):
        supervisor.wait_ready(seconds=0.1)


def test_stop_ends_every_program(supervisor: Supervisor, tmp_path: Path) -> None:
    for name in ("a", "b"):
        supervisor.start(script(SLEEP, name))
        wait_for_log(tmp_path, "up", name)
    pids = supervisor.pids().values()
    supervisor.stop()
    assert not any(is_alive(pid) for pid in pids)
    assert supervisor.pids() == {}


def test_kill_takes_the_children_with_it(supervisor: Supervisor, tmp_path: Path) -> None:
    parent = "import os, time; pid = os.fork(); print('pid', pid, flush=True) if pid else None; time.sleep(60)"
    supervisor.start(script(parent))
    child = int(wait_for_log(tmp_path, "pid").split()[1])
    supervisor.kill("one")
    wait_until(lambda: not is_alive(child), seconds=5, what="the child is dead")


def test_programs_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from producers.local.supervisor import Program, Supervisor\n"
        "s = Supervisor(environment={}, logs=Path(sys.argv[1]))\n"
        f"s.start(Program('one', (sys.executable, '-S', '-c', {SLEEP!r})))\n"
        "print(s.pids()['one'], flush=True); time.sleep(60)\n"
    )
    root = Path(__file__).parents[4]
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "logs")], cwd=root, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        wait_for_log(tmp_path, "up")
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_until(lambda: not is_alive(pid), seconds=5, what="the program ended with its supervisor")


# Programs that are modules of the product are forked from a process that has imported them.

PLAYED = """
import os, sys, time
def main():
    print("secret", os.environ.get("OWN"), os.environ.get("SHARED"), sys.argv[1:], flush=True)
    time.sleep(60 if sys.argv[1] == "stay" else 0)
    return 7
"""


@pytest.fixture
def forking(tmp_path: Path) -> Iterator[Supervisor]:
    (tmp_path / "played.py").write_text(PLAYED)
    environment = {"PATH": os.environ["PATH"], "SHARED": "1", "PYTHONPATH": str(tmp_path)}
    made = Supervisor(environment=environment, logs=tmp_path / "logs", database=tmp_path, forked=("played",))
    yield made
    made.stop()


def played(argument: str, name: str = "one", **own: str) -> Program:
    return Program(name, python_module("played", argument), environment=own)


def memory_of(pid: int) -> bytes:
    """Everything that a process can write to."""
    found = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for place, rights, *_ in map(str.split, maps):
            if rights.startswith("rw"):
                begin, end = (int(number, 16) for number in place.split("-"))
                memory.seek(begin)
                found.append(memory.read(end - begin))
    return b"".join(found)


@pytest.mark.req("S-065")
def test_a_forked_program_alone_has_its_secret_not_the_one_it_is_forked_from_nor_a_later_one(
    forking: Supervisor, tmp_path: Path
) -> None:
    secret = secrets.token_hex(16)
    forking.start(played("stay", "a", OWN=secret))
    forking.start(played("stay", "b"))
    assert f"secret {secret} 1 ['stay']" in wait_for_log(tmp_path, "secret", "a")
    assert "secret None 1 ['stay']" in wait_for_log(tmp_path, "secret", "b")
    a, b = forking.pids().values()
    (server,) = {psutil.Process(pid).ppid() for pid in (a, b)}
    assert [secret.encode() in memory_of(pid) for pid in (a, b, server)] == [True, False, False]


def test_a_program_that_was_being_forked_when_its_owner_was_interrupted_ends_with_the_others(
    forking: Supervisor, tmp_path: Path
) -> None:
    interrupted = forking._spawn(played("stay"))  # nothing but the fork server knows it
    wait_for_log(tmp_path, "secret")
    forking.stop()
    assert interrupted.wait(5) == -signal.SIGTERM


def test_a_program_that_is_run_to_its_end_fails_with_what_it_wrote(forking: Supervisor) -> None:
    with pytest.raises(InstallationError, match=r"^secret None 1 \['go'\]$"):
        forking.run(played("go"))


def test_a_forked_program_that_ends_or_is_killed_is_started_again(forking: Supervisor, tmp_path: Path) -> None:
    forking.start(played("stay"))
    wait_for_log(tmp_path, "secret")
    before = forking.pids()["one"]
    forking.kill("one")
    assert forking.revive() == ["one"]
    assert [is_alive(pid) for pid in (before, forking.pids()["one"])] == [False, True]
    forking.start(played("end", "two", OWN=""))
    wait_until(lambda: "two" in forking.dead(), seconds=5, what="two has ended")
    url = f"http://127.0.0.1:{free_port()}/"
    forking.start(replace(played("end", "three"), ready_url=url))
    with pytest.raises(InstallationError, match="three ended with 7"):
        forking.wait_ready(["three"])


ENDING = """
import atexit, sys
def main():
    atexit.register(print, "said at the end")
    exec(sys.argv[1])
    return 3
"""


@pytest.mark.parametrize(
    ("how", "code"), [("", 3), ("sys.exit(4)", 4), ("sys.exit()", 0), ("sys.exit('wrong')", 1), ("1 / 0", 1)]
)
def test_a_forked_program_ends_as_one_of_its_own_would(
    forking: Supervisor, tmp_path: Path, how: str, code: int
) -> None:
    (tmp_path / "played.py").write_text(ENDING)
    forking.start(replace(played(how), ready_url=f"http://127.0.0.1:{free_port()}/"))
    with pytest.raises(InstallationError, match=f"one ended with {code}"):
        forking.wait_ready(["one"])
    said = (tmp_path / "logs" / "one.log").read_text()
    assert said.endswith("said at the end\n")
    assert [word in said for word in ("wrong", "ZeroDivisionError")] == ["wrong" in how, "/" in how]


LOOKING = """
from routing.prompt.vocabulary import shipped_vocabulary
def main():
    print("read", shipped_vocabulary.cache_info().currsize, "times", flush=True)
    return 5
"""


def test_the_words_that_programs_share_are_read_once_for_all(forking: Supervisor, tmp_path: Path) -> None:
    (tmp_path / "played.py").write_text(LOOKING)
    with pytest.raises(InstallationError, match=r"^read 1 times$"):
        forking.run(played("go"))


def test_a_forked_program_may_be_gone_before_its_supervisor_looks(
    forking: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_late(channel: socket.socket) -> Forked:
        pid = int(channel.recv(64, socket.MSG_PEEK).split()[0])
        wait_until(lambda: not psutil.pid_exists(pid), seconds=5, what="it has ended")
        return Forked(channel)

    monkeypatch.setattr("producers.local.supervisor.Forked", look_late)
    forking.start(played("end"))
    wait_until(lambda: "one" in forking.dead(), seconds=5, what="its end is known")


def test_programs_outlive_no_fork_server_and_come_back_with_a_new_one(forking: Supervisor, tmp_path: Path) -> None:
    forking.start(played("stay"))
    before = forking.pids()["one"]
    psutil.Process(before).parent().kill()  # type: ignore[union-attr]
    wait_until(lambda: "one" in forking.dead() and not is_alive(before), seconds=5, what="the program has ended")
    assert forking.revive() == ["one"]
    assert is_alive(forking.pids()["one"])


ORDERING = """
import json, os, socket, sys
def main():
    if sys.argv[1] == "write":
        os.write(int(sys.argv[2]), f"{os.getppid()} {os.environ['OWN']}".encode())
        return 0
    server = socket.socket(fileno=int(os.environ["POINTSMAN_WORKER__FORK_SERVER"]))
    (ours, theirs), (reads, writes) = socket.socketpair(), os.pipe()
    socket.send_fds(server, [b"1"], [theirs.fileno(), 2, writes])
    order = {"name": "two", "argv": ["played", "write"], "environment": {"OWN": "own"}}
    ours.sendall(f"{json.dumps(order)}\\n".encode())
    socket.recv_fds(ours, 64, 1)
    print("it wrote", os.read(reads, 99).decode(), flush=True)
    return 0
"""


def test_a_program_has_another_one_forked_and_gives_it_a_descriptor(forking: Supervisor, tmp_path: Path) -> None:
    (tmp_path / "played.py").write_text(ORDERING)
    forking.start(played("order"))
    forking.start(played("order", "other"))  # what the first has ordered by ends with it
    server = psutil.Process(forking._fork_server().process.pid)
    wait_for_log(tmp_path, f"it wrote {server.pid} own")
    wait_for_log(tmp_path, f"it wrote {server.pid} own", "other")
    wait_until(lambda: not server.children(), seconds=5, what="all have ended and are reaped")


LEAVING = """
import errno, os, socket, sys, time
fork = os.fork
def fail():
    raise BlockingIOError(errno.EAGAIN, "no more tasks")
def fork_in_time():
    return fail() if os.path.exists(os.environ["PYTHONPATH"] + "/crowded") else fork()
os.fork = fork_in_time
def main():
    if sys.argv[1] == "stay":
        time.sleep(60)
    server = socket.socket(fileno=int(os.environ["POINTSMAN_WORKER__FORK_SERVER"]))
    ours, theirs = socket.socketpair()
    if sys.argv[1] == "leave":
        ours.close()
    else:
        open(os.environ["PYTHONPATH"] + "/crowded", "x").close()
    socket.send_fds(server, [b"1"], [theirs.fileno(), 2])
    theirs.close()
    print("heard", "nothing" if sys.argv[1] == "leave" else ours.recv(64), flush=True)
    return 0
"""


def test_an_order_of_a_program_that_is_gone_or_that_cannot_be_met_ends_no_other_program(
    forking: Supervisor, tmp_path: Path
) -> None:
    (tmp_path / "played.py").write_text(LEAVING)
    forking.start(played("stay"))
    server = psutil.Process(forking._fork_server().process.pid)
    forking.start(played("leave", "two"))
    wait_for_log(tmp_path, "heard nothing", "two")
    wait_until(lambda: len(server.children()) == 1, seconds=5, what="what it ordered has ended, too")
    forking.start(played("order", "three"))
    wait_for_log(tmp_path, "heard b''", "three")
    (tmp_path / "crowded").unlink()
    forking.start(played("stay", "four"))
    wait_until(lambda: set(forking.dead()) == {"two", "three"}, seconds=5, what="both have ended, and no other")
    assert psutil.Process(forking.pids()["four"]).ppid() == server.pid


@pytest.mark.slow
def test_a_killed_supervisor_leaves_neither_programs_nor_the_database(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; from pathlib import Path\n"
        "from producers.local.supervisor import Program, Supervisor, python_module\n"
        "home = Path(sys.argv[1]); environment = dict(os.environ, PYTHONPATH=sys.argv[1])\n"
        "s = Supervisor(environment=environment, logs=home / 'logs', database=home, forked=('played',))\n"
        "s.start(Program('one', python_module('played', 'stay')))\n"
        "print(s.pids()['one'], flush=True); time.sleep(60)\n"
    )
    (tmp_path / "played.py").write_text(PLAYED)
    heeds = "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); "  # as a database does by itself
    database = subprocess.Popen([sys.executable, "-S", "-c", heeds + SLEEP])
    (tmp_path / "postmaster.pid").write_text(f"{database.pid}\n")
    argv = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(argv, cwd=Path(__file__).parents[4], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        server = psutil.Process(pid).ppid()
        process.kill()
    assert database.wait(10) == -signal.SIGINT
    wait_until(lambda: not is_alive(pid) and not is_alive(server), seconds=5, what="the programs ended")


def test_a_port_that_is_taken_is_not_given_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert free_port(taken.getsockname()[1]) != taken.getsockname()[1]
        other = free_port()
        assert free_port(taken.getsockname()[1], other) == other
    port = free_port()
    assert free_port(port) == port


def test_no_port_is_chosen_for_two_names() -> None:
    """Two listeners kept one port, so that no later run of that home could start either (issue 20)."""
    port = free_port()
    chosen = free_ports({"api": [port], "pages": [port], "gateway": []})
    assert chosen["api"] == port
    assert len(set(chosen.values())) == 3
