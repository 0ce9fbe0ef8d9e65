"""A worker whose `tools` handler ignores its soft limit and has a child process, for test_hard_limit.py."""

import os
import signal
import subprocess
import sys
import time

from routing.config import read_settings
from routing.queues import QueueName
from workers.attempt import Attempt
from workers.handlers.answer import run_tool
from workers.main import WorkerSettings, build_worker, run_worker
from workers.outcomes import Outcome
from workers.tasks import HANDLERS


def stubborn(attempt: Attempt) -> Outcome:
    """Ignore the soft limit for the prompt `echo stubborn`; do the usual otherwise."""
    if attempt.prompt == "echo stubborn":
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "300"])
        print(f"child {child.pid}", file=sys.stderr, flush=True)
        time.sleep(300)
    return run_tool(attempt)


if __name__ == "__main__":
    handlers = {**HANDLERS, QueueName.TOOLS: stubborn}
    app, hooks = build_worker(read_settings(WorkerSettings, os.environ), worker="stubborn", handlers=handlers)
    run_worker(app, ["tools"], concurrency=1, worker="stubborn@test")
