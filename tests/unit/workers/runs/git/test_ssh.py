"""What comes from the ssh client is counted, bounded and never waited for when nobody asked to wait."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.services import wait_until
from workers.runs.git.allowance import Allowance
from workers.runs.git.ssh import _SAID_BYTES, _Channel


@contextmanager
def channel(script: str) -> Iterator[tuple[_Channel, subprocess.Popen[bytes]]]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(["sh", "-c", script], bufsize=0, **pipes)
    with closing(_Channel(process, Allowance(deadline=time.monotonic() + 20, bytes=100))) as made:
        yield made, process


def test_whether_a_server_has_answered_is_told_without_waiting_for_it() -> None:
    with channel("read line; echo two; sleep 30") as (made, _):
        began = time.monotonic()
        assert not made.can_read()
        assert time.monotonic() - began < 5
        made.write(b"go\n")
        wait_until(made.can_read, seconds=5, what="the answer is there")
        assert made.read(4) == b"two\n"


def test_a_client_that_complains_without_end_is_ended_and_its_last_words_are_kept() -> None:
    with channel("while echo 'Host key'; do :; done >&2") as (made, process):
        assert process.wait(10) < 0
    assert b"Host key" in made.said
    assert len(made.said) == _SAID_BYTES
