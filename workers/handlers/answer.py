"""Answer a question or do read-only work: a model with file tools over the release, which can change nothing."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from gateway.client import ModelClient, ModelReply, Text, ToolResult, ToolUse, Turn
from routing.decision.llm_router import system_prompt
from routing.decision.router import Mode, Route
from routing.decision.triggers import parse_trivial
from routing.jobs import Reason, State, read_stored
from routing.policy.platform import ModelCall, Tools
from sites.excerpts import show_text
from workers.attempt import Attempt
from workers.errors import ToolRefusedError
from workers.file_tools import FileTools
from workers.inputs import Inputs
from workers.outcomes import Answered, Ended, Outcome

MAX_TURNS = 6
"""Of one answer: reading a file takes one."""
MAX_FILE_CHARACTERS = 12_000
"""How much of a file one call shows."""

_TOOLS = ("list_files", "read_file", "search_files")


def answer_question(attempt: Attempt) -> Outcome:
    """Ask the model, serve its file tools, return its text."""
    question = attempt.compute(_question) if attempt.start is not None else [Text(attempt.asked)]
    tools = FileTools({}).definitions(_TOOLS) if len(question) > 1 else []
    conversation: list[Turn] = [question]
    for turn in range(1, MAX_TURNS + 1):
        reply = _ask(attempt, conversation, tools=tools if turn < MAX_TURNS else [])
        if not reply.tool_uses:
            break
        conversation += [reply, attempt.compute(_serve_tools, reply.tool_uses)]
    return Answered(reply.text, {"model_turns": turn})


def _question(inputs: Inputs) -> list[Text]:
    """Return the question, below what the pages say: cached, as every turn and the next question read it again."""
    if not inputs.files:
        return [Text(inputs.asked)]
    site = inputs.site.name if inputs.site is not None else ""
    pages = f"The site {site!r}, {len(inputs.files)} files. The text of its pages:\n"
    return [Text(pages + show_text(inputs.files, inputs.prompt), ends_prefix=True), Text(inputs.asked)]


def _serve_tools(inputs: Inputs, uses: Sequence[ToolUse]) -> list[ToolResult]:
    tools = FileTools(inputs.files, most_shown=MAX_FILE_CHARACTERS)
    return [_serve_tool(use, tools) for use in uses]


def _serve_tool(call: ToolUse, tools: FileTools) -> ToolResult:
    try:
        return ToolResult(call.id, tools.use(call.name, call.input, allowed=_TOOLS))
    except ToolRefusedError as refused:
        return ToolResult(call.id, str(refused), is_error=True)


def _ask(attempt: Attempt, conversation: list[Turn], *, tools: list[dict[str, Any]]) -> ModelReply:
    system = system_prompt(Mode.ANSWER)

    def make(models: ModelClient, call: ModelCall) -> ModelReply:
        return models.create(conversation, model=call.model, max_tokens=call.max_tokens, system=system, tools=tools)

    return attempt.call("answer", make)


_ACCOUNT = "pointsman"
_PLACE = "/"


def run_tool(attempt: Attempt) -> Outcome:
    """Answer one trivial command, without a shell and without a model.

    The router has matched the prompt against the grammar; it is checked again, because a queue is not to be trusted.
    """
    route = read_stored(Route, attempt.claim.job.route)
    argv = parse_trivial(attempt.prompt)
    if argv is None or tuple(argv) != tuple(route.argv):
        return _refused("the command does not match the grammar of trivial commands")
    return answer_tool(tuple(argv), tools=attempt.policy.tools, timeout_seconds=attempt.limits.soft_seconds - 1)


def answer_tool(argv: tuple[str, ...], *, tools: Tools, timeout_seconds: float) -> Outcome:
    """Answer an argument vector of the grammar.

    `pwd` and `whoami` answer for the fleet: paths and accounts of a host are private.
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
        done = subprocess.run(  # no shell; argv comes from the grammar
            argv, capture_output=True, text=True, timeout=timeout_seconds, check=False, env={"LC_ALL": "C", "TZ": "UTC"}
        )
    except subprocess.TimeoutExpired:
        return Ended(State.TIMED_OUT, Reason.TIME_LIMIT, f"`{argv[0]}` did not end in time; nothing was kept")
    if done.returncode != 0:
        return _refused(done.stderr.strip()[:200] or f"`{argv[0]}` failed")
    return Answered(done.stdout.rstrip("\n"))


def _refused(why: str) -> Ended:
    return Ended(State.FAILED, Reason.COMMAND_REFUSED, why)
