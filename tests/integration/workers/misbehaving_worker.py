"""A worker that does on the queues of `OBEYING` what prompts say: `python -m ... POOL CONCURRENCY LIST...`."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

from routing.broker import TRANSPORT_OPTIONS
from routing.config import read_settings
from routing.queues import QueueName
from sites.errors import TreeRefusedError
from workers import dense
from workers.attempt import Attempt
from workers.compute import timed
from workers.inputs import Inputs
from workers.main import WorkerSettings, build_worker, run_worker, start_children
from workers.outcomes import Answered, Outcome
from workers.tasks import HANDLERS

MEBIBYTE = 1_048_576
OBEYING = (QueueName.TOOLS, QueueName.ANSWER, QueueName.SPEC, QueueName.PATCH)


def say(line: str) -> None:
    """Write a line in one piece: `print` writes its end apart, and the lines of threads would run together."""
    os.write(sys.stderr.fileno(), f"{line}\n".encode())


def nap(seconds: float) -> None:
    """Wait as attempts do, where either pool can interrupt."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        dense.pause(0.02)


def obey(attempt: Attempt) -> Outcome:
    """Do what the prompt says."""
    say(f"begin {attempt.prompt} {os.getpid()}")
    match attempt.prompt.split():
        case ["nap", seconds, *_]:
            try:
                nap(float(seconds))
            finally:
                say("let go")
        case ["heed", seconds, *_]:
            deadline = time.monotonic() + float(seconds)
            while time.monotonic() < deadline:
                attempt.check()
                time.sleep(0.05)
        case ["ask", *_]:
            attempt.call("answer", lambda models, call: models.create([attempt.prompt], model=call.model, max_tokens=9))
        case ["long", length, *_]:
            return Answered("x" * int(length))
        case ["compute", *words]:
            attempt.compute(compute, words)
        case ["store", word]:
            sha256 = attempt.content_store.put(word.encode())
            return Answered(attempt.compute(read, sha256))
        case words:
            misbehave(words)
    return Answered(attempt.prompt)


def compute(inputs: Inputs, words: list[str]) -> None:
    """Do what a computation must not do."""
    say(f"compute {inputs.prompt} {os.getpid()}")
    if words[0] == "refuse":
        with timed("apply"):
            raise TreeRefusedError("too_many", "a.html", "one too many")
    if words[0] == "rest":
        time.sleep(float(words[1]))
    if words[0] == "spin":
        deadline = time.monotonic() + float(words[1])
        while time.monotonic() < deadline:
            pass
    misbehave(words)


def read(inputs: Inputs, sha256: str) -> str:
    """Return what the content store has, where an attempt computes."""
    return inputs.content_store.get(sha256).decode()


def misbehave(words: list[str]) -> None:
    match words:
        case ["deaf", seconds, *_]:
            deadline = time.monotonic() + float(seconds)
            while time.monotonic() < deadline:
                with suppress(BaseException):
                    time.sleep(0.05)
        case ["stubborn", seconds]:
            for signum in (signal.SIGUSR1, signal.SIGUSR2):
                signal.signal(signum, signal.SIG_IGN)
            child = subprocess.Popen(["sleep", "300"])
            say(f"grandchild {child.pid}")
            nap(float(seconds))
        case ["die", *_]:
            os.kill(os.getpid(), signal.SIGKILL)
        case ["hog", mebibytes]:
            _ = bytearray(int(mebibytes) * MEBIBYTE)  # written to, so that it is resident
        case ["swell", *_]:
            kept = []
            while True:
                kept.append(bytearray(64 * MEBIBYTE))


def main() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: nothing of a broken-off test run stays
    name = f"misbehaving@test.{os.getpid()}"
    os.environ.pop("POINTSMAN_WORKER__FORK_SERVER", None)  # its pool of threads starts what computes by itself
    settings = read_settings(WorkerSettings, os.environ)
    app, hooks = build_worker(
        settings,
        worker=name,
        queues=sys.argv[3:],
        concurrency=int(sys.argv[2]),
        children=start_children(settings) if sys.argv[1] == "dense" else None,
        handlers={**HANDLERS, **dict.fromkeys(OBEYING, obey)},
    )
    # Whatever a visibility timeout can do, it does here within a second; half-open connections are noticed soon.
    app.conf.broker_transport_options = TRANSPORT_OPTIONS | {
        "visibility_timeout": 1,
        "unacked_restore_interval": 0.5,
        "unacked_restore_throttle": 1,
        "health_check_interval": 1,
    }
    try:
        run_worker(app, sys.argv[3:], concurrency=int(sys.argv[2]), worker=name)
    finally:
        hooks.finish()


if __name__ == "__main__":
    main()
