"""Plans: which agents, in what order, with what context, and where a person looks (seed 001's layer 3, S-074).

A plan can say no more than that. It has no field for a model, a budget, a time or a key, and unknown fields are
refused, so what the orchestrator writes can be stored, shown and run without being trusted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from routing.decision.router import Intent
from routing.policy.agents import ARTIFACTS, AgentDefinition, AgentRole
from sites.files import collision_key

MAX_STEPS = 200
"""More than any configuration allows (routing.policy.agents): a longer plan is not even parsed."""
MAX_WRITES = 30
StepId = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
"""No `_`: the service uses it in its own names, so that no plan can take one of them. Keys are safe in file names and
git references.
"""
Task = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=8000)]
Reference = Annotated[str, StringConstraints(min_length=1, max_length=300)]
Classification = Literal["build", "fix", "question"]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlanStep(_Value):
    """One task for one agent."""

    id: StepId
    agent: Annotated[str, Field(max_length=81)]
    task: Task
    depends_on: Annotated[tuple[StepId, ...], Field(max_length=MAX_STEPS)] = ()
    context: Annotated[tuple[Reference, ...], Field(max_length=MAX_STEPS)] = ()
    """What to read: ids of steps (also of steps done before this plan), and paths."""
    writes: Annotated[tuple[Reference, ...], Field(max_length=MAX_WRITES)] = ()
    """Where it may write, within what its agent may; empty for all of that. Rules as in routing.policy.agents."""


class PlanGate(_Value):
    """A person looks after a step, before anything that depends on it starts."""

    after: StepId
    reason: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=300)]


class Plan(_Value):
    """The execution plan of a run, or of one cycle of rework."""

    classification: Classification
    """The dominant part of the ticket: a mixed one is `build` with steps that fix (ruling A38)."""
    steps: Annotated[tuple[PlanStep, ...], Field(min_length=1, max_length=MAX_STEPS)]
    gates: Annotated[tuple[PlanGate, ...], Field(max_length=50)] = ()


class Part(_Value):
    """One of the parallel frontend steps of the build template."""

    task: Task
    writes: Annotated[tuple[Reference, ...], Field(min_length=1, max_length=MAX_WRITES)]
    """Its own directories: no other part may write there, which lets App come last (P-058)."""


class BuildChoice(_Value):
    """The build template with its parameters."""

    template: Literal["build"]
    parts: Annotated[tuple[Part, ...], Field(max_length=16)] = ()
    """The parallel frontend steps 1..N; without any, Setup and App do it all."""
    backend: Task | None = None
    """What the backend step does; None for no such step (P-019)."""
    gates: Annotated[tuple[PlanGate, ...], Field(max_length=50)] = ()


class FixChoice(_Value):
    """The fix template with its parameters."""

    template: Literal["fix"]
    scopes: Annotated[tuple[Literal["frontend", "backend", "styling"], ...], Field(min_length=1, max_length=3)]
    task: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=7000)] | None = None
    """What to fix, in the orchestrator's words; None when the ticket says it."""
    gates: Annotated[tuple[PlanGate, ...], Field(max_length=50)] = ()


class SequentialChoice(_Value):
    """The sequential template of seed 003's first version, for comparison (P-008)."""

    template: Literal["sequential"]
    gates: Annotated[tuple[PlanGate, ...], Field(max_length=50)] = ()


TemplateChoice = Annotated[BuildChoice | FixChoice | SequentialChoice, Field(discriminator="template")]


MAKERS = frozenset({AgentRole.DEVELOPER, AgentRole.UI_UX})
"""Roles that write the product's own files. By role, never by name: an agent that is only an entry of platform.yaml
takes its place too (S-089).
"""
JUDGES = frozenset({AgentRole.QA, AgentRole.SECURITY})

PLANNER = "orchestrator"
CLASSIFIER = "orchestrator:classify"
SUMMARISER = "orchestrator:summary"
ANSWERER = "orchestrator:question"
RESEARCHER = "research"


def makes(agent: str | None, agents: Mapping[str, AgentDefinition]) -> bool:
    """Whether an agent changes the product."""
    return agent is not None and agent in agents and agents[agent].role in MAKERS


def judges(agent: str | None, agents: Mapping[str, AgentDefinition]) -> bool:
    """Whether an agent judges what others made. A test planner has the role too, but comes before."""
    return agent is not None and agent in agents and agents[agent].role in JUDGES


def is_plannable(agent: str) -> bool:
    """Whether a plan may name an agent: only the service calls the orchestrator and its subtasks."""
    return agent.split(":")[0] != PLANNER


def writes_of(agent: str, agents: Mapping[str, AgentDefinition]) -> tuple[str, ...]:
    """Return everything that an agent may write; nothing for an unknown one."""
    return agents[agent].writes if agent in agents else ()


SUMMARY = "summary_1"
CLASSIFY = "classify_1"
ANSWER = "answer"

_KEY = re.compile(r"[a-z][a-z0-9_-]*")


def work_key(round: int, step: str) -> str:
    """Return the key of a plan's step: its id, in rework with the cycle before it."""
    return f"r{round}_{step}" if round else step


def service_key(round: int, *parts: str | int) -> str:
    """Return the key of the service's own step or gate: at least two parts."""
    return work_key(round, "_".join(str(part).replace(":", "-") for part in parts))


def is_key(reference: str) -> bool:
    """Whether an entry of a plan's context can only mean a step: a path has a `/`, a `.` or a capital."""
    return _KEY.fullmatch(reference) is not None


SCOPES = {"frontend": "frontend-dev", "backend": "backend-dev", "styling": "styling"}
"""The agent of each scope of the fix pipeline (P-027)."""

_RESEARCH = "Work out what the ticket asks: the users it is for, acceptance criteria, and what is out of scope."
_ARCHITECT = "Decide how it fits the code that is there: modules, interfaces, data, and where each part lies."
_SETUP = "Prepare the project: dependencies, configuration, shared types and the directories of the parts to come."
_APP = "Join the parts: routes, pages, shared state. Do what no part has done, and make it build."
_BACKEND = "Build what the ticket needs of the server: endpoints, data access, migrations."
_STYLING = "Style what was built, within the design that the project has."
_REVIEWS = {
    "code-review": "Review the changes for correctness and for how they fit the code around them.",
    "qa": "Test the changes against the acceptance criteria: write what tests are missing, and run them all.",
    "security": "Look for weaknesses in the changes: input, access, secrets, dependencies.",
}


def expand_template(choice: BuildChoice | FixChoice | SequentialChoice) -> Plan:
    """Return a template's plan. It passes the same validation as a plan of the orchestrator's own."""
    if isinstance(choice, BuildChoice):
        return Plan(classification="build", steps=_build_steps(choice), gates=choice.gates)
    if isinstance(choice, FixChoice):
        return Plan(classification="fix", steps=_fix_steps(choice), gates=choice.gates)
    return Plan(classification="build", steps=_sequential_steps(), gates=choice.gates)


def choose_template(intent: Intent, *, agents: Collection[str]) -> BuildChoice | FixChoice:
    """Choose the template that replaces a refused plan (ruling A38).

    `agents` are those that the refused plans named: all that is known of what the ticket needs.
    """
    if intent is Intent.FIX:
        scopes = tuple(scope for scope, agent in SCOPES.items() if agent in agents)
        return FixChoice.model_validate({"template": "fix", "scopes": scopes or tuple(SCOPES)})
    return BuildChoice(template="build", backend=_BACKEND if "backend-dev" in agents else None)


def answer_plan(*, read_only: bool) -> Plan:
    """Return the one step of a question, or of an order that only looks (ruling A5)."""
    if read_only:
        task = "Look up what is asked, change nothing, and put what you found into `answer`."
        return Plan(classification="question", steps=(PlanStep(id=ANSWER, agent=RESEARCHER, task=task),))
    task = "Answer the question from the project's files, and put the answer into `answer`."
    return Plan(classification="question", steps=(PlanStep(id=ANSWER, agent=ANSWERER, task=task),))


def review_steps(after: Sequence[str], *, context: Sequence[str] = ()) -> tuple[PlanStep, ...]:
    """Return the three reviewers, in parallel after the given steps (P-022)."""
    return tuple(
        PlanStep(id=agent, agent=agent, task=task, depends_on=tuple(after), context=tuple(context))
        for agent, task in _REVIEWS.items()
    )


def _build_steps(choice: BuildChoice) -> tuple[PlanStep, ...]:
    specified = ("research", "architect")
    parts = tuple(
        PlanStep(
            id=f"frontend-{number}",
            agent="frontend-dev",
            task=part.task,
            depends_on=("setup",),
            context=specified,
            writes=part.writes,
        )
        for number, part in enumerate(choice.parts, start=1)
    )
    app_after = tuple(part.id for part in parts) or ("setup",)
    steps = [
        PlanStep(id="research", agent=RESEARCHER, task=_RESEARCH),
        PlanStep(id="architect", agent="architect", task=_ARCHITECT),
        PlanStep(id="setup", agent="frontend-dev", task=_SETUP, depends_on=specified),
        *parts,
        PlanStep(id="app", agent="frontend-dev", task=_APP, depends_on=app_after, context=specified),
    ]
    if choice.backend is not None:
        steps.append(
            PlanStep(id="backend", agent="backend-dev", task=choice.backend, depends_on=("app",), context=specified)
        )
    last = steps[-1].id
    steps.append(PlanStep(id="styling", agent="styling", task=_STYLING, depends_on=(last,), context=("architect",)))
    return (*steps, *review_steps(("styling",), context=specified))


def _fix_steps(choice: FixChoice) -> tuple[PlanStep, ...]:
    plan_tests = "Work out how the defect shows, and which tests prove that it is gone and that nothing else broke."
    steps = [PlanStep(id="test-planner", agent="test-planner", task=plan_tests)]
    for scope in dict.fromkeys(choice.scopes):
        task = f"Fix the {scope} part of the defect. {choice.task or 'The ticket describes it.'}"
        steps.append(  # one after the other: their directories overlap
            PlanStep(
                id=f"fix-{scope}", agent=SCOPES[scope], task=task, depends_on=(steps[-1].id,), context=("test-planner",)
            )
        )
    return (*steps, *review_steps((steps[-1].id,), context=("test-planner",)))


def _sequential_steps() -> tuple[PlanStep, ...]:
    chain = {
        "research": _RESEARCH,
        "architect": _ARCHITECT,
        "frontend-dev": f"{_SETUP} {_APP}",
        "styling": _STYLING,
        "qa": _REVIEWS["qa"],
        "security": _REVIEWS["security"],
    }
    steps: list[PlanStep] = []
    for agent, task in chain.items():
        steps.append(PlanStep(id=agent, agent=agent, task=task, depends_on=tuple(step.id for step in steps[-1:])))
    return tuple(steps)


Edges = Mapping[str, Sequence[str]]
"""The keys that a key depends on. Names that are not keys themselves are ignored."""


def find_cycle(edges: Edges) -> tuple[str, ...] | None:
    """Return the keys of a cycle, each depending on the next and the last on the first; None if there is none."""
    sorter = TopologicalSorter({key: [name for name in needs if name in edges] for key, needs in edges.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        *cycle, _ = error.args[1]
        return tuple(reversed(cycle))
    return None


def find_ancestors(edges: Edges) -> dict[str, frozenset[str]]:
    """Return everything that each key depends on, directly or not.

    Raises:
        graphlib.CycleError: our fault; the caller looks for cycles first.
    """
    ancestors: dict[str, frozenset[str]] = {}
    needed = {key: [name for name in needs if name in edges] for key, needs in edges.items()}
    for key in TopologicalSorter(needed).static_order():
        ancestors[key] = frozenset(needed[key]).union(*(ancestors[name] for name in needed[key]))
    return ancestors


def find_concurrent(edges: Edges) -> Iterator[tuple[str, str]]:
    """Yield each pair of keys neither of which depends on the other: they may run at the same time."""
    ancestors = find_ancestors(edges)
    for one, other in combinations(edges, 2):
        if one not in ancestors[other] and other not in ancestors[one]:
            yield one, other


class Overlap(NamedTuple):
    """Two path rules that some file matches both of."""

    first: str
    second: str


def narrows(rule: str, wider: str) -> bool:
    """Whether `wider` covers every file that `rule` covers."""
    if wider.startswith("*"):
        suffix = wider[1:]
        return not rule.startswith(ARTIFACTS) and not rule.endswith("/") and rule.endswith(suffix)
    if wider.endswith("/"):
        return not rule.startswith("*") and rule.startswith(wider)
    return rule == wider


def find_overlap(one: Sequence[str], other: Sequence[str]) -> Overlap | None:
    """Return the first rules of `one` and `other` that could cover the same file, or None (ruling A17, S-047).

    Parallel steps merge without conflict because of this check, made on the rules before anything runs. Names are
    folded as on the strictest file system: `src/App/` and `src/app/` may be one directory.
    """
    folded = [collision_key(rule) for rule in other]
    for mine in one:
        key = collision_key(mine)
        for its, its_key in zip(other, folded, strict=True):
            if _meet(key, its_key) and not (_spares(mine, its) or _spares(its, mine)):
                return Overlap(mine, its)
    return None


def _spares(suffix: str, rule: str) -> bool:
    """Whether a suffix rule excludes the other's directory: documents belong to that directory's agent."""
    return suffix.startswith("*") and rule.startswith(ARTIFACTS)


def _meet(one: str, other: str) -> bool:
    if one.startswith("*") and other.startswith("*"):
        return one.endswith(other[1:]) or other.endswith(one[1:])
    if one.startswith("*"):
        one, other = other, one
    if other.startswith("*"):
        return one.endswith("/") or one.endswith(other[1:])
    if one.endswith("/"):
        return other.startswith(one) or (other.endswith("/") and one.startswith(other))
    return one.startswith(other) if other.endswith("/") else one == other
