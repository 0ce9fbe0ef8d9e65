"""Boxes without walls in which `claude` and `npm` are small programs that a test writes: any behaviour, no engine."""

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox.box_spec import WORKSPACE, BoxSpec, Target
from sandbox.claude_code import CLI_VERSION, CONVERSATION_FILE
from sandbox.execution import Clocks, ExecResult, OnLine
from sandbox.local_box import LocalBox
from tests.services import wait_until

PRELUDE = """
import json, os, pathlib, sys, time, urllib.error, urllib.request

MODEL = next(word for word in sys.argv if word.startswith("--model=")).partition("=")[2]
TOOLS = ["Bash", "Edit", "Glob", "Grep", "Read", "Write"]
MODE = "bypassPermissions" if "--dangerously-skip-permissions" in sys.argv else "dontAsk"
prompt = json.loads(sys.stdin.readline())["message"]["content"]

def put(**event):
    print(json.dumps(event), flush=True)

def init(**fields):
    base = {"tools": TOOLS, "mcp_servers": [], "plugins": [], "model": MODEL, "permissionMode": MODE,
            "slash_commands": [], "skills": [], "claude_code_version": VERSION}
    put(type="system", subtype="init", **{**base, **fields})

def use(tool, **given):
    block = {"type": "tool_use", "id": f"toolu_{time.monotonic_ns()}", "name": tool, "input": given}
    put(type="assistant", message={"role": "assistant", "model": MODEL, "content": [block]})
    return block["id"]

def write(path, text):
    use("Write", file_path=path)
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_text(text)

def result(text="Done.", subtype="success", is_error=False, **fields):
    put(type="result", subtype=subtype, is_error=is_error, result=text, num_turns=1, permission_denials=[], **fields)

def call(max_tokens=6000, about="x"):
    body = {"model": MODEL, "max_tokens": max_tokens, "messages": [{"role": "user", "content": about}]}
    headers = {"authorization": "Bearer " + os.environ["ANTHROPIC_AUTH_TOKEN"], "content-type": "application/json"}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages?beta=true"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
"""


PRELUDE = PRELUDE.replace("VERSION", repr(CLI_VERSION), 1)


class PlayedBox(LocalBox):
    """Finds its programs in a directory of the test's."""

    def __init__(self, spec: BoxSpec, programs: Path, *, is_walled: bool = False) -> None:
        super().__init__(spec)
        self.is_walled = is_walled
        self.programs = programs
        self.commands: list[tuple[str, ...]] = []
        self.environments: list[dict[str, str]] = []
        self.is_closed = False

    def run(
        self,
        argv: Sequence[str],
        *,
        clocks: Clocks,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str = WORKSPACE,
        on_line: OnLine | None = None,
        watch: Callable[[], None] | None = None,
    ) -> ExecResult:
        self.commands.append(tuple(argv))
        self.environments.append(dict(env or {}))
        own = {**(env or {}), "PATH": f"{self.programs}:{os.defpath}"}
        return super().run(
            [word.replace(CONVERSATION_FILE, f"{self._home}/conversation.jsonl") for word in argv],
            clocks=clocks,
            stdin=stdin,
            env=own,
            cwd=cwd,
            on_line=on_line,
            watch=watch,
        )

    @property
    def started(self) -> list[int]:
        """The processes that were started in it."""
        return [process.pid for process in self._processes]

    def stand_by(self, argv: Sequence[str], *, env: Mapping[str, str], token: str | None = None) -> None:
        super().stand_by(argv, env={**env, "PATH": f"{self.programs}:{os.defpath}"}, token=token)

    def close(self) -> None:
        self.is_closed = True
        super().close()


class LocalBoxMaker:
    """Creates boxes without isolation."""

    def __init__(self, spec: BoxSpec | None = None) -> None:
        self._spec = spec or BoxSpec(image="none", gateway=Target("", 8090))
        self.made: list[LocalBox] = []

    @property
    def spec(self) -> BoxSpec:
        """The nominal spec of its boxes."""
        return self._spec

    def create(self, asked: Any = (), *, image: Any = None, watch: Any = None) -> LocalBox:
        """Create a box."""
        box = LocalBox(self._spec)
        self.made.append(box)
        return box


class PlayedMaker(LocalBoxMaker):
    """Makes boxes whose `claude` does what a test wrote."""

    def __init__(self, home: Path, *, gateway_port: int = 8090, is_walled: bool = False) -> None:
        """Take a directory for programs; `is_walled` lets boxes say that they are what they are not."""
        super().__init__(BoxSpec(image="none", gateway=Target("", gateway_port)))
        self.home = home
        self.is_walled = is_walled
        self.boxes: list[PlayedBox] = []
        home.mkdir(parents=True, exist_ok=True)

    def program(self, name: str, body: str) -> None:
        path = self.home / name
        path.write_text(f"#!{sys.executable}\n{PRELUDE if name == 'claude' else ''}\n{body}\n")
        path.chmod(0o755)

    def create(self, asked: Any = (), *, image: Any = None, watch: Any = None) -> PlayedBox:
        box = PlayedBox(self.spec, self.home, is_walled=self.is_walled)
        self.boxes.append(box)
        return box

    def acquire(self, asked: Any = (), *, image: Any = None, watch: Any = None) -> PlayedBox:
        """As a pool does."""
        return self.create()

    def close(self) -> None:
        for box in self.boxes:
            box.close()

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("boxes do not travel")


class LosingMaker(PlayedMaker):
    """Makes boxes that are lost under the command that writes a file `at-work`."""

    def create(self, asked: Any = (), *, image: Any = None, watch: Any = None) -> PlayedBox:
        box = super().create()
        mark = box.workspace / "at-work"

        def lose() -> None:
            wait_until(lambda: mark.exists() or box.is_closed, seconds=60, what="a command is at work")
            box.close()

        threading.Thread(target=lose, daemon=True).start()
        return box
