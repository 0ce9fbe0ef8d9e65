"""The trivial commands of seed 002: a fixed grammar, run without a shell and without a model.

The router has already matched the whole prompt against the grammar; what arrives here is its argument vector. It is
checked again, because a queue is no place to trust.
"""

from __future__ import annotations

import shutil
import subprocess

from routing.jobs import Reason, State
from routing.messages import read_stored
from routing.policy import Tools
from routing.router import Route
from routing.trivial import parse_trivial
from workers.attempt import Attempt
from workers.outcomes import Answered, Ended, Outcome

_ACCOUNT = "pointsman"
_PLACE = "/"


def run_tool(attempt: Attempt) -> Outcome:
    """Answer one trivial command."""
    route = read_stored(Route, attempt.claim.job.route)
    argv = parse_trivial(attempt.prompt)
    if argv is None or tuple(argv) != tuple(route.argv):
        return _refused("the command does not match the grammar of trivial commands")
    return answer_tool(tuple(argv), tools=attempt.policy.tools, timeout_seconds=attempt.limits.soft_seconds - 1)


def answer_tool(argv: tuple[str, ...], *, tools: Tools, timeout_seconds: float) -> Outcome:
    """Answer an argument vector of the grammar.

    `pwd` and `whoami` answer for the fleet, not for the machine: paths and accounts of a host are nobody's business.
    """
    name, arguments = argv[0], argv[1:]
    if name == "pwd":
        return Answered(_PLACE)
    if name == "whoami":
        return Answered(_ACCOUNT)
    if name == "echo":
        return Answered(" ".join(arguments))
    if name == "date":
        return _run(("date", *arguments), timeout_seconds=timeout_seconds)
    if name == "ping":
        return _ping(arguments, tools=tools, timeout_seconds=timeout_seconds)
    return _refused(f"{name} is not a trivial command")


def _ping(arguments: tuple[str, ...], *, tools: Tools, timeout_seconds: float) -> Outcome:
    host = arguments[-1] if arguments else ""
    if host not in tools.ping_hosts:
        return _refused("the host is not on the installation's list tools.ping_hosts")
    if shutil.which("ping") is None:
        return Ended(State.FAILED, Reason.NOT_AVAILABLE, "`ping` is not installed on this worker")
    return _run(("ping", "-c", "1", "-W", "2", host), timeout_seconds=timeout_seconds)


def _run(argv: tuple[str, ...], *, timeout_seconds: float) -> Outcome:
    try:
        done = subprocess.run(  # argv is a list from the grammar; there is no shell
            argv, capture_output=True, text=True, timeout=timeout_seconds, check=False, env={"LC_ALL": "C", "TZ": "UTC"}
        )
    except subprocess.TimeoutExpired:
        return Ended(State.TIMED_OUT, Reason.TIME_LIMIT, f"`{argv[0]}` did not end in time; nothing was kept")
    if done.returncode != 0:
        return _refused(done.stderr.strip()[:200] or f"`{argv[0]}` failed")
    return Answered(done.stdout.rstrip("\n"))


def _refused(why: str) -> Ended:
    return Ended(State.FAILED, Reason.COMMAND_REFUSED, why)
