"""Whole runs on a real ledger and a real workspace: what is planned is done once, in order, on one bill."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select
from sqlmodel import col

from ledger.errors import GateRefusedError
from ledger.jobs import lock_job, route_job
from ledger.record_tables import Event
from ledger.runs.tables import Run
from ledger.spending import NO_AGENT, orchestrator_share, total_by, usage_of_run
from monitoring.event_metrics import fold
from monitoring.metrics import series_key
from routing.decision.router import Route
from routing.jobs import Reason, State
from tests.factories import Shop
from tests.integration.runs.run_world import BUILD, FILES, FIX, PROJECT, SMALL, Yard, done, issues
from workers.outcomes import Ended


@pytest.fixture
def yard(shop: Shop, tmp_path: Path) -> Yard:
    return Yard(shop, tmp_path)


def starts(yard: Yard) -> list[str]:
    return [key for key, _ in yard.executed]


def estimated(run: Run) -> tuple[object, ...]:
    planned = run.estimate["planned"]
    return (planned["size"], planned["tokens"], planned["low_usd"], planned["high_usd"])


@pytest.mark.req("S-120")
def test_an_estimate_counts_five_times_what_a_project_lets_opus_do(yard: Yard) -> None:
    assert yard.run(yard.submit("Fix the broken header")).estimate["high_usd"] == 4.0
    dear = f"{PROJECT.replace('HOME', str(yard.home))}models: {{frontend-dev: claude-opus-4-6}}\n"
    yard.projects.put("acme", "shop", dear, source="project.yaml", actor="operator")
    assert yard.run(yard.submit("Fix the broken header")).estimate["high_usd"] == round(4 * (60 * 5 + 50) / 110, 2)


@pytest.mark.slow
@pytest.mark.req("P-026", "P-028", "P-030", "P-027", "R-005")
def test_a_fix_goes_from_its_ticket_to_a_branch(yard: Yard) -> None:
    yard.team.plan = FIX
    run_id = yard.submit("Fix the broken header")
    job = yard.play(run_id)
    assert (job.state, job.reason) == (State.PUBLISHED, Reason.DONE)
    assert starts(yard) == ["plan_1", "test-planner", "fix-frontend", "code-review", "qa", "security", "summary_1"]
    files = yard.workspace(run_id).read(job.result["commit"]).files
    assert files == {**FILES, "src/fix-frontend.ts": b"// fix-frontend 1\n"}, "what agents told each other stays here"
    assert job.result["summary"] == "done"


@pytest.mark.req("P-058", "P-002", "P-014", "P-015", "P-016", "P-020", "P-021", "P-034", "P-035", "P-024", "S-119")
@pytest.mark.req("P-046", "P-052", "P-019", "P-025")
@pytest.mark.req("P-013", "P-017", "P-018", "P-022", "S-035", "P-064", "P-040", "P-043", "P-044", "P-047", "S-074")
def test_a_feature_is_classified_planned_and_built_in_batches_with_app_last(yard: Yard) -> None:
    yard.team.plan = {**BUILD, "backend": "Keep the hours in a table."}
    run_id = yard.submit("Add a page with our opening hours")
    batches: list[list[str]] = []
    for _ in range(60):
        yard.wake()
        before = len(yard.executed)
        if not yard.turn():
            break
        if keys := starts(yard)[before:]:
            batches.append(keys)
    assert yard.job(run_id).state == State.PUBLISHED
    assert batches[:2] == [["classify_1"], ["plan_1"]]
    assert batches[-1] == ["summary_1"]
    assert {"research", "architect"} == set(batches[2])
    assert sorted(batches[4]) == ["frontend-1", "frontend-2", "frontend-3"]
    assert batches[5:8] == [["app"], ["backend"], ["styling"]]
    assert sorted(batches[-2]) == ["code-review", "qa", "security"]
    run = yard.run(run_id)
    assert (run.intent, estimated(run)) == ("build", ("complex_feature", 2_500_000, 10.0, 20.0))
    written = yard.workspace(run_id).read(yard.job(run_id).result["commit"]).files
    assert {f"src/part{number}/frontend-{number}.ts" for number in (1, 2, 3)} < written.keys()
    models = {row.agent: row.model for row in yard.executions(run_id) if row.agent is not None}
    assert {"orchestrator:classify", "research", "architect", "backend-dev", "styling"} <= models.keys()
    assert models == {agent: yard.resources.policy.agents[agent].model for agent in models}
    assert {row.provider for row in yard.executions(run_id) if row.agent is not None} == {"fake"}


@pytest.mark.req("S-034", "S-040", "S-041", "S-045", "S-046", "S-052", "S-108", "S-074", "S-011")
def test_each_step_begins_with_what_the_steps_before_it_left(yard: Yard) -> None:
    yard.team.plan = FIX
    run_id = yard.submit("Fix the broken header")
    yard.play(run_id)
    heads = {row.step_key: row.base_commit for row in yard.executions(run_id)}
    assert heads["code-review"] == heads["qa"] == heads["security"] != heads["fix-frontend"]
    seen = yard.workspace(run_id).read(heads["qa"] or "").files
    assert "src/fix-frontend.ts" in seen
    assert "artifacts/test-planner/test-planner.md" in seen
    assert {"test-planner", "fix-frontend"} <= set(yard.steps(run_id)["qa"].context), "what is staged for it"


@pytest.mark.req("S-101", "S-026", "S-097")
def test_p0_work_waits_for_a_person_after_qa_whatever_the_plan_says(yard: Yard) -> None:
    run_id = yard.submit("Fix the broken header", priority="P0")
    yard.settle()
    job = yard.job(run_id)
    assert (job.state, job.waiting_since) == (State.AWAITING_APPROVAL, None)
    assert "qa" in starts(yard)
    gate = yard.open_gate(run_id)
    assert gate.kind == "rule"
    assert gate.facts["ticket"] == "Fix the broken header"
    assert gate.facts["summaries"]["qa"] == "done"
    yard.decide(gate, note="looks right")
    assert yard.play(run_id).state == State.PUBLISHED
    assert [(gate.state, gate.actor, gate.note) for gate in yard.gates(run_id)] == [("passed", "bob", "looks right")]


@pytest.mark.req("S-011", "S-012", "S-018", "S-021", "S-026", "S-075")
def test_qa_runs_after_development_and_is_on_record_though_no_plan_of_the_orchestrator_names_it(yard: Yard) -> None:
    yard.team.plan = {**SMALL, "steps": SMALL["steps"][:1]}
    run_id = yard.submit("Fix the broken header")
    assert yard.play(run_id).state == State.PUBLISHED
    assert starts(yard) == ["plan_1", "plan_2", "fix-frontend", "qa", "summary_1"]
    assert [plan["origin"] for plan in yard.run(run_id).plans] == ["corrected"]
    query = "SELECT detail->'origin', detail->'steps' FROM audit WHERE action = 'plan_adopted' AND job_id = :id"
    assert [tuple(row) for row in yard.shop.rows(query, id=run_id)] == [("corrected", ["fix-frontend", "qa"])]


@pytest.mark.req("S-017", "S-033", "S-034", "S-118")
def test_a_mixed_ticket_is_one_run_of_the_steps_that_the_orchestrator_chose(yard: Yard) -> None:
    chosen = [("total", "backend-dev"), ("coupon", "frontend-dev"), ("look", "styling"), ("test", "qa")]
    steps = [{"id": key, "agent": agent, "task": f"Do {key}."} for key, agent in chosen]
    for before, step in pairwise(steps):
        step["depends_on"] = [before["id"]]
    yard.team.plan = {"classification": "build", "steps": steps}
    run_id = yard.submit("The cart's total is wrong. Add a field for coupons, too, and give the cart our new look.")
    assert yard.play(run_id).state == State.PUBLISHED
    made = {row.step_key: row.agent for row in yard.executions(run_id)}
    assert made == {"plan_1": "orchestrator", **dict(chosen), "summary_1": "orchestrator:summary"}
    assert estimated(yard.run(run_id)) == ("standard_feature", 1_500_000, 5.0, 10.0)
    assert starts(yard) == ["plan_1", "total", "coupon", "look", "test", "summary_1"]
    assert {key: step.task for key, step in yard.steps(run_id).items() if key in dict(chosen)} == {
        key: f"Do {key}." for key, _ in chosen
    }


@pytest.mark.req("P-023", "P-024", "P-029", "P-057", "S-036")
@pytest.mark.parametrize(("found", "cycles"), [((3, 2, 1), 2), ((2, 2), 1)])
def test_findings_are_mended_twice_at_most_and_only_while_they_get_fewer(
    yard: Yard, found: tuple[int, ...], cycles: int
) -> None:
    yard.team.answers = {"qa": [*map(issues, found), done()]}
    run_id = yard.submit("Fix the broken header")
    assert yard.play(run_id).state == State.PUBLISHED
    mended = [f"m{cycle}_{step}" for cycle in range(1, cycles + 1) for step in ("fix_frontend-dev", "qa")]
    again = ["r1_plan_1", "r1_fix-frontend", "r1_qa"]
    assert starts(yard) == ["plan_1", "fix-frontend", "qa", *mended, *again, "summary_1"]


def test_a_gate_that_a_person_fails_ends_the_run_and_keeps_what_was_done(yard: Yard) -> None:
    run_id = yard.submit("Fix the broken header", priority="P0")
    yard.settle()
    yard.decide(yard.open_gate(run_id), "failed", note="no")
    job = yard.play(run_id)
    assert (job.state, job.reason) == (State.REJECTED, Reason.REVIEWER_REJECTED)
    assert job.result["kept"]["head"] == yard.run(run_id).head_commit
    assert "summary_1" not in starts(yard)


@pytest.mark.req("S-110", "S-114")
def test_work_that_a_person_sends_back_is_reworked_by_agents_that_know_why_and_asked_about_again(yard: Yard) -> None:
    yard.team.answers = {"plan": [done(plan=SMALL), done()]}  # no plan for the rework: who made it reworks it
    run_id = yard.submit("Fix the broken header", priority="P0")
    yard.settle()
    first = yard.open_gate(run_id)
    with pytest.raises(GateRefusedError, match="with a reason"):
        yard.decide(first, "rework")
    yard.decide(first, "rework", note="Keep the border")
    yard.settle()

    told = [step.task for step in yard.steps(run_id).values() if step.round == 1]
    assert "Keep the border" in told[0]
    assert any("Keep the border" in task for task in told[1:]), told
    again = yard.open_gate(run_id)
    assert again.id != first.id
    assert again.reason == first.reason
    assert again.facts["head"] not in (None, first.facts["head"])
    yard.decide(again)
    job = yard.play(run_id)
    assert job.state == State.PUBLISHED
    assert [gate.state for gate in yard.gates(run_id)] == ["rework", "passed"]


def test_a_project_s_own_commands_are_run_once_its_work_is_made(shop: Shop, tmp_path: Path) -> None:
    project = PROJECT.replace("typescript, frontend: react", "python") + "commands: {test: python -m pytest}\n"
    yard = Yard(shop, tmp_path, project=project, files={"shop.py": b"x = 1\n"})
    yard.team.plan = {"template": "fix", "scopes": ["backend"]}
    assert yard.play(yard.submit("Fix the rounding of prices")).state == State.PUBLISHED
    assert "build_0" in starts(yard), starts(yard)


@pytest.mark.req("S-109", "S-111", "S-112", "S-113", "P-054")
def test_a_run_that_always_needs_rework_goes_to_a_person_with_everything_that_is_known(yard: Yard) -> None:
    rework = {"status": "needs_rework", "summary": "the spec is wrong"}
    yard.team.answers = {"qa": rework}
    run_id = yard.submit("Fix the broken header")
    job = yard.play(run_id)
    assert (job.state, job.reason) == (State.ESCALATED, Reason.REWORK_EXHAUSTED)
    told = job.result["escalation"]
    assert told["ticket"]["title"] == "Fix the broken header"
    assert told["rounds"] == 3
    assert len(told["plans"]) == 4
    assert {"qa", "fix-frontend"} <= {step["key"] for step in told["steps"]}
    assert told["artifacts"] is not None


@pytest.mark.req("P-054", "P-055", "P-053", "P-063", "P-036", "P-003")
def test_a_step_is_tried_four_times_and_then_the_run_halts_with_every_execution_on_record(yard: Yard) -> None:
    yard.team.answers = {"fix-frontend": Reason.AGENT_FAILED}
    run_id = yard.submit("Fix the broken header")
    job = yard.play(run_id)
    assert (job.state, job.reason) == (State.FAILED, Reason.AGENT_FAILED)
    assert starts(yard) == ["plan_1", *["fix-frontend"] * 4]
    planned, *rows = yard.executions(run_id)
    assert (planned.step_key, planned.agent, planned.attempt) == ("plan_1", "orchestrator", 1)
    assert (planned.status, planned.started_at < planned.settled_at) == ("completed", True)
    assert {row.step_key for row in rows} == {"fix-frontend"}
    told = [(row.attempt, row.status, row.reason) for row in rows]
    assert told == [(number, "failed", "agent_failed") for number in (1, 2, 3, 4)]
    assert all(row.started_at and row.settled_at and row.agent == "frontend-dev" for row in rows)
    others = [step for key, step in yard.steps(run_id).items() if key not in ("plan_1", "fix-frontend")]
    assert {step.state for step in others} == {"skipped"}


@pytest.mark.req("P-006")
def test_a_project_says_how_often_a_step_is_tried_again(shop: Shop, tmp_path: Path) -> None:
    yard = Yard(shop, tmp_path, project=f"{PROJECT}rules: {{max_retries: 1}}\n")
    yard.team.answers = {"fix-frontend": Reason.PROVIDER_ERROR}
    run_id = yard.submit("Fix the broken header")
    yard.play(run_id)
    assert starts(yard).count("fix-frontend") == 2


@pytest.mark.req("S-037", "S-071", "S-100", "S-102", "S-103", "S-104", "S-106", "S-073")
def test_a_project_s_rules_open_gates_and_its_autonomy_skips_those_of_the_plan(shop: Shop, tmp_path: Path) -> None:
    rules = "{autonomy: auto, gates: [{name: api, labels: [api], reason: Interfaces are looked at.}]}"
    yard = Yard(shop, tmp_path, project=f"{PROJECT}rules: {rules}\n")
    yard.team.plan = {**SMALL, "gates": [{"after": "qa", "reason": "it may be dear"}]}
    run_id = yard.submit("Fix the broken header", ticket={"title": "Fix the broken header", "labels": ["api"]})
    yard.settle()
    assert {gate.key: gate.state for gate in yard.gates(run_id)} == {"gate_1": "skipped", "rule_api": "open"}
    yard.decide(yard.open_gate(run_id))
    assert yard.play(run_id).state == State.PUBLISHED


@pytest.mark.req("S-037", "S-103", "S-074")
def test_a_gate_of_the_plan_waits_for_a_person_where_the_project_says_nothing(yard: Yard) -> None:
    yard.team.plan = {**SMALL, "gates": [{"after": "qa", "reason": "it may be dear"}]}
    run_id = yard.submit("Fix the broken header")
    yard.settle()
    gate = yard.open_gate(run_id)
    assert (gate.key, gate.kind, gate.reason, yard.job(run_id).state) == (
        "gate_1",
        "plan",
        "it may be dear",
        "awaiting_approval",
    )


@pytest.mark.req(
    "S-019", "S-024", "S-031", "S-032", "S-066", "S-067", "S-117", "P-004", "P-037", "S-073", "S-011", "S-021", "S-071"
)
@pytest.mark.req("P-039", "P-041", "P-045", "P-048", "P-049", "P-050", "P-051", "S-011", "S-021", "S-073")
def test_each_step_starts_with_the_model_and_the_budget_of_its_agent(shop: Shop, tmp_path: Path) -> None:
    own = "budgets: {step_usd: {frontend-dev: 1.5}}\nkeys: {anthropic: shop-s-own}\n"
    yard = Yard(shop, tmp_path, project=f"{PROJECT}{own}")
    yard.team.plan = FIX
    run_id = yard.submit("Fix the broken header")
    yard.play(run_id)
    caps = {row.agent: row.cap_nanousd for row in yard.executions(run_id)}
    platform = shop.policy.agents["qa"].step_usd
    assert platform is not None
    assert (caps["frontend-dev"], caps["qa"]) == (1_500_000_000, round(platform * 10**9))
    models = {row.agent: row.model for row in yard.executions(run_id)}
    assert models == {agent: shop.policy.agents[agent or ""].model for agent in models}
    assert models["qa"] != models["security"]
    assert {row.provider for row in yard.executions(run_id)} == {"shop-s-own"}, "not the account of its tenant"
    made_by = {row.step_key: row.agent for row in yard.executions(run_id)}
    assert (made_by["fix-frontend"], made_by["security"]) == ("frontend-dev", "security")
    run = yard.run(run_id)
    assert (run.intent, run.estimate["planned"]["size"]) == ("fix", "simple_fix")


@pytest.mark.req("S-065", "S-066", "S-068")
def test_a_run_whose_tenant_has_lost_its_key_ends_before_any_step_of_it_starts(yard: Yard, shop: Shop) -> None:
    run_id = yard.submit("Fix the broken header")
    shop.execute("UPDATE tenant SET provider = NULL")
    job = yard.play(run_id)
    assert (job.state, job.reason) == (State.FAILED, Reason.NO_PROVIDER_KEY)
    assert starts(yard) == []


@pytest.mark.req("P-012", "P-042")
def test_a_question_about_a_project_is_answered_by_one_step(yard: Yard) -> None:
    yard.team.answers = {"answer": done(answer="It is built with React.")}
    run_id = yard.submit("How does the checkout work?")
    job = yard.play(run_id)
    assert (job.state, job.result["answer"]) == (State.ANSWERED, "It is built with React.")
    assert [step.agent for step in yard.steps(run_id).values()] == ["orchestrator:question"]
    (answered,) = yard.executions(run_id)
    assert answered.model == yard.resources.policy.agents["orchestrator:question"].model


@pytest.mark.req("S-116", "S-122", "P-005", "P-037", "P-062", "S-009", "S-022", "P-055")
def test_every_call_of_a_run_names_who_made_it_and_they_add_up_to_its_bill(yard: Yard, shop: Shop) -> None:
    yard.team.plan = FIX
    run_id = yard.submit("Fix the broken header")
    yard.play(run_id)
    shop.execute("UPDATE call SET input_tokens = 10, cache_write_tokens = 5, cache_read_tokens = 3")
    with shop.ledger.begin() as session:
        calls = usage_of_run(session, run_id)
        assert usage_of_run(session, uuid4()) == []
    assert [call.agent for call in calls] == [
        "orchestrator",
        "test-planner",
        "frontend-dev",
        *[call.agent for call in calls[3:6]],
        "orchestrator:summary",
    ]
    assert {(call.provider, call.model, call.key_hash) for call in calls} == {
        ("fake", "claude-haiku-4-5-20251001", "hash-of-key")
    }
    by_agent = total_by(calls, lambda call: call.agent)
    spent, booked = yard.bill(run_id)
    assert sum(total.cost_nanousd for total in by_agent.values()) == spent == booked > 0
    assert sum(total.tokens for total in by_agent.values()) == sum(call.tokens for call in calls) == 7 * 118
    assert NO_AGENT not in by_agent
    assert orchestrator_share(calls) == pytest.approx(2 / 7)


@pytest.mark.req("S-022", "S-099")
def test_metrics_tell_how_many_gates_runs_have_and_what_part_of_the_tokens_orchestrates(yard: Yard, shop: Shop) -> None:
    yard.team.plan = FIX
    yard.play(yard.submit("Fix the broken header", priority="P0"))
    with shop.ledger.begin() as session:
        events = session.scalars(select(Event).order_by(col(Event.id))).all()
    series = fold(events)
    tokens = [series[series_key("run_tokens_total", {"part": part})] for part in ("orchestrator", "other")]
    assert tokens == [200, 500]
    gates = [series[series_key("run_gates_total", {"kind": "rule", "state": state})] for state in ("open", "passed")]
    assert gates == [1, 1]
    assert series[series_key("gates_per_run_bucket", {"state": "published", "le": "1.0"})] == 1
    depths = [value for key, value in series.items() if key.name == "queue_depth"]
    assert set(depths) == {0}


BUILDS = {**FILES, "package.json": b'{"scripts": {"build": "vite build"}}\n'}


@pytest.mark.req("P-031")
def test_a_build_that_fails_gets_one_targeted_fix_and_the_same_check_again(shop: Shop, tmp_path: Path) -> None:
    yard = Yard(shop, tmp_path, files=BUILDS)
    yard.team.answers = {"check": [issues(1), done()]}
    run_id = yard.submit("Fix the broken header")
    assert yard.play(run_id).state == State.PUBLISHED
    phases = [step.phase for step in yard.steps(run_id).values()]
    assert phases.count("check") == 2
    assert phases.count("repair") == 1
    assert starts(yard).index("fix-frontend") < min(starts(yard).index(key) for key in starts(yard) if "build" in key)
    checks = [row for row in yard.executions(run_id) if row.agent is None]
    assert all(row.model is None and row.status == "completed" for row in checks)


def test_a_ticket_that_fails_again_goes_on_in_a_run_of_its_own_once_it_was_debated(yard: Yard, shop: Shop) -> None:
    yard.team.answers = {"fix-frontend": Ended(State.FAILED, Reason.OUTPUT_REFUSED, "refused")}
    ticket = {"title": "Fix the broken header", "labels": ["bug"]}
    yard.play(yard.submit("Fix the broken header", ticket=ticket))
    failed = yard.submit("Fix the broken header", ticket=ticket)
    child = UUID(yard.play(failed).result["continued_as"])
    assert (yard.job(child).state, yard.job(child).queue) == (State.DEBATING, "intake")
    with shop.ledger.begin() as session:
        route_job(session, lock_job(session, child), Route.model_validate(yard.job(child).route))
    yard.team.answers = {}
    job = yard.play(child)
    assert (job.state, job.root_id) == (State.PUBLISHED, failed)
    assert yard.run(child).ticket["labels"] == ["bug"]
    spent, booked = yard.bill(failed)
    assert spent == booked, "one bill for both"
