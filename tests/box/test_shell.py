"""A person's shell in a box: a terminal in the walls of any box, and its end on record."""

import json
import os
import pty
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from ledger.store import Ledger, create_ledger_engine
from sandbox.docker.box import DockerBox
from sandbox.docker.engine import Engine
from sandbox.docker.terminal import MOST_BYTES, plain_text
from sandbox.tarball import CollectRules
from sites.content_store import ContentStore
from tests.box.test_leftovers import standing
from tests.engine import TestEngine
from tests.factories import Shop
from tests.integration.runs.run_world import Yard
from tests.services import Postgres

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]


def typed(box: DockerBox, *keys: tuple[str, str], seconds: float = 60) -> tuple[str, str]:
    """Type into a terminal of a person's, each once something is seen; return what is recorded and what was seen."""
    screen, terminal = pty.openpty()
    seen = bytearray()

    def work() -> None:
        left = list(keys)
        at = 0
        with suppress(OSError):
            while piece := os.read(screen, 65_536):
                seen.extend(piece)
                while left and (place := seen.find(left[0][0].encode(), at)) >= 0:
                    at = place + len(left[0][0])
                    os.write(screen, left.pop(0)[1].encode())

    working = threading.Thread(target=work)
    working.start()
    try:
        shown = box.attend(term="xterm", stdin=terminal, stdout=terminal, seconds=seconds)
    finally:
        os.close(terminal)
        working.join(10)
        os.close(screen)
    return plain_text(shown), seen.decode()


@pytest.mark.threat("A2", "B1")
def test_a_person_has_a_terminal_within_the_walls_and_leaves_files(box: DockerBox, content_store: ContentStore) -> None:
    box.put({"a.txt": b"before"})
    said, seen = typed(
        box,
        ("box:", "pwd; tty; touch /etc/x; env | grep -ci token; sh -c 'echo waits; exec sleep 60'\r"),
        ("\nwaits\r", "\x03"),  # said by what it stops: before that the terminal may still be the shell's
        ("^C", ""),  # what is typed before the next prompt, the shell forgets
        ("box:", "(sleep 1; printf 'sec%s' ret:) & read -rs x; echo after > a.txt; echo $?\r"),
        ("secret:", "hidden\r"),
        ("0\r", "exit\r"),  # beside what was asked for, as the shell does not show the line's end either
    )

    lines = said.splitlines()
    assert "/workspace" in lines
    assert any(line.startswith("/dev/pts/") for line in lines)
    assert "touch: cannot touch '/etc/x': Read-only file system" in lines
    assert lines[lines.index("touch: cannot touch '/etc/x': Read-only file system") + 1] == "0", "no token is there"
    assert "^C" in said, "Ctrl-C is a key of the box's terminal"
    assert "hidden" not in said, "what is typed is on record as it is shown"
    assert "/workspace" in seen
    assert "\x1b" not in said
    assert content_store.read_tree(box.collect(content_store, CollectRules(max_bytes=1000))) == {"a.txt": b"after\n"}


def test_a_shell_is_over_at_its_time_and_only_its_end_is_kept(box: DockerBox) -> None:
    line = "echo begin; yes | head -c 200000; echo; echo end; sleep 60\r"
    said, _ = typed(box, ("box:", line), seconds=8)

    assert "begin" not in said
    assert said.splitlines()[-1] == "end"
    assert len(said) <= MOST_BYTES


def test_the_command_gives_a_shell_at_a_run_s_gate_and_leaves_a_commit_of_that_person(
    daemon: TestEngine, engine: Engine, postgres: Postgres, tmp_path: Path
) -> None:
    with postgres.database() as url:
        ledger = Ledger(create_ledger_engine(url, pool_size=2))
        yard = Yard(Shop(ledger, url=url), tmp_path)
        run_id = yard.submit("Fix the broken header", priority="P0")
        yard.settle()
        settings = daemon.config()
        policy = tmp_path / "policy.json"
        policy.write_text(yard.policy.model_dump_json())
        environment = {
            "PATH": os.defpath,
            "POINTSMAN_LEDGER__URL": url,
            "POINTSMAN_POLICY__PATH": str(policy),
            "POINTSMAN_RUNS__ROOT": str(yard.resources.runs.root),
            "POINTSMAN_BOX__ENGINE": settings.engine,
            "POINTSMAN_BOX__INSTALL": settings.install,
            "POINTSMAN_BOX__MEMORY_MIB": str(settings.memory_mib),
        }
        who = ("--tenant=acme", "--as=ann", "--author=Ann Smith <ann@acme.example>", "--minutes=2", "--json")
        done = subprocess.run(
            [sys.executable, "-m", "workers.runs.shell", *who, "--", str(run_id)],
            input=b"echo 'export const mine = 1;' > src/app.ts; echo x > README.md\nexit\n",
            env=environment,
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        end = json.loads(done.stdout.splitlines()[-1])
        assert (end["changed"], end["dropped"]) == (["src/app.ts"], ["README.md: not_allowed"])
        assert yard.run(run_id).head_commit == end["commit"]
        (shell,) = yard.open_gate(run_id).facts["shells"]
        assert shell["by"] == "ann"
        assert "export const mine" in shell["said"]
        ledger.close()
    assert standing(engine) == {}
