"""Those who judge: Code Review and Security read, QA writes tests that run and says what they showed.

Which round it is shows in the reports that lie in the workspace. Tags: `issues=5,2,0` is QA's blocking findings round
by round (the last number stays), `review-issues=` and `security-issues=` likewise for the others; `needs-rework` makes
QA send the work back in its first round, `needs-rework=2` in its second, `needs-rework=always` in every one;
`qa-edits-source` makes QA write where it may not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sandbox.rehearsal.team.scene import Result, Role, Scene, complete

_EXPORT = re.compile(r"^export (?:async )?(?:function|const|class) (\w{1,60})", re.MULTILINE)
_FAILED = re.compile(r"\bfail(?:ed|ures)?\s*[:=]?\s*(\d+)", re.IGNORECASE)
_KEY_LIKE = re.compile(r"sk-ant-[\w-]{16,}|AKIA[A-Z0-9]{16}|gh[pousr]_\w{30,}")
_MODULE = (".ts", ".mjs", ".js")
_FINDINGS = (
    ("An empty value is accepted", "Leave the field empty and send it: it is stored without a message."),
    ("The second click sends again", "Click twice within a second: two requests go out."),
    ("A long text breaks out of its box", "Enter 300 characters without a space: the layout is torn."),
    ("An error of the server is not shown", "Let the request fail: nothing is said."),
    ("The focus is lost after sending", "Send by keyboard: the focus is on the body afterwards."),
    ("The count is off by one", "With exactly one entry, two are announced."),
    ("Names with accents are refused", "Enter “Zoë”: it is called invalid."),
)


def _round(scene: Scene, pattern: str) -> int:
    """Return which round of this reviewer it is, from 1."""
    return scene.count(pattern) + 1


def _wished(scene: Scene, tag: str, number: int) -> list[dict[str, Any]]:
    """Return the findings that the ticket wants to see in a round."""
    numbers = scene.order.numbers(tag)
    if not numbers:
        return []
    count = numbers[min(number, len(numbers)) - 1]
    where = next(iter(scene.sources), None)
    return [_finding(index, where) for index in range(min(count, 50))]


def _finding(index: int, where: str | None) -> dict[str, Any]:
    title, detail = _FINDINGS[index % len(_FINDINGS)]
    number = f" ({index // len(_FINDINGS) + 1})" if index >= len(_FINDINGS) else ""
    found: dict[str, Any] = {"severity": "blocking", "title": f"{title}{number}", "detail": detail}
    return found | ({"file": where} if where else {})


def _modules(scene: Scene) -> list[str]:
    """Return modules that a test can import: rules and handlers, without a browser."""
    made = [path for path in scene.sources if path.endswith(_MODULE) and not path.endswith(".d.ts")]
    topic = scene.order.topic
    near = [path for path in made if scene.is_named(path) or topic in path or path.startswith("src/features/")]
    return near[:3]


def _report(scene: Scene, pattern: str, folder: str, *, findings: list[dict[str, Any]]) -> dict[str, str]:
    listed = "\n".join(f"- **{found['severity']}** {found['title']}: {found['detail']}" for found in findings)
    name = "report" if folder == "qa" else "review"
    number = _round(scene, pattern)
    text = f"# {name.capitalize()} {number}: {scene.order.heading}\n\n{listed or 'No findings.'}\n"
    return {f"artifacts/{folder}/{name}-{number}.md": text}


def _test_file(scene: Scene) -> dict[str, str]:
    """Return a test that really runs: what modules export works, and what was wrong is gone."""
    modules = [(path, text) for path in _modules(scene) if (text := scene.texts.get(path)) is not None]
    correction = scene.order.correction
    cases = [_exports_case(path, _EXPORT.findall(text)) for path, text in modules]
    if correction and (mended := [path for path, text in modules if correction[1] in text]):
        cases.append(_gone_case(mended[0], wrong=correction[0], right=correction[1]))
    if not cases:
        return {}
    head = (
        'import assert from "node:assert/strict";\nimport { readFileSync } from "node:fs";\n'
        'import { test } from "node:test";\n\nconst root = new URL("../", import.meta.url);\n'
    )
    suffix = ".test.ts" if scene.suffix == ".ts" else ".test.mjs"
    return {f"tests/{scene.order.topic}{suffix}": head + "".join(cases)}


def _exports_case(path: str, names: list[str]) -> str:
    checks = "".join(f"  assert.notEqual(module.{name}, undefined);\n" for name in names[:8])
    if "isReady" in names:
        checks += '  assert.equal(module.isReady(""), false);\n  assert.equal(module.isReady("x"), true);\n'
    if "handle" in names:
        checks += '  assert.equal(module.handle("").status, 400);\n  assert.equal(module.handle("Zoë").status, 200);\n'
    return (
        f'\ntest("{path} keeps what it promises", async () => {{\n'
        f'  const module = await import(new URL("{path}", root).href);\n{checks}  assert.ok(module);\n}});\n'
    )


def _gone_case(path: str, *, wrong: str, right: str) -> str:
    return (
        f'\ntest("{path} is mended", () => {{\n  const source = readFileSync(new URL("{path}", root), "utf8");\n'
        f"  assert.ok(source.includes({_literal(right)}));\n  assert.ok(!source.includes({_literal(wrong)}));\n}});\n"
    )


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


_QA_REPORTS = r"artifacts/qa/report-\d+\.md"


def _qa_findings(scene: Scene) -> list[dict[str, Any]]:
    found = _wished(scene, "issues", _round(scene, _QA_REPORTS))
    failed = [int(number) for number in _FAILED.findall(scene.printed or "")]
    if failed and failed[-1]:
        tail = "\n".join((scene.printed or "").splitlines()[-12:])[:1500]
        found.append({"severity": "blocking", "title": f"{failed[-1]} tests fail", "detail": tail})
    return found


def _qa_files(scene: Scene) -> Mapping[str, str]:
    files = {**_test_file(scene), **_report(scene, _QA_REPORTS, "qa", findings=_wished_now(scene))}
    if "qa-edits-source" in scene.order.tags and scene.sources:
        files[scene.sources[0]] = "// QA was here.\n"
    return files


def _wished_now(scene: Scene) -> list[dict[str, Any]]:
    return _wished(scene, "issues", _round(scene, _QA_REPORTS))


def _qa_command(scene: Scene) -> str | None:
    if "test" in scene.scripts:
        return "npm test 2>&1 | tail -n 40"
    return "node --test 2>&1 | tail -n 40" if _test_file(scene) else None


def _qa_result(scene: Scene) -> Result:
    findings, written = _qa_findings(scene), [path for path in _qa_files(scene) if path.startswith("artifacts/")]
    number = _round(scene, _QA_REPORTS)
    wish = scene.order.tags.get("needs-rework")
    if wish is not None and wish in ("always", str(number), "" if number == 1 else "no"):
        said = "It cannot be accepted as it stands: what was built is not what the ticket promises."
        return {"status": "needs_rework", "summary": said, "artifacts": written, "issues": findings}
    ran = "The tests ran." if scene.printed is not None else "The tests are written; there was no shell to run them."
    return complete(f"Round {number}: {len(findings)} blocking findings. {ran}", artifacts=written, issues=findings)


def _reader(folder: str, tag: str) -> Role:
    pattern = rf"artifacts/{folder}/review-\d+\.md"

    def findings(scene: Scene) -> list[dict[str, Any]]:
        found = _wished(scene, tag, _round(scene, pattern))
        leaks = [path for path, text in scene.texts.items() if folder == "security" and _KEY_LIKE.search(text)]
        return [*found, *(_leak(path) for path in leaks)]

    def files(scene: Scene) -> Mapping[str, str]:
        return _report(scene, pattern, folder, findings=findings(scene))

    def result(scene: Scene) -> Result:
        found = findings(scene)
        said = f"Round {_round(scene, pattern)}: {len(found)} blocking findings in {len(scene.texts)} files."
        return complete(said, artifacts=list(files(scene)), issues=found)

    return Role(_wants, files, result)


def _leak(path: str) -> dict[str, Any]:
    return {
        "severity": "blocking", "title": "A key is in the source", "file": path,
        "detail": "It has to be taken out, and to be rotated.",
    }  # fmt: skip


def _wants(scene: Scene) -> list[str]:
    return ["package.json", *_modules(scene), *scene.sources[:3]]


def _qa_wants(scene: Scene) -> list[str]:
    own = [path for path in scene.paths if path.startswith(f"tests/{scene.order.topic}.")]
    return ["package.json", *_modules(scene), *own]


CODE_REVIEW = _reader("code-review", "review-issues")
SECURITY = _reader("security", "security-issues")
QA = Role(_qa_wants, _qa_files, _qa_result, _qa_command)
