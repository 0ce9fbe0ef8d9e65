"""Whole runs on a table: the schedule decides, the rehearsed team works on a project in memory, by the real tools.

No ledger, no queue, no box: what is shown is that orders, plans, results and workspaces of a run fit each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from ledger.runs.specs import GateState
from routing.decision.router import Intent
from routing.jobs import Reason, State
from tests.unit.gateway.fake_provider.agent_workspace import FEATURE, FIX, MIXED, PROJECT, AgentWorkspace
from tests.unit.workers.runs.scheduling.fake_run import BOOK, Game, Outcome, blocking, done, make_view
from workers.runs.scheduling.view import RunView, StepView


@dataclass
class Table:
    """The players of a game: every step is played in the workspace."""

    ticket: Mapping[str, Any]
    workspace: AgentWorkspace = field(default_factory=AgentWorkspace)
    changed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    gates: dict[str, GateState] = field(default_factory=dict)
    game: Game | None = None

    def __call__(self, step: StepView) -> Outcome:
        if step.agent is None:
            return self._build()
        assert self.game is not None
        known = {one.key: one.result for one in self.game.view.steps if one.result is not None}
        before = dict(self.workspace.files)
        try:
            played = self.workspace.play(
                step.agent,
                self.ticket,
                task=step.task,
                key=step.key,
                writes=step.writes,
                results={key: known[key] for key in dict.fromkeys((*step.depends_on, *step.context)) if key in known},
            )
        except KeyError:
            return Reason.AGENT_FAILED
        self.dropped += played.dropped
        after = self.workspace.files
        self.changed[step.key] = tuple(sorted(path for path in after if before.get(path) != after[path]))
        return played.result

    def _build(self) -> Outcome:
        broken = [path for path, data in self.workspace.files.items() if b"const broken = ;" in data]
        return blocking(1, file=broken[0]) if broken else done()


def play(ticket: Mapping[str, Any], *tags: str, **values: Any) -> tuple[Game, Table]:
    body = " ".join((ticket["body"], *(f"[rehearse:{tag}]" for tag in tags)))
    table = Table({**ticket, "body": body})
    view: RunView = make_view(**{"intent": Intent.BUILD, "priority": ticket.get("priority", "P2"), **values})
    table.game = Game(view, BOOK, table, lambda step: table.changed.get(step.key, ()))
    return table.game.play(), table


def agents_of(game: Game) -> list[str]:
    by_key = {step.key: step.agent or "build" for step in game.view.steps}
    return [by_key[key] for key in game.executed]


def test_a_bug_goes_through_the_fix_pipeline_and_is_mended() -> None:
    game, table = play(FIX, intent=Intent.FIX)
    assert game.published
    assert agents_of(game)[:3] == ["orchestrator", "test-planner", "backend-dev"]
    assert set(agents_of(game)[3:6]) == {"code-review", "qa", "security"}
    assert agents_of(game)[-1] == "orchestrator:summary"
    assert b"Math.round" in table.workspace.files["src/price.ts"]
    assert "artifacts/summary/pull-request.md" in table.workspace.files


def test_a_feature_goes_through_the_build_pipeline_with_its_parts_in_parallel_and_app_last() -> None:
    game, table = play(FEATURE, "parts=3")
    assert game.published
    frontends = [key for key in game.executed if key.startswith("frontend-")]
    assert len(frontends) == 3
    assert next(batch for batch in game.batches if frontends[0] in batch) == tuple(frontends)
    assert game.executed.index("app") > max(map(game.executed.index, frontends))
    joined = table.workspace.files["src/features/index.ts"].decode()
    assert joined.count("import * as") == 3
    assert "backend-dev" in agents_of(game)


@pytest.mark.req("S-017")
def test_a_mixed_p0_ticket_is_planned_mended_reworked_gated_and_published() -> None:
    game, table = play(MIXED, "issues=2,0,0", "needs-rework=2")
    assert game.published
    agents = agents_of(game)
    assert {"backend-dev", "frontend-dev", "styling", "qa"} <= set(agents)
    assert agents.count("qa") == 3
    assert agents.count("orchestrator") == 2
    assert max(step.cycle for step in game.view.steps) >= 1
    assert max(step.round for step in game.view.steps) == 1
    assert [gate.state for gate in game.view.gates] == [GateState.PASSED]
    assert b"Math.round" in table.workspace.files["src/price.ts"]
    assert any(path.startswith("src/features/") for path in table.workspace.files)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["no-qa", "cycle", "unknown-agent", "overlap", "budget", "model", "key", "empty"])
def test_a_bad_plan_is_asked_for_again_and_one_that_stays_bad_is_replaced(kind: str) -> None:
    once, _ = play(MIXED, f"bad-plan={kind}")
    assert once.published
    assert agents_of(once).count("orchestrator") == 2
    always, _ = play(MIXED, f"bad-plan-always={kind}")
    assert always.published
    assert agents_of(always).count("orchestrator") == 2
    assert {"qa"} <= set(agents_of(always))


def test_findings_that_do_not_get_fewer_and_work_that_is_always_sent_back_end_with_a_person() -> None:
    game, _ = play(FIX, "needs-rework=always", intent=Intent.FIX)
    assert game.end is not None
    assert (game.end.state, game.end.reason) == (State.ESCALATED, Reason.REWORK_EXHAUSTED)
    assert agents_of(game).count("orchestrator") == 1 + BOOK.rules.rework_cycles


def test_a_failed_build_gets_one_targeted_fix_and_goes_on() -> None:
    game, table = play(FEATURE, "build-error", has_build=True)
    assert game.published
    assert not any(b"const broken = ;" in data for data in table.workspace.files.values())


def test_an_agent_that_never_delivers_halts_the_run_after_its_retries() -> None:
    game, _ = play(FIX, "fail=backend-dev", intent=Intent.FIX)
    assert game.end is not None
    assert game.end.state is State.FAILED
    assert agents_of(game).count("backend-dev") == 1 + BOOK.rules.max_retries


def test_what_qa_writes_into_source_is_dropped_and_the_run_goes_on() -> None:
    game, table = play(FIX, "qa-edits-source", intent=Intent.FIX)
    assert game.published
    assert table.dropped == ["src/price.ts"]


def test_a_ticket_that_the_rules_cannot_place_is_classified_first() -> None:
    game, _ = play(FIX, intent=None)
    assert agents_of(game)[0] == "orchestrator:classify"
    assert agents_of(game)[2] == "test-planner"


def test_no_step_leaves_the_project_as_it_was_but_those_that_only_look() -> None:
    _, table = play(MIXED)
    assert table.workspace.files != PROJECT
    idle = [key for key, paths in table.changed.items() if not paths]
    assert idle == []
