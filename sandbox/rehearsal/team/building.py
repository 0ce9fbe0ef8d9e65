"""Those who write code: Frontend Dev, Backend Dev and Styling make small modules that run, or mend a quoted defect.

Tags: `build-error` makes Backend Dev leave a file that does not parse until it is told to mend it, `build-error=AGENT`
another agent; `plant-key` leaves a file that holds what looks like a key, `stray-write` one outside the order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sandbox.rehearsal.team.order import Order
from sandbox.rehearsal.team.scene import Result, Role, Scene, complete

_SETUP = re.compile(r"^Prepare the project\b")
_JOIN = re.compile(r"\bJoin the parts\b")
_PART = re.compile(r"src/features/([\w-]{1,60})/index\.(?:ts|mjs)")
_BROKEN = "export const broken = ;\n"
_KEY_LIKE = "sk-ant-api03-" + "planted" * 5


def module_text(name: str, *, suffix: str) -> str:
    """Return a module with a rule that can be tested without a browser."""
    typed = suffix == ".ts"
    unknown, boolean, text = (": unknown", ": boolean", ": string") if typed else ("", "", "")
    return (
        f"/** What “{name}” is about, and when a value can be used for it. */\n"
        f"export const title = {_quoted(name)};\n\n"
        f"export function describe(){text} {{\n  return `${{title}} is ready`;\n}}\n\n"
        f"export function isReady(value{unknown}){boolean} {{\n"
        '  return typeof value === "string" && value.trim().length > 0 && value.length <= 200;\n}\n'
    )


def _component(name: str) -> str:
    return (
        'import { describe, title } from "./index.ts";\n\n'
        "export function View() {\n  return (\n"
        f'    <section aria-labelledby="{name}-title">\n      <h2 id="{name}-title">{{title}}</h2>\n'
        "      <p>{describe()}</p>\n    </section>\n  );\n}\n"
    )


def _endpoint(scene: Scene) -> str:
    typed = scene.suffix == ".ts"
    took, gave = (": unknown", ": { status: number; body: { message: string } }") if typed else ("", "")
    return (
        f"/** Answers a request about “{_plain(scene.order.heading)}”; whatever comes in is checked first. */\n"
        f"export function handle(input{took}){gave} {{\n"
        '  if (typeof input !== "string" || input.trim() === "" || input.length > 200) {\n'
        '    return { status: 400, body: { message: "name must be a text of 1 to 200 characters" } };\n  }\n'
        "  return { status: 200, body: { message: `${input.trim()} is known` } };\n}\n"
    )


def _corrected(scene: Scene) -> dict[str, str]:
    """Return the files in which what the ticket quotes as wrong is set right."""
    pair = scene.order.correction
    if pair is None:
        return {}
    wrong, right = pair
    found = {path: text for path, text in scene.texts.items() if wrong in text and path in scene.sources}
    return {path: text.replace(wrong, right) for path, text in found.items()}


def _mended(scene: Scene, name: str) -> dict[str, str]:
    """Return what mending leaves: the corrected files, a note in those that findings name, and a list of findings."""
    files = _corrected(scene)
    number = scene.count(rf"artifacts/{name}/mended-\d+\.md") + 1
    findings = scene.order.findings or (scene.order.heading,)
    note = f"/* Mended, round {number}: {_plain(findings[0])}. */\n"
    for path in scene.sources:
        if path in scene.texts and path in scene.order.task:
            files[path] = files.get(path, scene.texts[path]) + note
    for path in scene.paths:
        if path.rpartition("/")[2] == f"broken{scene.suffix}":
            files[path] = module_text("mended", suffix=scene.suffix)
    listed = "\n".join(f"- {finding}" for finding in findings[:20])
    return {**files, f"artifacts/{name}/mended-{number}.md": f"# Mended\n\n{listed}\n"}


def _frontend(scene: Scene) -> Mapping[str, str]:
    order, suffix = scene.order, scene.suffix
    if _SETUP.search(order.task) and not _JOIN.search(order.task):
        files = {f"src/features/parts{suffix}": _part_type(typed=suffix == ".ts")}
    elif _JOIN.search(order.task):
        files = {f"src/features/index{suffix}": _joined(scene)}
    else:
        folder = _folder(order)
        name = folder.rstrip("/").rpartition("/")[2]
        files = {f"{folder}index{suffix}": module_text(name.replace("-", " "), suffix=suffix)}
        if suffix == ".ts":
            files[f"{folder}View.tsx"] = _component(name)
    return _dressed(scene, files, agent="frontend-dev")


def _backend(scene: Scene) -> Mapping[str, str]:
    files = {f"src/server/{scene.order.topic}{scene.suffix}": _endpoint(scene)}
    return _dressed(scene, files, agent="backend-dev")


def _styling(scene: Scene) -> Mapping[str, str]:
    topic = scene.order.topic
    text = (
        f".{topic} {{\n  display: grid;\n  gap: 1rem;\n  max-inline-size: 60ch;\n}}\n\n"
        f".{topic} :focus-visible {{\n  outline: 2px solid currentcolor;\n  outline-offset: 2px;\n}}\n\n"
        f"@media (prefers-reduced-motion: reduce) {{\n  .{topic} * {{\n    transition: none;\n  }}\n}}\n"
    )
    return _dressed(scene, {f"src/styles/{topic}.css": text}, agent="styling")


def _dressed(scene: Scene, new: Mapping[str, str], *, agent: str) -> dict[str, str]:
    """Return what a developer writes: a correction where the ticket quotes one, else what is new; and the wishes."""
    order = scene.order
    files = _mended(scene, agent) if order.is_mending else _corrected(scene) or dict(new)
    files = {path: text for path, text in files.items() if scene.may_write(path)}
    wished = order.tags.get("build-error")
    if wished is not None and (wished or "backend-dev") == agent and not order.is_mending:
        files[_spot(scene, "broken")] = _BROKEN
    if agent == "backend-dev" and "plant-key" in order.tags:
        files[_spot(scene, "client")] = f'export const key = "{_KEY_LIKE}";\n'
    if "stray-write" in order.tags:
        files["notes-outside.txt"] = "This file lies outside of what the order covers.\n"
    return files


def _spot(scene: Scene, name: str) -> str:
    folders = (rule for rule in scene.order.writes if rule.endswith("/") and not rule.startswith("artifacts/"))
    return f"{next(folders, 'src/')}{name}{scene.suffix}"


def _folder(order: Order) -> str:
    own = next((rule for rule in order.writes if rule.startswith("src/features/") and rule.endswith("/")), None)
    return own or f"src/features/{order.topic}/"


def _part_type(*, typed: bool) -> str:
    if not typed:
        return "/** What every part exports: a title, describe() and isReady(). */\nexport const parts = [];\n"
    return (
        "/** What every part of the interface exports. */\nexport interface Part {\n  title: string;\n"
        "  describe(): string;\n  isReady(value: unknown): boolean;\n}\n"
    )


def _joined(scene: Scene) -> str:
    names = sorted({found[1] for path in scene.paths if (found := _PART.fullmatch(path))})
    imports = "".join(f'import * as {_camel(name)} from "./{name}/index{scene.suffix}";\n' for name in names)
    listed = ", ".join(_camel(name) for name in names)
    return f"{imports}\n/** Every part of the interface, as it is shown. */\nexport const parts = [{listed}];\n"


def _camel(name: str) -> str:
    head, *rest = [part for part in name.split("-") if part] or ["part"]
    whole = head + "".join(part.capitalize() for part in rest)
    return whole if whole[0].isalpha() else f"part{whole}"


def _wants(scene: Scene) -> list[str]:
    named = [path for path in scene.sources if scene.is_named(path)]
    others = [path for path in scene.sources if path not in named] if scene.order.correction else []
    broken = [path for path in scene.paths if path.rpartition("/")[2] == f"broken{scene.suffix}"]
    return ["package.json", *broken, *named[:3], *others[:4]]


def _result(scene: Scene, files: Mapping[str, str], what: str) -> Result:
    changed = ", ".join(sorted(files)) or "nothing"
    documents = [path for path in files if path.startswith("artifacts/")]
    return complete(f"{what} “{scene.order.heading}”. Changed: {changed}.", artifacts=documents)


def _quoted(text: str) -> str:
    return '"' + _plain(text).replace("\\", "").replace('"', "'") + '"'


def _plain(text: str) -> str:
    return re.sub(r"[^\w .,:'-]", " ", text).strip()[:80]


FRONTEND = Role(_wants, _frontend, lambda scene: _result(scene, _frontend(scene), "The interface of"))
BACKEND = Role(_wants, _backend, lambda scene: _result(scene, _backend(scene), "The server side of"))
STYLING = Role(_wants, _styling, lambda scene: _result(scene, _styling(scene), "The looks of"))
