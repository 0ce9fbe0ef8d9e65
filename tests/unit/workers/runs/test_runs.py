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
from tests.unit.gateway.fake_provider.agent_workspace import FEATURE, FIX, MIXED, PROJECT, AgentWorkspace
from tests.unit.workers.runs.scheduling.fake_run import BOOK, Game, Outcome, make_view
from workers.runs.scheduling.view import RunView, StepView


@dataclass
class Table:
    """The players of a game: every step is played in the workspace."""

    ticket: Mapping[str, Any]
    workspace: AgentWorkspace = field(default_factory=AgentWorkspace)
    changed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    game: Game | None = None

    def __call__(self, step: StepView) -> Outcome:
        assert self.game is not None
        known = {one.key: one.result for one in self.game.view.steps if one.result is not None}
        before = dict(self.workspace.files)
        played = self.workspace.play(
            step.agent or "",
            self.ticket,
            task=step.task,
            key=step.key,
            writes=step.writes,
            results={key: known[key] for key in dict.fromkeys((*step.depends_on, *step.context)) if key in known},
        )
        after = self.workspace.files
        self.changed[step.key] = tuple(sorted(path for path in after if before.get(path) != after[path]))
        return played.result


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


def test_no_step_leaves_the_project_as_it_was_but_those_that_only_look() -> None:
    _, table = play(MIXED)
    assert table.workspace.files != PROJECT
    idle = [key for key, paths in table.changed.items() if not paths]
    assert idle == []
