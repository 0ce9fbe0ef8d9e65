"""The pipelines of seed 003 as plans: build, fix and sequential, and the single step that answers a question.

The orchestrator picks one with parameters, and the service takes one where no valid plan came (ruling A38). They pass
the same validation as a plan of the orchestrator's own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from routing.router import Intent
from workers.runs import keys
from workers.runs.plan import BuildChoice, FixChoice, Plan, PlanStep, SequentialChoice
from workers.runs.roles import ANSWERER, RESEARCHER

SCOPES = {"frontend": "frontend-dev", "backend": "backend-dev", "styling": "styling"}
"""Which agent a scope of the fix pipeline is for (P-027)."""

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
    """Return the plan that a template makes of its parameters."""
    if isinstance(choice, BuildChoice):
        return Plan(classification="build", steps=_build_steps(choice), gates=choice.gates)
    if isinstance(choice, FixChoice):
        return Plan(classification="fix", steps=_fix_steps(choice), gates=choice.gates)
    return Plan(classification="build", steps=_sequential_steps(), gates=choice.gates)


def choose_template(intent: Intent, *, agents: Collection[str]) -> BuildChoice | FixChoice:
    """Choose the template that stands in for a plan which was refused.

    Args:
        intent: build or fix.
        agents: those that the refused plans named: all that is known of what the ticket needs.
    """
    if intent is Intent.FIX:
        scopes = tuple(scope for scope, agent in SCOPES.items() if agent in agents)
        return FixChoice.model_validate({"template": "fix", "scopes": scopes or tuple(SCOPES)})
    return BuildChoice(template="build", backend=_BACKEND if "backend-dev" in agents else None)


def answer_plan(*, read_only: bool) -> Plan:
    """Return the one step of a question, or of an order that only looks (ruling A5)."""
    if read_only:
        task = "Look up what is asked, change nothing, and put what you found into `answer`."
        return Plan(classification="question", steps=(PlanStep(id=keys.ANSWER, agent=RESEARCHER, task=task),))
    task = "Answer the question from the project's files, and put the answer into `answer`."
    return Plan(classification="question", steps=(PlanStep(id=keys.ANSWER, agent=ANSWERER, task=task),))


def review_steps(after: Sequence[str], *, context: Sequence[str] = ()) -> tuple[PlanStep, ...]:
    """Return the three reviewers, side by side after the given steps (P-022)."""
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
                id=f"fix-{scope}",
                agent=SCOPES[scope],
                task=task,
                depends_on=(steps[-1].id,),
                context=("test-planner",),
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
