"""Those who write before there is code: Research the specification, Architect the design, Test Planner the plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sandbox.rehearsal.team.planning import scopes_of
from sandbox.rehearsal.team.scene import Result, Role, Scene, complete
from sandbox.rehearsal.words import sentence

_SENTENCE = re.compile(r"[^.!?\n]{12,300}[.!?]?")
_HEADS = ("Labels:", "Priority:", "Url:")
_LOOK_UP = re.compile(r"^(Look up|Find out|Search)\b")


def _points(scene: Scene) -> list[str]:
    """Return what the ticket says, one fact a line."""
    body = "\n".join(scene.order.ticket.splitlines()[1:]) or scene.order.heading
    parts = [part for part in _SENTENCE.findall(body) if not part.startswith(_HEADS)]
    return [point for part in parts if (point := sentence(part))][:8] or [sentence(scene.order.heading)]


def _wants(scene: Scene) -> list[str]:
    return ["package.json", "README.md", *[path for path in scene.sources if scene.is_named(path)][:3]]


def _spec(scene: Scene) -> Mapping[str, str]:
    criteria = "\n".join(f"- **AC-{number}** {point}" for number, point in enumerate(_points(scene), start=1))
    text = (
        f"# {scene.order.heading}\n\n## Goal\n\n{sentence(scene.order.heading)}\n\n"
        f"## Acceptance criteria\n\n{criteria}\n\n"
        "## Accessibility\n\nEverything can be reached and used by keyboard; every control has a name.\n\n"
        "## Not part of it\n\nWhatever the ticket does not name.\n"
    )
    return {"artifacts/research/spec.md": text}


def _design(scene: Scene) -> Mapping[str, str]:
    topic, suffix = scene.order.topic, scene.suffix
    near = "\n".join(f"- `{path}`" for path in scene.sources[:6]) or "- the project is empty"
    text = (
        f"# Design: {scene.order.heading}\n\n## Where\n\n"
        f"- `src/features/{topic}/index{suffix}`: the rule, without a browser\n"
        f"- `src/server/{topic}{suffix}`: the endpoint, if one is needed\n\nWhat is there already:\n\n{near}\n\n"
        "## Contracts\n\nA part exports `describe(): string` and `isReady(value: unknown): boolean`.\n\n"
        "## Security\n\nInput is checked at the edge; nothing of it reaches a log.\n"
    )
    return {"artifacts/architect/design.md": text}


def _test_plan(scene: Scene) -> Mapping[str, str]:
    order = scene.order
    wrong = f"`{order.correction[0]}` instead of `{order.correction[1]}`" if order.correction else "as the ticket says"
    cause = "\n".join(f"- `{path}`" for path in scene.sources if scene.is_named(path)) or "- not named by the ticket"
    text = (
        f"# Test plan: {order.heading}\n\n## Defect\n\n{wrong}\n\nCandidates:\n\n{cause}\n\n## Scope\n\n"
        f"{', '.join(scopes_of(order.ticket))}\n\n## Must fail before, pass after\n\n"
        "- **T-1** a unit test of what the ticket names\n\n## Must stay green\n\n- every test that is there\n"
    )
    return {"artifacts/test-planner/plan.md": text}


def _reports(files: Callable[[Scene], Mapping[str, str]], what: str) -> Callable[[Scene], Result]:
    def result(scene: Scene) -> Result:
        return complete(f"{what} “{scene.order.heading}” is written.", artifacts=list(files(scene)))

    return result


def _research(scene: Scene) -> Result:
    if not _LOOK_UP.search(scene.order.task):
        return _reports(_spec, "The specification of")(scene)
    shown = [f"- `{path}`: {text.splitlines()[0][:160] if text else 'empty'}" for path, text in scene.texts.items()]
    listed = "\n".join(shown) or f"The project has {len(scene.paths)} files; none is named in the ticket."
    return complete(f"What was found about “{scene.order.heading}”.", answer=listed)


def _research_files(scene: Scene) -> Mapping[str, str]:
    return {} if _LOOK_UP.search(scene.order.task) else _spec(scene)


RESEARCH = Role(_wants, _research_files, _research)
ARCHITECT = Role(_wants, _design, _reports(_design, "The design for"))
TEST_PLANNER = Role(_wants, _test_plan, _reports(_test_plan, "The test plan for"))
