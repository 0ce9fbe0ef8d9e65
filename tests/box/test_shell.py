"""A person's shell in a box: a terminal in the walls of any box, and its end on record."""

import os
import pty
import threading
from contextlib import suppress

import pytest

from sandbox.box import CollectRules
from sandbox.docker.box import DockerBox
from sandbox.docker.terminal import MOST_BYTES, plain_text
from sites.content_store import ContentStore

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
        ("box:", "pwd; tty; touch /etc/x; env | grep -ci token; sleep 60\r"),
        ("\n0\r", "\x03"),
        ("^C", ""),  # what is typed before the next prompt, the shell forgets
        ("box:", "(sleep 1; printf 'sec%s' ret:) & read -rs x; echo after > a.txt; echo $?\r"),
        ("secret:", "hidden\r"),
        ("\n0\r", "exit\r"),
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
