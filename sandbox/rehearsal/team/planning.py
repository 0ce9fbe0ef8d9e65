"""The orchestrator and its subtasks: what kind of ticket it is, who does what, what the pull request says.

Tags: `plan=own|build|fix` forces the form of the plan, `parts=3` the parallel frontend steps, `rework=AGENT` sends
rework there; `bad-plan=KIND` spoils the first plan of a run and `bad-plan-always=KIND` every one (kinds: spoils.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from sandbox.rehearsal.team.order import Order
from sandbox.rehearsal.team.scene import Result, Role, Scene, complete
from sandbox.rehearsal.team.spoils import LEAKED, spoiled

_FIX = re.compile(
    r"\b(fix(es|ed)?|bugs?|broken|wrong(ly)?|errors?|crash(es|ed)?|typos?|regression|fails?|incorrect(ly)?|instead of|"
    r"should (be|say|read)|no longer|does not work|doesn't work)\b", re.IGNORECASE,
)  # fmt: skip
_BUILD = re.compile(
    r"\b(add|new|build|create|feature|introduce|implement|support|extend|let (users|visitors|people))\b", re.IGNORECASE
)
_SCOPES: Mapping[str, re.Pattern[str]] = {
    "frontend": re.compile(
        r"(?i)\b(pages?|buttons?|components?|forms?|screens?|ui|browser|react|dialog|\w{1,80}\.tsx)\b"
    ),
    "backend": re.compile(r"(?i)\b(api|endpoints?|server|database|sql|quer(y|ies)|routes?|handlers?|\w{1,80}\.ts)\b"),
    "styling": re.compile(r"(?i)\b(css|styles?|colou?rs?|spacing|dark mode|layout|fonts?|contrast|\w{1,80}\.css)\b"),
}
_PARTS = ("list", "form", "detail", "filter", "export", "history", "help", "settings")
_AGENTS = {"frontend": "frontend-dev", "backend": "backend-dev", "styling": "styling"}
_DEAR = re.compile(r"\b(payments?|migrations?|delete|sign-?in|passwords?|billing)\b", re.IGNORECASE)
_PLANNED = r"artifacts/orchestrator/plan-\d+\.json"
_NAMED = re.compile(r"(?<![\w/-])[\w/-]{1,300}\.(?:tsx?|jsx?|mjs|s?css)\b")
_ANCHOR = "package.json"


def is_fix(text: str) -> bool:
    """Tell whether more of a text is about something broken than about something new."""
    return len(_FIX.findall(text)) > len(_BUILD.findall(text))


def scopes_of(text: str) -> list[str]:
    """Return which developers a text calls for; the backend's where it names none."""
    return [scope for scope, words in _SCOPES.items() if words.search(text)] or ["backend"]


def _classify(scene: Scene) -> Result:
    intent = "fix" if is_fix(scene.order.ticket) else "build"
    reason = "something that exists is wrong" if intent == "fix" else "something new is wanted"
    return complete(f"A ticket to {intent}: {reason}.", intent=intent)


def plan_of(scene: Scene) -> dict[str, Any]:
    """Return the plan that a ticket, or a demand for rework, leads to."""
    order = scene.order
    plan = _rework(order) if order.task.startswith("Plan rework") else _first_plan(scene)
    is_first = not scene.count(_PLANNED)
    spoil = order.tags.get("bad-plan-always") or (order.tags.get("bad-plan") if is_first else None)
    return spoiled(plan, spoil) if spoil else plan


def _first_plan(scene: Scene) -> dict[str, Any]:
    ticket, wish = scene.order.ticket, scene.order.tags.get("plan", "")
    is_mixed = bool(_FIX.search(ticket)) and bool(_BUILD.search(ticket))
    if wish == "own" or (is_mixed and not wish):
        return _own(scene)
    return _fix(scene) if wish == "fix" or (not wish and is_fix(ticket)) else _build(scene)


def _fix(scene: Scene) -> dict[str, Any]:
    order = scene.order
    return {
        "template": "fix",
        "scopes": scopes_of(order.ticket),
        "task": f"{order.heading}. Mend the cause of it.",
    }


def _build(scene: Scene) -> dict[str, Any]:
    order = scene.order
    count = min((order.numbers("parts") or (2,))[0], 8)
    parts = [
        {"task": f"Build the {name} of “{order.heading}” alone.", "writes": [f"src/features/{order.topic}-{name}/"]}
        for name in _PARTS[:count]
    ]
    plan: dict[str, Any] = {"template": "build", "parts": parts}
    if "backend" in scopes_of(order.ticket):
        plan["backend"] = f"Build the endpoint that “{order.heading}” needs, with validation at the edge."
    return plan


def _own(scene: Scene) -> dict[str, Any]:
    """Return a plan for a ticket that is half a bug and half a feature, with a change of the interface."""
    order = scene.order
    broken = [path for path in scene.sources if scene.is_named(path)][:3]
    known = ["test-plan", "spec"]
    steps = [
        _step("test-plan", "test-planner", f"Find out how to tell that the defect in “{order.heading}” is mended."),
        _step("spec", "research", f"Write the criteria for what is new in “{order.heading}”."),
        _step("mend", "backend-dev", f"Mend the defect. {order.heading}.", after=known,
              writes=broken or ["src/server/"]),
        _step("interface", "frontend-dev", f"Build what is new for users in “{order.heading}”.", after=known,
              writes=[f"src/features/{order.topic}/"]),
        _step("looks", "styling", "Style what is new within the design that is there.", after=["interface"],
              writes=["src/styles/"]),
        *_reviews(["mend", "looks"]),
    ]  # fmt: skip
    gates = [{"after": "qa", "reason": "It touches what is dear to undo."}] if _DEAR.search(order.ticket) else []
    return {"classification": "build", "steps": steps, "gates": gates}


def _rework(order: Order) -> dict[str, Any]:
    found = order.findings[0] if order.findings else order.heading
    agent = order.tags.get("rework") or _owner(f"{found}\n{order.task}")
    steps = [_step("mend", agent, f"Mend what was sent back: {found[:300]}")]
    again = _step("qa-again", "qa", "Test again what was sent back, and everything around it.", after=["mend"])
    label = "fix" if is_fix(order.ticket) else "build"
    return {"classification": label, "steps": [*steps, again]}


def _owner(text: str) -> str:
    """Return who has to mend a finding: by the file that it names, else by its words."""
    named = _NAMED.search(text)
    if named is None:
        return _AGENTS[scopes_of(text)[0]]
    if named[0].endswith(("css", "scss")):
        return "styling"
    return "frontend-dev" if named[0].endswith("x") or "features/" in named[0] else "backend-dev"


def _reviews(after: list[str]) -> list[dict[str, Any]]:
    tasks = {
        "code-review": "Review what was changed.", "qa": "Test what was changed against test plan and criteria.",
        "security": "Look for ways in.",
    }  # fmt: skip
    return [_step(agent, agent, task, after=after) for agent, task in tasks.items()]


def _step(
    name: str, agent: str, task: str, *, after: list[str] | None = None, writes: list[str] | None = None
) -> dict[str, Any]:  # fmt: skip
    step: dict[str, Any] = {"id": name, "agent": agent, "task": task, "depends_on": after or [], "context": after or []}
    return step | ({"writes": writes} if writes else {})


def _plan_wants(scene: Scene) -> list[str]:
    return [_ANCHOR, "README.md", *[path for path in scene.sources if scene.is_named(path)][:2]]


def _plan_files(scene: Scene) -> dict[str, str]:
    text = json.dumps(plan_of(scene), indent=2, ensure_ascii=False) + "\n"
    if LEAKED in text:
        return {}
    return {f"artifacts/orchestrator/plan-{scene.count(_PLANNED) + 1}.json": text}


def _plan_result(scene: Scene) -> Result:
    plan = plan_of(scene)
    how = f"the {plan['template']} template" if "template" in plan else f"{len(plan.get('steps', ()))} steps of my own"
    said = f"“{scene.order.heading}” is planned with {how}."
    return complete(said, plan=plan, artifacts=list(_plan_files(scene)))


def _summary_files(scene: Scene) -> dict[str, str]:
    order = scene.order
    reports = [line for line in order.said.splitlines() if line.strip()]
    body = "\n".join(f"- {line}" for line in reports[:30]) or "- See the changed files."
    text = (
        f"# {order.heading[:70]}\n\nThis change does what the ticket asks; a rehearsal wrote it.\n\n"
        f"## What was done\n\n{body}\n\n## On deployment\n\nNothing.\n"
    )
    return {"artifacts/summary/pull-request.md": text}


def _summarize(scene: Scene) -> Result:
    return complete(f"{scene.order.heading}: done, reviewed and tested.", artifacts=list(_summary_files(scene)))


def _answer(scene: Scene) -> Result:
    shown = [f"`{path}` begins:\n\n> " + "\n> ".join(text.splitlines()[:6]) for path, text in scene.texts.items()]
    about = scene.order.heading
    said = "\n\n".join(shown) or "No file of the project was at hand."
    return complete(f"What the project's files say about “{about}”.", answer=f"You asked: {about}\n\n{said}")


def _question_wants(scene: Scene) -> list[str]:
    words = [word for word in re.findall(r"[a-z]{4,}", scene.order.ticket.casefold()) if word != "where"]
    hits = [path for path in scene.sources if any(word in path.casefold() for word in words)]
    return [*[path for path in scene.sources if scene.is_named(path)], *hits[:2], "README.md", _ANCHOR][:3]


def _no_files(scene: Scene) -> dict[str, str]:
    return {}


def _nothing(scene: Scene) -> list[str]:
    return []


ORCHESTRATOR = Role(_plan_wants, _plan_files, _plan_result)
CLASSIFIER = Role(_nothing, _no_files, _classify)
SUMMARIZER = Role(_nothing, _summary_files, _summarize)
ANSWERER = Role(_question_wants, _no_files, _answer)
ANYBODY = Role(
    _nothing, _no_files, lambda scene: complete(f"I looked at “{scene.order.heading}” and have nothing to add.")
)
