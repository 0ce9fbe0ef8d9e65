"""A workspace in memory in which the fake provider's agents play their steps, by the runners' own tools and orders."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.fake_provider.team import run_agent
from gateway.fake_provider.wire import Text, ToolUse
from routing.policy.agents import API_TOOLS, RESULT_FILE, is_covered
from routing.policy.platform import platform_policy
from tests.unit.gateway.fake_provider.factories import make_request, tool, user
from workers.errors import ToolRefusedError
from workers.file_tools import FileTools
from workers.runs.api_runner import finish_tool
from workers.runs.scheduling.view import AgentResult, parse_result
from workers.runs.step_context import StepBrief, claude_md, order_text

AGENTS = platform_policy().agents
ROOT = "/workspace"
PROJECT = {
    "package.json": b'{"name": "shop", "type": "module", "scripts": {"test": "node --test"}}\n',
    "tsconfig.json": b"{}\n",
    "README.md": b"# Shop\n",
    "src/price.ts": b"export function cents(price: number): number {\n  return Math.floor(price * 100);\n}\n",
    "src/cart.ts": b"export const empty = [];\n",
    "tests/cart.test.ts": b'import { test } from "node:test";\ntest("cart", () => {});\n',
}
FIX = {
    "title": "Prices are rounded down",
    "body": "src/price.ts uses `Math.floor` instead of `Math.round`, so totals are wrong.",
    "priority": "P2",
}
FEATURE = {
    "title": "Add a wishlist page",
    "body": "Let users keep products on a page. It needs an API endpoint to store them.",
}
MIXED = {
    "title": "Fix rounding and add a discount form",
    "body": "src/price.ts uses `Math.floor` instead of `Math.round`. Also add a form where users enter a code.",
    "priority": "P0",
}


@dataclass
class Played:
    """How one step went."""

    result: AgentResult
    turns: int
    dropped: list[str]
    commands: list[str]


@dataclass
class AgentWorkspace:
    """The project's files, which every step changes."""

    files: dict[str, bytes] = field(default_factory=lambda: dict(PROJECT))
    shell: Callable[[str], str] = lambda command: "# fail 0"

    def play(
        self,
        agent: str,
        ticket: Mapping[str, Any],
        *,
        task: str = "Do your part.",
        key: str = "step",
        results: Mapping[str, AgentResult] | None = None,
        writes: tuple[str, ...] | None = None,
        runtime: str | None = None,
    ) -> Played:
        """Let an agent play one step to its end."""
        definition = AGENTS[agent]
        said = {name: result.model_dump(mode="json") for name, result in (results or {}).items()}
        words = StepBrief(
            key=key,
            agent=agent,
            task=task,
            ticket=ticket,
            results=said,
            context=(),
            writes=definition.writes if writes is None else writes,
        )
        order = order_text(words, redact=lambda text: text)
        has_box = definition.needs_box if runtime is None else runtime == "claude_code"
        hands = _Cli(self) if has_box else _Api(self, words.writes, definition.tools)
        system = claude_md(agent, definition)
        if has_box:
            system = f" - Primary working directory: {ROOT}\n{system}"
        turns = _converse(hands, order, system)
        result = parse_result(hands.files.pop(RESULT_FILE))
        dropped = [
            path
            for path, data in hands.files.items()
            if self.files.get(path) != data and not is_covered(path, words.writes)
        ]
        self.files |= {path: data for path, data in hands.files.items() if path not in dropped}
        return Played(result, turns, dropped, hands.commands)


def _converse(hands: _Cli | _Api, order: str, system: str) -> int:
    messages: list[dict[str, Any]] = [user(order)]
    for turn in range(1, 60):
        blocks = run_agent(make_request(*messages, tools=hands.tools, system=system))
        assert len(blocks) == 1
        block = blocks[0]
        if isinstance(block, Text):
            return turn
        text, is_error = hands.use(block)
        use = {"type": "tool_use", "id": f"toolu_{turn}", "name": block.name, "input": block.input}
        came = {"type": "tool_result", "tool_use_id": f"toolu_{turn}", "content": text, "is_error": is_error}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [came]}]
    raise AssertionError("the play does not end")


class _Api:
    """The file tools of the `api` runtime."""

    def __init__(self, workspace: AgentWorkspace, writes: tuple[str, ...], tools: frozenset[str]) -> None:
        given = {**workspace.files, ".agent-context/ticket.md": b"staged"}
        self._tools = FileTools(given, writes=writes, most_bytes=10**6)
        self._allowed = (tools if "finish" in tools else API_TOOLS) - {"finish"}
        self.tools = [*self._tools.definitions(self._allowed), finish_tool()]
        self.commands: list[str] = []
        self.files: dict[str, bytes] = {}

    def use(self, block: ToolUse) -> tuple[str, bool]:
        if block.name == "finish":
            raw = json.dumps(block.input).encode()
            parse_result(raw)
            self.files = {
                path: data for path, data in self._tools.files.items() if not path.startswith(".agent-context/")
            }
            self.files[RESULT_FILE] = raw
            return "done", False
        try:
            return self._tools.use(block.name, block.input, allowed=self._allowed), False
        except ToolRefusedError as error:
            return str(error), True


class _Cli:
    """What Claude Code's tools answer."""

    def __init__(self, workspace: AgentWorkspace) -> None:
        self.files = dict(workspace.files)
        self.commands: list[str] = []
        self.tools = [tool(name) for name in ("Bash", "Edit", "Glob", "Grep", "Read", "Write")]
        self._shell = workspace.shell
        self._read: set[str] = set()

    def use(self, block: ToolUse) -> tuple[str, bool]:
        if block.name == "Bash":
            return self._bash(block.input["command"])
        assert block.input["file_path"].startswith(f"{ROOT}/")
        path = block.input["file_path"].removeprefix(f"{ROOT}/")
        if block.name == "Read":
            self._read.add(path)
            lines = self.files[path].decode().splitlines()
            return "\n".join(f"{number:>6}→{line}" for number, line in enumerate(lines, start=1)), False
        if path in self.files and path not in self._read:
            return "File has not been read yet. Read it first before writing to it.", True
        assert block.name == "Write"
        self._read.add(path)
        self.files[path] = block.input["content"].encode()
        return "File created successfully", False

    def _bash(self, command: str) -> tuple[str, bool]:
        if command.startswith("find . "):
            return "\n".join(f"./{path}" for path in sorted(self.files)), False
        self.commands.append(command)
        return self._shell(command), False


def text_of(files: Mapping[str, bytes], pattern: str) -> str:
    """Return the one file whose path matches."""
    found = [path for path in files if re.fullmatch(pattern, path)]
    assert len(found) == 1, (pattern, sorted(files))
    return files[found[0]].decode()
