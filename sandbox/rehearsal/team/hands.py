"""Two ways to work on files: the file tools of the `api` runtime, and the tools of Claude Code in a box.

What was seen and done so far is read back from the conversation, so that nothing has to be remembered between calls.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sandbox.rehearsal.blocks import ToolUse
from sandbox.rehearsal.request import Request, ToolResult

RESULT_FILE = ".agent-result.json"
_LISTING = "find . -type f -not -path '*/node_modules/*' -not -path './.git/*' | sort | head -n 1500"
_DIRECTORY = re.compile(r"[Ww]orking directory:\s*(\S+)")
_NUMBERED = re.compile(r"^\s*\d+(?:→|\t)(.*)$")
_PART = r"[\w.@()\[\]-]"
_PATH = re.compile(
    rf"(?<![\w.@()\[\]/-])(?:\./)?((?:{_PART}{{1,120}}/){{0,32}}{_PART}{{0,120}}\w\.[A-Za-z][A-Za-z0-9]{{0,9}})(?![\w/])"
)
_MOST_LINE = 1_000


@dataclass
class Done:
    """What the conversation shows."""

    paths: tuple[str, ...] | None = None
    """None until the files were listed."""
    texts: dict[str, str] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    """Paths that reading was tried of."""
    written: set[str] = field(default_factory=set)
    """Paths that writing was tried of."""
    kept: set[str] = field(default_factory=set)
    """Those of them that were written."""
    printed: str | None = None
    has_result: bool = False

    def note_write(self, path: str, result: ToolResult) -> None:
        """Note how writing a file went."""
        self.written.add(path)
        if not result.is_error:
            self.kept.add(path)


class Hands(Protocol):
    """One set of tools."""

    def done(self) -> Done:
        """Return what was seen and done so far."""

    def list(self) -> ToolUse | None:
        """Return the use of a tool that lists files, or None without one."""

    def read(self, path: str) -> ToolUse | None:
        """Likewise for reading a file."""

    def write(self, path: str, content: str) -> ToolUse | None:
        """Likewise for writing one."""

    def run(self, command: str) -> ToolUse | None:
        """Likewise for a command."""

    def finish(self, result: Mapping[str, Any]) -> ToolUse | None:
        """Likewise for handing in the result."""


def hands_of(request: Request) -> Hands:
    """Return the hands that the tools of a request make."""
    return CliHands(request) if request.tool("Write") or request.tool("Bash") else ApiHands(request)


@dataclass(frozen=True)
class ApiHands:
    """`list_files`, `read_file`, `write_file` and `finish`."""

    request: Request

    def done(self) -> Done:
        """See `Hands`."""
        done = Done()
        for result in self.request.tool_results:
            path = str(result.input.get("path", ""))
            if result.tool == "list_files":
                done.paths = _paths(result.text)
            elif result.tool == "read_file":
                done.tried.add(path)
                if not result.is_error:
                    done.texts[path] = result.text
            elif result.tool == "write_file":
                done.note_write(path, result)
            elif result.tool == "finish":
                done.has_result = not result.is_error
        return done

    def list(self) -> ToolUse | None:
        """See `Hands`."""
        return self._use("list_files")

    def read(self, path: str) -> ToolUse | None:
        """See `Hands`."""
        return self._use("read_file", path=path)

    def write(self, path: str, content: str) -> ToolUse | None:
        """See `Hands`."""
        return self._use("write_file", path=path, content=content)

    def run(self, command: str) -> ToolUse | None:
        """See `Hands`: there is no shell."""
        return None

    def finish(self, result: Mapping[str, Any]) -> ToolUse | None:
        """See `Hands`."""
        return self._use("finish", **result)

    def _use(self, name: str, **given: Any) -> ToolUse | None:
        return ToolUse(name, given) if self.request.tool(name) else None


@dataclass(frozen=True)
class CliHands:
    """`Bash`, `Read` and `Write` of Claude Code; the result is a file."""

    request: Request

    def done(self) -> Done:
        """See `Hands`."""
        done = Done()
        for result in self.request.tool_results:
            path = self._relative(str(result.input.get("file_path", "")))
            if result.tool == "Bash":
                self._note_command(result, done)
            elif result.tool == "Read":
                done.tried.add(path)
                if (text := _numbered(result)) is not None:
                    done.texts[path] = text
            elif result.tool == "Write":
                done.note_write(path, result)
                done.has_result = done.has_result or (path == RESULT_FILE and not result.is_error)
        return done

    def _note_command(self, result: ToolResult, done: Done) -> None:
        if result.input.get("command") == _LISTING:
            done.paths = _paths(result.text)
        else:
            done.printed = result.text

    def list(self) -> ToolUse | None:
        """See `Hands`."""
        return self._use("Bash", command=_LISTING, description="List the project's files")

    def read(self, path: str) -> ToolUse | None:
        """See `Hands`."""
        return self._use("Read", file_path=self._absolute(path))

    def write(self, path: str, content: str) -> ToolUse | None:
        """See `Hands`."""
        return self._use("Write", file_path=self._absolute(path), content=content)

    def run(self, command: str) -> ToolUse | None:
        """See `Hands`."""
        return self._use("Bash", command=command, description="Check the work")

    def finish(self, result: Mapping[str, Any]) -> ToolUse | None:
        """See `Hands`."""
        return self.write(RESULT_FILE, json.dumps(result, indent=2, ensure_ascii=False) + "\n")

    @property
    def _root(self) -> str:
        stated = _DIRECTORY.search(self.request.system)
        return stated[1] if stated else ""

    def _absolute(self, path: str) -> str:
        return posixpath.join(self._root, path)

    def _relative(self, path: str) -> str:
        root = self._root
        return path.removeprefix(f"{root}/") if root else path

    def _use(self, name: str, **given: Any) -> ToolUse | None:
        return ToolUse(name, given) if self.request.tool(name) else None


def _paths(listing: str) -> tuple[str, ...]:
    """Return the files that a listing names, in whatever form: one on a line, with or without sizes."""
    return tuple(dict.fromkeys(_found(listing)))


def _found(listing: str) -> Iterator[str]:
    for line in listing.splitlines()[:5000]:
        if found := _PATH.search(line[:_MOST_LINE]):
            yield found[1]


def _numbered(result: ToolResult) -> str | None:
    """Return the lines that a Read of Claude Code shows, without their numbers."""
    if result.is_error:
        return None
    lines = [found[1] for line in result.text.splitlines() if (found := _NUMBERED.match(line))]
    return "\n".join(lines) + "\n" if lines else None
