"""A run without a ledger: actions are applied to the view as the coordinator applies them to rows.

Agents, builds and people answer from a script. What the coordinator may rely on is asserted at every move.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import TypeAdapter

from ledger.runs.specs import GateState, NewStep, Phase, StepState
from routing.decision.router import Intent
from routing.jobs import Reason, State, is_end
from routing.policy.platform import platform_policy
from routing.redaction import redact
from workers.runs.scheduling.ending import (
    Action,
    AddSteps,
    AdoptPlan,
    CancelSteps,
    Decision,
    EndRun,
    OpenGate,
    Publish,
    ScanChanges,
    SkipGate,
    SkipSteps,
    StartStep,
)
from workers.runs.scheduling.plan import find_overlap
from workers.runs.scheduling.schedule import next_actions
from workers.runs.scheduling.view import AgentResult, GateView, Rulebook, RunView, StepView

MAX_MOVES = 200
_VIEWS = TypeAdapter(RunView)
_KEY = re.compile(r"[a-z][a-z0-9_-]*")

Outcome = AgentResult | Reason
Script = Callable[[StepView], Outcome]


def make_book(**rules: Any) -> Rulebook:
    policy = platform_policy()
    return Rulebook(rules=policy.runs.model_copy(update=rules), agents=policy.agents, redact=redact)


BOOK = make_book()


def make_view(**values: Any) -> RunView:
    return RunView(**{"state": State.RUNNING, "intent": Intent.BUILD, **values})


def done(**values: Any) -> AgentResult:
    return AgentResult.model_validate({"status": "complete", "summary": "done", **values})


def blocking(count: int, *, file: str | None = None, **values: Any) -> AgentResult:
    issues = [{"severity": "blocking", "title": f"finding {number}", "file": file} for number in range(count)]
    return done(issues=issues, **values)


def plan_of(*steps: dict[str, Any], gates: tuple[dict[str, Any], ...] = (), kind: str = "build") -> dict[str, Any]:
    return {"classification": kind, "steps": list(steps), "gates": list(gates)}


def step(id: str, agent: str, *after: str, **values: Any) -> dict[str, Any]:
    return {"id": id, "agent": agent, "task": f"do {id}", "depends_on": list(after), **values}


BUILD_CHOICE: dict[str, Any] = {"template": "build"}
FIX_CHOICE: dict[str, Any] = {"template": "fix", "scopes": ["frontend"]}


@dataclass
class Players:
    """Who answers what. Answers of one step are given one after the other; the last one stays."""

    answers: Mapping[str, Outcome | Sequence[Outcome]] = field(default_factory=dict)
    """By the key of a step, else by its agent, else by its phase."""
    plan: dict[str, Any] = field(default_factory=lambda: dict(BUILD_CHOICE))
    gates: dict[str, GateState] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)

    def __call__(self, step: StepView) -> Outcome:
        for name in (step.key, step.agent or "", step.phase.value):
            if name in self.answers:
                return self._next(name)
        if step.phase is Phase.PLAN:
            return done(plan=self.plan)
        if step.phase is Phase.CLASSIFY:
            return done(intent="fix")
        return done()

    def _next(self, name: str) -> Outcome:
        answer = self.answers[name]
        if isinstance(answer, AgentResult | Reason):
            return answer
        at = self.asked.get(name, 0)
        self.asked[name] = at + 1
        return answer[min(at, len(answer) - 1)]


@dataclass
class Game:
    """One run being played."""

    view: RunView
    book: Rulebook = BOOK
    players: Callable[[StepView], Outcome] = field(default_factory=Players)
    changes: Callable[[StepView], tuple[str, ...]] = lambda step: (
        (f"src/{step.key}.ts",) if step.agent in ("frontend-dev", "backend-dev", "styling") else ()
    )
    scan: Literal["passed", "refused"] = "passed"
    choose: Callable[[tuple[StepView, ...]], StepView] = lambda running: running[0]
    """Which of the running steps ends next."""
    batches: list[tuple[str, ...]] = field(default_factory=list)
    """The keys that each decision started."""
    log: list[Decision] = field(default_factory=list)
    end: EndRun | None = None
    published: bool = False

    def play(self) -> Game:
        for _ in self.moves():
            pass
        return self

    def moves(self) -> Iterator[RunView]:
        """Play to the end; yields the view before each move, so that a test can look or meddle."""
        for _ in range(MAX_MOVES):
            yield self.view
            if self.advance():
                continue
            if self.is_over():
                return
            self.world_moves()
        raise AssertionError("the run does not end")

    def advance(self) -> bool:
        """Make one move of the coordinator; False when it has none."""
        decision = next_actions(self.view, self.book)
        stored = _VIEWS.validate_json(_VIEWS.dump_json(self.view))
        assert next_actions(stored, self.book) == decision, "a coordinator that was killed would have moved otherwise"
        assert decision.explanation
        self.log.append(decision)
        if started := tuple(action.key for action in decision.actions if isinstance(action, StartStep)):
            self.batches.append(started)
        for action in decision.actions:
            self.apply(action)
        return bool(decision.actions)

    def is_over(self) -> bool:
        return is_end(self.view.state) or self.view.state is State.PUBLISHING

    def world_moves(self) -> None:
        running = self.running()
        if running:
            self.settle(self.choose(running))
            return
        opened = [gate for gate in self.view.gates if gate.state is GateState.OPEN]
        assert opened, f"nothing runs and nobody is asked: {self.log[-1].explanation}"
        answers = getattr(self.players, "gates", {})
        self.answer(opened[0].key, answers.get(opened[0].key, GateState.PASSED))

    def running(self) -> tuple[StepView, ...]:
        return tuple(step for step in self.view.steps if step.state is StepState.RUNNING)

    def settle(self, step: StepView) -> None:
        outcome = Reason.CANCELLED if step.cancelling else self.players(step)
        if isinstance(outcome, Reason):
            self.change(step.key, state=StepState.FAILED, failure=outcome, detail="it failed")
        else:
            self.change(step.key, state=StepState.COMPLETED, result=outcome, changed=self.changes(step))

    def answer(self, key: str, state: GateState) -> None:
        gates = tuple(replace(gate, state=state) if gate.key == key else gate for gate in self.view.gates)
        self.view = replace(self.view, gates=gates)

    def change(self, key: str, **values: Any) -> None:
        steps = tuple(replace(step, **values) if step.key == key else step for step in self.view.steps)
        self.view = replace(self.view, steps=steps)

    def step(self, key: str) -> StepView:
        return next(step for step in self.view.steps if step.key == key)

    def apply(self, action: Action) -> None:
        assert not self.is_over()
        match action:
            case AdoptPlan():
                self.add(action.steps)
                self.view = replace(self.view, gates=(*self.view.gates, *(GateView(**vars(g)) for g in action.gates)))
            case AddSteps():
                self.add(action.steps)
                if action.asked_after:
                    again = (GateView(**vars(gate)) for gate in action.asked_after)
                    self.view = replace(self.view, scan=None, gates=(*self.view.gates, *again))
            case StartStep():
                self.start(action)
            case SkipSteps() | CancelSteps():
                self.stop(action)
            case OpenGate():
                self.open(GateView(**vars(action.gate), state=GateState.OPEN))
            case SkipGate():
                self.answer(action.key, GateState.SKIPPED)
            case ScanChanges() | Publish() | EndRun():
                self.finish(action)

    def stop(self, action: SkipSteps | CancelSteps) -> None:
        for step in map(self.step, action.keys):
            if isinstance(action, SkipSteps):
                assert step.state is StepState.PENDING
                self.change(step.key, state=StepState.SKIPPED)
            else:
                assert step.state is StepState.RUNNING
                assert not step.cancelling
                self.change(step.key, cancelling=True)

    def finish(self, action: ScanChanges | Publish | EndRun) -> None:
        assert not self.running()
        if isinstance(action, ScanChanges):
            assert self.view.scan is None
            self.view = replace(self.view, scan=self.scan, scan_detail="a key")
            return
        assert all(step.state is not StepState.PENDING for step in self.view.steps)
        if isinstance(action, Publish):
            self.published = True
            self.view = replace(self.view, state=State.PUBLISHING)
        else:
            self.end = action
            self.view = replace(self.view, state=action.state)

    def add(self, steps: tuple[NewStep, ...]) -> None:
        assert steps
        for new in steps:
            known = {step.key for step in self.view.steps} | {step.key for step in steps}
            assert _KEY.fullmatch(new.key), new.key
            assert not any(step.key == new.key for step in self.view.steps), f"{new.key} exists"
            assert set(new.depends_on) <= known
            self.view = replace(self.view, steps=(*self.view.steps, StepView(**vars(new))))

    def start(self, action: StartStep) -> None:
        step = self.step(action.key)
        assert step.state in (StepState.PENDING, StepState.FAILED)
        assert action.attempt == step.tries + 1
        assert step.tries <= self.book.rules.max_retries
        assert all(self.step(key).state is StepState.COMPLETED for key in step.depends_on)
        for name in action.context:
            assert name not in {one.key for one in self.view.steps} or self.step(name).state is StepState.COMPLETED
        for other in self.running():
            assert find_overlap(step.writes, other.writes) is None, f"{step.key} and {other.key} could collide"
        self.change(action.key, state=StepState.RUNNING, tries=action.attempt, failure=None, cancelling=False)
        assert len(self.running()) <= self.book.rules.max_parallel

    def open(self, gate: GateView) -> None:
        known = {one.key: one for one in self.view.gates}
        assert known.get(gate.key, gate).state in (GateState.PLANNED, GateState.OPEN)
        gates = [gate if one.key == gate.key else one for one in self.view.gates]
        self.view = replace(self.view, gates=tuple(gates if gate.key in known else [*gates, gate]))

    @property
    def executed(self) -> list[str]:
        """Every execution in the order in which it started."""
        return [key for batch in self.batches for key in batch]

    @property
    def told(self) -> list[str]:
        return [decision.explanation for decision in self.log]


def play(players: Players | None = None, *, book: Rulebook = BOOK, **values: Any) -> Game:
    """Play a run from its start to its end."""
    game_values = {name: values.pop(name) for name in ("scan", "choose", "changes") if name in values}
    return Game(make_view(**values), book, players or Players(), **game_values).play()
