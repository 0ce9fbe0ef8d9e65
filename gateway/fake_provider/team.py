"""Plays the agents of a run by `scenarios/agents.yaml`: list, read, write, run, report, one tool use at a time.

Tags anywhere in a ticket direct the play: `[rehearse:issues=5,2,0]`. Progress is read back from the conversation, so
nothing is stored between calls. A ticket's text is quoted or matched, never evaluated.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from gateway.fake_provider.request import TAG, Request, slug, title
from gateway.fake_provider.scenario import render, shipped
from gateway.fake_provider.wire import Text, ToolUse
from routing.policy.agents import RESULT_FILE, is_covered
from routing.yaml_data import load_yaml

_MOST_READ = 8
_MOST_TURNS = 60
"""An agent whose tool uses keep being refused stops here."""
_LISTING = "find . -type f -not -path '*/node_modules/*' -not -path './.git/*' | sort | head -n 1500"
_AGENT = re.compile(r"You are the agent `([a-z][a-z0-9:-]{0,80})` of a run")
_STEP = re.compile(r"^Step `[a-z0-9_-]{1,120}` for agent", re.MULTILINE)
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_NAME = re.compile(r"`([^`\s]{1,300})`")
_SEGMENT = r"[\w@\[\]-][\w.@\[\]-]{0,80}"
_FILE = re.compile(
    rf"(?<![\w/.@\[\]-])(?:{_SEGMENT}/){{0,12}}[\w-][\w.-]{{0,80}}\.(?:tsx?|jsx?|mjs|s?css|sql|html|json)\b"
)
_PART = r"[\w.@()\[\]-]"
_PATH = re.compile(
    rf"(?<![\w.@()\[\]/-])(?:\./)?((?:{_PART}{{1,120}}/){{0,32}}{_PART}{{0,120}}\w\.[A-Za-z][A-Za-z0-9]{{0,9}})(?![\w/])"
)
_SOURCE = re.compile(
    r"^(?!\.|artifacts/|(?:.*/)?(?:tests?|__tests__|e2e)/|.*\.(?:test|spec)\.\w+$).*\.(?:tsx?|[jm]sx?|mjs|css|sql)$"
)
_FINDING = re.compile(r"^\d+\. \[[\w:-]+\] (.{1,300})", re.MULTILINE)
_BLOCKING = re.compile(r"^- blocking: (.{1,300})", re.MULTILINE)
_MENDING = re.compile(r"Mend what |The build fails")
_QUOTE = r"[`\"“]([^`\"“”]{1,200})[`\"”]"
_CORRECTION = re.compile(
    rf"(?:says?|uses?|has|shows?|reads?)\s+{_QUOTE}\s+(?:instead of|and not|but not)\s+{_QUOTE}"
    rf"|(?:replace|change)\s+{_QUOTE}\s+(?:with|to|by)\s+{_QUOTE}"
    rf"|{_QUOTE}\s+(?:should|must|has to|ought to)\s+(?:be|read|say)\s+{_QUOTE}",
    re.IGNORECASE,
)


@lru_cache(maxsize=1)
def _book() -> Mapping[str, Any]:
    book: Mapping[str, Any] = load_yaml(shipped("agents.yaml"))
    return book


def run_agent(request: Request) -> Sequence[Text | ToolUse]:
    """Return the next turn of the agent that the system prompt names."""
    work = _read_work(request)
    order = _read_order(request)
    agent = str(order["agent"])
    if work.has_result or request.turn > _MOST_TURNS:
        return (Text("My step is done; see the result."),)
    if order["tags"].get("fail") == agent.replace(":", "-"):
        return (Text("I cannot make up my mind, so I leave it at that."),)
    part = _book()["agents"].get(agent) or _book()["agents"]["anybody"]
    scene = _scene(order, work, part)
    forced = request.forced_tool
    use = None if forced and forced.name == "finish" else work.next_use(part, scene)
    result = {"status": "complete", **_fill(part["result"], scene)}
    result = {key: value for key, value in result.items() if value not in (None, "")}
    if documents := [path for path in scene["files"] if path.startswith("artifacts/") and path in work.succeeded]:
        result["artifacts"] = documents
    use = use or work.finish(result)
    return (use,) if use else (Text(str(result["summary"])),)


def _read_order(request: Request) -> dict[str, Any]:
    """Parse a step's order; what is missing is empty."""
    prompt = next((text for text in request.user_texts if _STEP.search(text)), request.prompt)
    parts = _SECTION.split(prompt)
    sections = dict(zip(parts[1::2], parts[2::2], strict=False))
    agent = _AGENT.search(request.system)
    where = sections.get("Where you may write", "").strip().splitlines()
    task, marked = sections.get("Your task", "").strip(), _unquoted(sections.get("The ticket", ""))
    said = _unquoted(sections.get("What the steps before yours say", ""))
    task_text, ticket = TAG.sub("", task).strip(), TAG.sub("", marked)
    first = ticket.strip().splitlines()[:1]
    heading = first[0].lstrip("# ").strip()[:120] if first else title(task_text)
    tags = {found[1]: found[2] or "" for found in TAG.finditer(f"{task}\n{marked}")}
    wrong_right = _CORRECTION.search(ticket)
    return {
        "agent": agent[1] if agent else "",
        "task": task_text,
        "ticket": ticket,
        "said": said,
        "writes": _NAME.findall(where[0]) if where else [],
        "tags": tags,
        "numbers": {tag: [int(part) for part in value.split(",") if part.isdigit()] for tag, value in tags.items()},
        "heading": heading,
        "heading_as_comment": re.sub(r"[^\w .,:'-]", " ", heading)[:80],
        "topic": slug(heading)[:32].strip("-") or "change",
        "correction": [text for text in wrong_right.groups() if text] if wrong_right else None,
        "is_mending": "- blocking: " in said or _MENDING.match(task_text) is not None,
        "findings": _FINDING.findall(task_text) or _BLOCKING.findall(said),
    }


def _unquoted(text: str) -> str:
    return "\n".join(line[2:] for line in text.splitlines() if line.startswith("| "))


def _scene(order: Mapping[str, Any], work: _Work, part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template variables of a part: the order, the project as far as it was seen, and the part's own."""
    paths = work.paths or ()
    mentioned = set(_FILE.findall(f"{order['ticket']}\n{order['task']}"))
    sources = sorted(path for path in paths if _SOURCE.search(path))
    named = [path for path in sources if any(path == name or path.endswith(f"/{name}") for name in mentioned)]
    suffix = ".ts" if any(path.endswith((".ts", ".tsx", "tsconfig.json")) for path in paths) else ".mjs"
    counted = re.compile(re.escape(str(part.get("round_of"))) + r"-\d+\.\w+")
    scene = {
        **order,
        "paths": paths,
        "texts": work.texts,
        "printed": work.printed,
        "sources": named + [path for path in sources if path not in named],
        "named": named,
        "suffix": suffix,
        "scripts": _scripts(work.texts.get("package.json", "")),
        "round": 1 + sum(counted.fullmatch(path) is not None for path in paths),
        "files": {},
    }
    scene["wished"] = _wished(scene, str(part.get("issues")))
    scene["corrected"] = _corrected(scene)
    scene["mended"] = _mended(scene)
    for name, value in {**_book()["let"], **part.get("let", {})}.items():
        scene[name] = _fill(value, scene)
    return scene


def _fill(value: Any, scene: Mapping[str, Any]) -> Any:
    """Render templates; a mapping with `one_of` becomes the entry it names; entries with an empty name are dropped."""
    if isinstance(value, Mapping) and "one_of" in value:
        return _fill(value[render(value["one_of"], scene)], scene)
    if isinstance(value, Mapping):
        entries = {str(render(key, scene)): item for key, item in value.items()}
        filled = {key: _fill(item, scene) for key, item in entries.items() if key}
        return {key: item for key, item in filled.items() if item is not None}
    return [_fill(item, scene) for item in value] if isinstance(value, list) else render(value, scene)


def _scripts(package_json: str) -> Mapping[str, Any]:
    try:
        scripts = json.loads(package_json)["scripts"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}
    return scripts if isinstance(scripts, dict) else {}


def _wished(scene: Mapping[str, Any], tag: str) -> list[dict[str, Any]]:
    """Return the findings that the ticket's tag orders for this round; its last number repeats."""
    numbers, findings = scene["numbers"].get(tag) or [0], _book()["findings"]
    count = min(numbers[min(scene["round"], len(numbers)) - 1], 50)
    where = {"file": scene["sources"][0]} if scene["sources"] else {}
    titles = [f"{findings[index % len(findings)]['title']}, {index + 1}" for index in range(count)]
    return [
        {"severity": "blocking", **findings[index % len(findings)], "title": text, **where}
        for index, text in enumerate(titles)
    ]


def _corrected(scene: Mapping[str, Any]) -> dict[str, str]:
    """Return the files in which the text that the ticket calls wrong is corrected."""
    if scene["correction"] is None:
        return {}
    wrong, right = scene["correction"]
    texts = {path: scene["texts"].get(path, "") for path in scene["sources"]}
    return {path: text.replace(wrong, right) for path, text in texts.items() if wrong in text}


def _mended(scene: Mapping[str, Any]) -> dict[str, str]:
    """Return a fix's changes: corrected files, a comment in those that the task names, and repaired broken files."""
    files = _corrected(scene)
    about = re.sub(r"[^\w .,:'-]", " ", [*scene["findings"], scene["heading"]][0])[:80]
    for path in scene["sources"]:
        if path in scene["texts"] and path in scene["task"]:
            files[path] = f"{files.get(path, scene['texts'][path])}/* Mended, round {scene['round']}: {about}. */\n"
        if path.rpartition("/")[2] == f"broken{scene['suffix']}":
            files[path] = "export const mended = true;\n"
    return files


@dataclass
class _Work:
    """A step's progress as the conversation shows it.

    An agent has the file tools of the `api` runtime, or those of Claude Code in a box; there its result is a file.
    """

    request: Request
    has_shell: bool
    paths: tuple[str, ...] | None = None
    """None until the files were listed."""
    texts: dict[str, str] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    """Paths it tried to read."""
    written: set[str] = field(default_factory=set)
    """Paths it tried to write."""
    succeeded: set[str] = field(default_factory=set)
    """Paths it wrote."""
    printed: str | None = None
    """What the step's command printed."""
    has_result: bool = False

    def next_use(self, part: Mapping[str, Any], scene: dict[str, Any]) -> ToolUse | None:
        """Return the next tool use before the report, if any, and note the planned files in the scene."""
        files: dict[str, str] = {}
        for filled in _fill(part.get("files", []), scene):
            files |= {path: text for path, text in filled.items() if is_covered(path, scene["writes"])}
        for filled in _fill(part.get("strays", []), scene):
            files |= filled
        scene["files"] = files
        if self.paths is None and (listing := self._use("list_files", "Bash", command=_LISTING)):
            return listing
        wanted = [path for path in dict.fromkeys(_fill(part.get("reads", []), scene)) if path in scene["paths"]]
        for path in wanted[:_MOST_READ]:
            if path not in self.read and (use := self._use("read_file", "Read", path=path)):
                return use
        for path, content in files.items():
            if path not in self.written and (use := self._use("write_file", "Write", path=path, content=content)):
                return use
        command = _fill(part.get("command", ""), scene)
        return self._use("", "Bash", command=command) if command and self.printed is None else None

    def finish(self, result: Mapping[str, Any]) -> ToolUse | None:
        """Return the tool use that delivers the result; None without such a tool."""
        text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
        if self.has_shell:
            return self._use("", "Write", path=RESULT_FILE, content=text)
        return ToolUse("finish", dict(result)) if self.request.tool("finish") else None

    def _use(self, api_name: str, shell_name: str, **given: str) -> ToolUse | None:
        name = shell_name if self.has_shell else api_name
        if self.request.tool(name) is None:
            return None
        if not self.has_shell:
            given.pop("command", None)
        elif "path" in given:
            given["file_path"] = posixpath.join(self.request.directory, given.pop("path"))
        return ToolUse(name, dict(given))


def _read_work(request: Request) -> _Work:
    work = _Work(request, has_shell=bool(request.tool("Write") or request.tool("Bash")))
    for result in request.tool_results:
        path = str(result.input.get("path", result.input.get("file_path", "")))
        path = path.removeprefix(f"{request.directory}/")
        if result.tool == "list_files" or result.input.get("command") == _LISTING:
            lines = (_PATH.search(line[:1000]) for line in result.text.splitlines()[:5000])
            work.paths = tuple(dict.fromkeys(line[1] for line in lines if line))
        elif result.tool == "Bash":
            work.printed = result.text
        elif result.tool in ("read_file", "Read"):
            work.read.add(path)
            text = result.content if work.has_shell else None if result.is_error else result.text
            work.texts |= {} if text is None else {path: text}
        elif result.tool in ("write_file", "Write"):
            work.written.add(path)
            work.succeeded |= set() if result.is_error else {path}
        elif result.tool == "finish":
            work.has_result = not result.is_error
    work.has_result = work.has_result or RESULT_FILE in work.succeeded
    return work
