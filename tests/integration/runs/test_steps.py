"""Steps of runs by agents without a box: through the real gateway, with the fake provider at the other end."""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from pydantic import SecretStr

from gateway.config import GatewayConfig, ProviderConfig
from gateway.fake_provider.config import FakeProviderConfig, LoggedCall, read_log
from gateway.fake_provider.server import running_fake_provider
from gateway.fleet_budget import FleetBudget
from ledger.runs.tables import Run
from ledger.store import Ledger
from monitoring.config import CellsConfig
from producers.use_cases.runs import Projects
from routing.jobs import Reason, State
from routing.model_call import LITTLE_TIME
from routing.queues import QueueName
from sites.content_store import ContentStore
from sites.repository.workspace import Step
from tests.factories import Shop
from tests.integration.runs.step_world import StepYard, policy_with_file_remotes
from tests.services import wait_until
from tests.threads import serve_gateway_in_thread
from tests.unit.workers.runs.fake_runner import Played
from workers.attempt import Attempt
from workers.lifecycle import Resources
from workers.runs.api_runner import run_api
from workers.runs.step import run_step
from workers.runs.step_context import AgentOrder, AgentRun, AgentRunner, Failed

CANARY = "sk-ant-canary-of-the-steps-0123456789abcdef"
SCENARIO = """
rules:
  - name: reads-first
    when: {tag: research, turn: 1, tools: [read_file, write_file, finish]}
    say:
      - tool: read_file
        input: {path: README.md}
      - tool: read_file
        input: {path: .agent-context/index.md}
      - tool: search_files
        input: {text: TOTAL}
      - tool: list_files
        input: {directory: src}
  - name: then-writes
    when: {tag: research, turn: 2}
    say:
      - tool: write_file
        input: {path: artifacts/research/spec.md, content: "# Spec\\n"}
      - tool: write_file
        input: {path: src/app.js, content: "mine"}
      - tool: write_file
        input: {path: ../../etc/passwd, content: "x"}
      - tool: write_file
        input: {path: .agent-context/index.md, content: "x"}
      - tool: write_file
        input: {path: artifacts/research/CLAUDE.md, content: "obey"}
  - name: then-finishes
    when: {tag: research, turn: 3}
    say:
      - tool: finish
        input: {status: complete, summary: "Specified.", artifacts: [artifacts/research/spec.md]}
  - name: finishes-badly-first
    when: {tag: badly, turn: 1}
    say:
      - tool: finish
        input: {status: splendid, summary: "x", budget: 5}
  - name: then-well
    when: {tag: badly, turn: 2}
    say:
      - tool: finish
        input: {status: complete, summary: "Now it is valid."}
  - name: never-finishes
    when: {tag: never, forced_tool: finish}
    say:
      - tool: finish
        input: {nonsense: true}
  - name: talks
    when: {tag: never}
    say:
      - text: Let me think about it.
  - name: looks
    when: {tag: look, turn: 1}
    say:
      - tool: read_file
        input: {path: .agent-context/changes.diff}
  - name: looked
    when: {tag: look, turn: 2}
    say:
      - tool: finish
        input: {status: complete, summary: "{{ tool_results | join }}"}
  - name: hurries
    when: {tag: hurry, check: "{{ 'replies left' in (tool_results | join) }}"}
    say:
      - tool: finish
        input: {status: complete, summary: "{{ tool_results | join }}"}
  - name: dawdles
    when: {tag: hurry}
    say:
      - tool: list_files
        input: {}
  - name: leaks
    when: {tag: leaks, turn: 1}
    say:
      - tool: write_file
        input: {path: artifacts/research/spec.md, content: "see Zm9v CANARY"}
      - tool: finish
        input: {status: complete, summary: "Done."}
  - name: leaks-a-foreign-one
    when: {tag: foreign, turn: 1}
    say:
      - tool: write_file
        input: {path: artifacts/research/spec.md, content: "aws: AKIAQ3EGRIPYH7TLW2XN"}
      - tool: write_file
        input: {path: artifacts/research/fine.md, content: "fine"}
      - tool: finish
        input: {status: complete, summary: "Done."}
  - name: leaks-in-its-result
    when: {tag: result-leak, turn: 1}
    say:
      - tool: finish
        input: {status: complete, summary: "The key is CANARY"}
  - name: dawdles
    when: {tag: dawdles}
    pace: {first_token_seconds: 0.2, tokens_per_second: 20}
    say:
      - wordy: {tokens: 3000}
  - name: classifies
    when: {tag: classify, forced_tool: finish}
    say:
      - tool: finish
        input: {status: complete, summary: "It is a fix.", intent: fix}
""".replace("CANARY", CANARY)


class Watched:
    """A runner, and the orders that it was given."""

    def __init__(self, runner: AgentRunner) -> None:
        self.orders: list[AgentOrder] = []
        self._runner = runner

    def __call__(self, order: AgentOrder, attempt: Attempt) -> AgentRun:
        self.orders.append(order)
        return self._runner(order, attempt)


@dataclass
class Office:
    """A project whose agents work without a box."""

    yard: StepYard
    log: Path
    seen: int

    def calls(self) -> list[LoggedCall]:
        return read_log(self.log)[self.seen :]


@pytest.fixture(scope="module")
def servers(
    module_ledger: tuple[Ledger, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Resources, Path, Path]]:
    ledger, url = module_ledger
    home = tmp_path_factory.mktemp("steps")
    (home / "mine.yaml").write_text(SCENARIO)
    log = home / "requests.jsonl"
    policy = policy_with_file_remotes()
    with ExitStack() as stack:
        config = FakeProviderConfig(speed="max", faults=True, scenarios=(home / "mine.yaml",), log=log)
        model = stack.enter_context(running_fake_provider(config))
        provider = ProviderConfig(base_url=model.url, api_key=SecretStr(CANARY), label="fake", day_usd=100)
        gateway = GatewayConfig(providers={"fake": provider}, pepper=SecretStr("p" * 32))
        gateway_url = stack.enter_context(serve_gateway_in_thread(gateway, url, policy))
        yield (
            Resources(
                ledger=ledger,
                content_store=ContentStore(home / "content-store"),
                policy=policy,
                gateway_url=gateway_url,
                worker="w1",
                known_keys=(CANARY,),
            ),
            log,
            home,
        )


@pytest.fixture
def office(shop: Shop, servers: tuple[Resources, Path, Path], tmp_path: Path) -> Iterator[Office]:
    resources, log, _ = servers
    shop.policy = resources.policy
    shop.tenant(provider="fake")
    own = Resources(**{**vars(resources), "runs": StepYard.runs_config(tmp_path)})
    yard = StepYard(shop, own, tmp_path)
    yield Office(yard, log, seen=len(read_log(log)) if log.exists() else 0)
    # The gateway settles a stream that was cut in its own time, and the next test has the same ledger.
    wait_until(
        lambda: shop.scalar("SELECT count(*) FROM call WHERE state = 'reserved'") == 0,
        seconds=20,
        what="all is settled",
    )


@pytest.mark.req("P-032")
def test_an_agent_reads_the_project_and_writes_within_its_paths_and_nowhere_else(office: Office) -> None:
    done = office.yard.do("research", "Specify it [rehearse:research]")

    assert (done.job.state, done.job.detail) == ("answered", None), done.job.detail
    assert done.result["artifacts"] == ["artifacts/research/spec.md"]
    assert done.changes() == {"artifacts/research/spec.md": b"# Spec"}
    assert done.execution.base_commit == office.yard.base
    assert done.execution.changed == ["artifacts/research/spec.md"]
    calls = office.calls()
    offered = policy_with_file_remotes().agents["research"].tools
    assert [(call.stream, set(call.tools)) for call in calls] == [(True, offered)] * 3
    refused = done.execution.dropped
    assert [line.partition(":")[0] for line in refused] == [
        "src/app.js",
        "../../etc/passwd",
        ".agent-context/index.md",
        "artifacts/research/CLAUDE.md",
    ]
    (told,) = [event for event in done.events if "dropped" in event]
    assert told["dropped"] == refused
    news = [event["text"] for event in done.events if "text" in event]
    assert "read_file README.md" in news, news


@pytest.mark.req("S-054", "S-005", "S-057")
def test_an_agent_without_a_box_is_offered_its_own_tools_and_no_shell(office: Office) -> None:
    done = office.yard.do("research", "Specify it [rehearse:research]")

    body = office.calls()[0]
    declared = (Path(__file__).parents[3] / "pyproject.toml").read_text().casefold()
    assert not any(name in declared for name in ("openhands", "langchain", "langgraph", "crewai"))
    assert sorted(body.tools) == ["finish", "list_files", "read_file", "search_files", "write_file"]
    assert done.job.result["tools_used"] == 10
    office.yard.do("orchestrator:classify", "Which? [rehearse:classify]", key="classify")
    assert [*office.calls()[-1].tools] == ["finish"]


@pytest.mark.req("S-051")
def test_an_invalid_result_is_told_to_the_agent_and_a_valid_one_taken(office: Office) -> None:
    done = office.yard.do("research", "Specify it [rehearse:badly]")

    assert (done.job.state, done.result["summary"], done.job.result["turns"]) == ("answered", "Now it is valid.", 2)


@pytest.mark.req("S-051")
def test_an_agent_without_a_valid_result_after_all_its_turns_has_failed(office: Office) -> None:
    done = office.yard.do("orchestrator:summary", "Sum up [rehearse:never]")

    assert (done.job.state, done.job.reason) == (State.FAILED, Reason.AGENT_FAILED)
    assert (done.execution.status, done.execution.reason, done.execution.commit) == ("failed", "agent_failed", None)
    assert len(office.calls()) == office.yard.resources.policy.agents["orchestrator:summary"].max_turns
    said = [event["text"] for event in done.events if "text" in event]
    assert "Let me think about it." in said, "its words are told as it says them"


def test_a_reviewer_reads_what_its_run_has_changed_so_far(office: Office) -> None:
    yard = office.yard
    first = yard.do("research", "Specify it [rehearse:research]", key="research")
    base = first.execution.base_commit
    assert base is not None
    changes = {"src/cart.js": b"// mended\n", "artifacts/research/spec.md": b"Its own paper\n"}
    head = yard.workspace().commit_step(base, changes, step=Step("dev", 1), message="m", when=5)
    yard.complete("dev", {"status": "complete", "summary": "Mended."}, head=head)
    with yard.shop.ledger.begin() as session:
        session.get_one(Run, yard.run_id).base_commit = base
    done = yard.do("code-review", "Review it [rehearse:look]", key="review")
    assert "-// cart\n+// mended" in done.result["summary"]
    assert "Its own paper" not in done.result["summary"]


def test_an_agent_is_told_when_few_replies_are_left_and_can_still_finish(office: Office) -> None:
    done = office.yard.do("research", "Specify it [rehearse:hurry]")

    assert "[3 replies left: end your step with the tool `finish` in time]" in done.result["summary"]
    assert done.job.result["turns"] == office.yard.resources.policy.agents["research"].max_turns - 2


def test_an_agent_is_told_when_little_time_is_left_in_words_that_no_repeated_call_is_told_apart_by(
    office: Office,
) -> None:
    policy = office.yard.resources.policy
    hasty = policy.agents["research"].model_copy(update={"soft_seconds": 40.0})
    own = policy.model_copy(update={"agents": {**policy.agents, "research": hasty}})
    office.yard.resources = replace(office.yard.resources, policy=own)
    done = office.yard.do("research", "Specify it [rehearse:look]")
    assert LITTLE_TIME.strip() in done.result["summary"]


def test_the_classifier_has_one_turn_and_must_finish_in_it(office: Office) -> None:
    done = office.yard.do("orchestrator:classify", "Which is it? [rehearse:classify]", phase="classify")

    assert (done.job.state, done.result["intent"]) == ("answered", "fix")
    assert len(office.calls()) == 1


@pytest.mark.req("S-085")
def test_a_key_of_this_installation_in_a_file_ends_the_step_and_nothing_of_it_is_kept(office: Office) -> None:
    done = office.yard.do("research", "Specify it [rehearse:leaks]")

    assert (done.job.state, done.job.reason) == (State.FAILED, Reason.SCAN_REFUSED)
    assert done.execution.commit is None
    _assert_nowhere(office, CANARY)


@pytest.mark.req("S-085")
def test_a_key_of_this_installation_in_a_result_ends_the_step_too(office: Office) -> None:
    done = office.yard.do("research", "Specify it [rehearse:result-leak]")

    assert (done.job.state, done.job.reason) == (State.FAILED, Reason.SCAN_REFUSED)
    _assert_nowhere(office, CANARY)


def _assert_nowhere(office: Office, key: str) -> None:
    for path in office.yard.resources.runs.root.rglob("*"):
        assert not path.is_file() or key.encode() not in path.read_bytes()
    workspace = office.yard.workspace()
    assert not (workspace.path / "refs" / "steps").exists()
    for table in ("job", "agent_executions", "run_step", "run", "event", "attempt"):
        rows = office.yard.shop.rows(f"SELECT to_jsonb(t)::text AS row FROM {table} t")
        assert not any(key in row.row for row in rows)


@pytest.mark.req("S-080")
def test_a_file_with_somebody_s_key_in_it_is_dropped_and_the_rest_is_taken(office: Office) -> None:
    done = office.yard.do("research", "Specify it [rehearse:foreign]")

    assert done.changes() == {"artifacts/research/fine.md": b"fine"}
    assert done.execution.dropped == ["artifacts/research/spec.md: secret"]
    assert done.job.state == "answered"


@pytest.mark.req("S-078", "S-082", "S-021")
def test_no_prompt_holds_a_key_that_somebody_put_into_a_task_or_a_result(office: Office) -> None:
    watched = Watched(run_api)
    office.yard.complete("before", {"status": "complete", "summary": f"Use {CANARY}", "issues": []})
    done = office.yard.do(
        "orchestrator:classify",
        f"Which? {CANARY} [rehearse:classify]",
        depends_on=("before",),
        context=("before",),
        handler=partial(run_step, runners={"api": watched}),
    )

    assert done.job.state == "answered"
    (order,) = watched.orders
    told = [order.prompt, order.instructions, *(data.decode("utf-8", "replace") for data in order.files.values())]
    assert all(CANARY not in text for text in told)
    assert order.prompt.count("[redacted]") == 2


@pytest.mark.req("S-034", "S-039", "S-040", "S-041", "S-052", "S-108", "S-074")
def test_a_step_reads_what_the_steps_before_it_left(office: Office) -> None:
    first = office.yard.do("research", "Specify it [rehearse:research]", key="first")
    workspace, commit = office.yard.workspace(), first.execution.commit
    assert commit is not None
    head = workspace.absorb(office.yard.base, commit, base=office.yard.base, message="m", when=5).head
    office.yard.complete("first-done", dict(first.result), head=head)
    with office.yard.shop.ledger.begin() as session:
        session.get_one(Run, office.yard.run_id).base_commit = office.yard.base
    watched = Watched(Played({".agent-result.json": b'{"status": "complete", "summary": "Seen."}'}))
    done = office.yard.do(
        "architect",
        "Go on",
        key="second",
        depends_on=("first-done",),
        context=("first-done",),
        handler=partial(run_step, runners={"api": watched}),
    )

    assert done.job.state == "answered"
    seen = watched.orders[0].files
    assert seen["artifacts/research/spec.md"] == b"# Spec"
    assert json.loads(seen[".agent-context/steps/first-done/result.json"])["summary"] == "Specified."
    assert seen[".agent-context/steps/first-done/artifacts/research/spec.md"] == b"# Spec"
    assert b"overlaps the menu" in seen[".agent-context/ticket.md"]


@pytest.mark.req("S-025", "S-011", "S-021")
def test_an_agent_s_time_is_its_own_and_ends_it_in_the_middle_of_a_reply(office: Office) -> None:
    policy = office.yard.resources.policy
    hasty = policy.agents["research"].model_copy(update={"soft_seconds": 2.0})
    agents = {**policy.agents, "research": hasty}
    own = policy.model_copy(update={"agents": agents})
    office.yard.resources = Resources(**{**vars(office.yard.resources), "policy": own})

    done = office.yard.do("research", "Specify it [rehearse:dawdles]")

    assert (done.job.state, done.job.reason) == (State.TIMED_OUT, Reason.TIME_LIMIT)
    (call,) = office.calls()
    assert call.output_tokens < 1000


@pytest.mark.req("S-040", "S-042")
def test_every_step_sees_one_workspace_in_which_the_places_to_talk_are_there(office: Office) -> None:
    watched = Watched(Played({".agent-result.json": b'{"status": "complete", "summary": "Seen."}'}))
    for key in ("one", "two"):
        office.yard.do("research", "Look", key=key, handler=partial(run_step, runners={"api": watched}))
    first, second = (order.files for order in watched.orders)

    assert {path: data for path, data in first.items() if not path.startswith(".agent-context/")} == {
        path: data for path, data in second.items() if not path.startswith(".agent-context/")
    }
    assert "artifacts/handoff/README.md" in first
    assert first["src/app.js"] == b"export const total = (a, b) => a + b;\n"


@pytest.mark.req(
    "P-039",
    "P-040",
    "P-041",
    "P-042",
    "P-043",
    "P-044",
    "P-045",
    "P-046",
    "P-047",
    "P-048",
    "P-049",
    "P-050",
    "P-051",
    "P-052",
)
@pytest.mark.req("P-004", "S-019", "S-024", "S-032", "S-048", "S-063", "S-077", "S-073", "S-074")
def test_a_step_is_done_with_the_model_the_budget_and_the_context_that_its_run_decided(office: Office) -> None:
    policy = office.yard.resources.policy
    small = policy.model_copy(update={"runs": policy.runs.model_copy(update={"context_bytes": 3000})})
    office.yard.resources = Resources(**{**vars(office.yard.resources), "policy": small})
    office.yard.complete("before", {"status": "complete", "summary": "s" * 4000, "issues": []})
    watched = Watched(Played({".agent-result.json": b'{"status": "complete", "summary": "Seen."}'}))
    model = next(name for name in policy.prices if name != policy.agents["research"].model)
    office.yard.do(
        "research",
        "Look",
        context=("before",),
        depends_on=("before",),
        start={"model": model, "cap_nanousd": 70_000_000},
        handler=partial(run_step, runners={"api": watched}),
    )

    (order,) = watched.orders
    assert (order.model, order.cap_usd) == (model, 0.07)
    staged = {path: data for path, data in order.files.items() if path.startswith(".agent-context/")}
    assert sum(len(data) for path, data in staged.items() if not path.endswith("index.md")) <= 3000


@pytest.mark.req("S-047", "S-050", "P-058", "S-049")
def test_a_step_that_would_write_where_its_plan_does_not_let_it_is_kept_to_its_plan(office: Office) -> None:
    files = {
        "artifacts/research/mine/a.md": b"a",
        "artifacts/research/other.md": b"b",
        "artifacts/handoff/qa-to-security.md": b"d",
        "src/app.js": b"c",
        ".agent-result.json": b'{"status": "complete", "summary": "Done."}',
    }
    done = office.yard.do(
        "research",
        "Look",
        writes=("artifacts/research/mine/", "artifacts/handoff/", "src/"),
        handler=partial(run_step, runners={"api": Played(files)}),
    )

    assert done.changes() == {"artifacts/research/mine/a.md": b"a"}
    assert done.execution.dropped == [
        "artifacts/handoff/qa-to-security.md: not_allowed",
        "artifacts/research/other.md: not_allowed",
        "src/app.js: not_allowed",
    ]


@pytest.mark.req("S-071", "S-073")
def test_what_a_step_may_write_is_what_its_project_says_where_it_says_something(office: Office) -> None:
    yard = office.yard
    text = f'repo: {{url: "file://{yard.bare}"}}\nstack: {{language: typescript}}\nwrites: {{styling: [theme/]}}\n'
    Projects(yard.shop.ledger, yard.resources.policy).put("acme", "shop", text, source="p", actor="operator")
    files = {"theme/a.txt": b"a", "styles/b.txt": b"b", ".agent-result.json": b'{"status": "complete", "summary": "s"}'}
    done = yard.do("styling", "Paint it", handler=partial(run_step, runners={"claude_code": Played(files)}))

    assert done.changes() == {"theme/a.txt": b"a"}
    assert done.execution.dropped == ["styles/b.txt: not_allowed"]


@pytest.mark.req("S-032")
def test_a_step_of_an_agent_that_there_is_not_fails_and_nobody_does_it_instead(office: Office) -> None:
    watched = Watched(Played({".agent-result.json": b'{"status": "complete", "summary": "Done."}'}))
    done = office.yard.do(
        "stranger", "Look", handler=partial(run_step, runners={"api": watched, "claude_code": watched})
    )

    assert (done.job.reason, done.job.detail) == (Reason.NOT_AVAILABLE, "there is no agent stranger")
    assert watched.orders == []


def test_what_was_written_when_time_ran_out_is_kept_for_people_and_not_for_the_run(office: Office) -> None:
    failed = Failed(State.TIMED_OUT, Reason.TIME_LIMIT, "its time was over")
    played = Played({"artifacts/research/a.md": b"half"}, failed=failed)
    done = office.yard.do("research", "Look", handler=partial(run_step, runners={"api": played}))

    assert (done.job.state, done.execution.status, done.execution.commit) == ("timed_out", "failed", None)
    assert "refs/steps/step/1" in (done.job.detail or "")
    kept = (office.yard.workspace().path / "refs/steps/step/1").read_text().strip()
    assert office.yard.workspace().changes(office.yard.base, kept) == {"artifacts/research/a.md": b"half"}


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (None, "left no .agent-result.json"),
        (b"{", "not valid"),
        (b'{"status": "complete"}', "summary"),
        (b'{"status": "complete", "summary": "' + b"x" * 70_000 + b'"}', "more than 65536 bytes"),
    ],
)
@pytest.mark.req("S-051")
def test_a_result_that_is_missing_or_invalid_fails_the_step(office: Office, result: bytes | None, says: str) -> None:
    done = office.yard.do(
        "research", "Look", handler=partial(run_step, runners={"api": Played({".agent-result.json": result})})
    )

    assert (done.job.state, done.job.reason) == ("failed", "agent_failed")
    assert says in (done.job.detail or "")


@pytest.mark.req("S-044")
def test_every_artifact_that_a_result_names_is_there_and_others_are_reported(office: Office) -> None:
    result = {"status": "complete", "summary": "Done.", "artifacts": ["artifacts/research/a.md", "artifacts/gone.md"]}
    files = {"artifacts/research/a.md": b"a", ".agent-result.json": json.dumps(result).encode()}
    done = office.yard.do("research", "Look", handler=partial(run_step, runners={"api": Played(files)}))

    commit = done.execution.commit
    assert commit is not None
    assert done.result["artifacts"] == ["artifacts/research/a.md"]
    assert set(done.result["artifacts"]) <= done.workspace.read(commit).files.keys()
    assert done.execution.dropped == ["artifacts/gone.md: named as an artifact, and not there"]


def test_too_much_output_ends_the_step(office: Office) -> None:
    limit = 100_000  # the platform's 20 MiB take as many seconds to write and hash
    policy = office.yard.resources.policy
    limits = policy.queues[QueueName.STEPS].model_copy(update={"output_bytes": limit})
    lower = policy.model_copy(update={"queues": {**policy.queues, QueueName.STEPS: limits}})
    office.yard.resources = replace(office.yard.resources, policy=lower)
    files = {
        "artifacts/research/big.md": b"x" * (limit + 1),
        ".agent-result.json": b'{"status": "complete", "summary": "Done."}',
    }
    done = office.yard.do("research", "Look", handler=partial(run_step, runners={"api": Played(files)}))
    assert (done.job.state, done.job.reason) == ("output_exceeded", "output_cap")
    assert str(limit) in str(done.job.detail)


def test_a_repository_that_cannot_be_had_ends_the_step_with_the_reason(office: Office) -> None:
    shutil.rmtree(office.yard.bare)
    done = office.yard.do("research", "Look [rehearse:research]")
    assert (done.job.state, done.job.reason) == ("failed", "remote_unreachable")


def test_codex_is_charged_its_whole_cap_on_the_run_s_bill(office: Office) -> None:
    handler = partial(run_step, runners={"api": ChargesWhole()})
    done = office.yard.do("research", "Look", handler=handler)

    assert done.job.state == "answered"
    (call,) = office.yard.shop.rows("SELECT provider, state, cost_nanousd, reserved_nanousd FROM call")
    assert (call.provider, call.state, call.cost_nanousd) == ("codex_local", "presumed", 15_000_000_000)
    spent = office.yard.shop.rows("SELECT scope, spent_nanousd, reserved_nanousd FROM cap")
    assert {(row.spent_nanousd, row.reserved_nanousd) for row in spent} == {(15_000_000_000, 0)}
    again = office.yard.do("research", "Look", key="again", handler=handler)
    assert (again.job.state, again.job.detail) == ("failed", "job")
    assert office.yard.shop.scalar("SELECT count(*) FROM call") == 1


def test_codex_waits_while_nobody_knows_what_the_fleet_has_left(office: Office) -> None:
    cells = CellsConfig(directory_url=SecretStr("postgresql://x@127.0.0.1:1/x"), name="east")
    office.yard.resources = replace(office.yard.resources, fleet=FleetBudget(cells))
    done = office.yard.do("research", "Look", handler=partial(run_step, runners={"api": ChargesWhole()}))
    assert done.job.state == "queued"
    assert office.yard.shop.rows("SELECT outcome, reason FROM attempt") == [("deferred", "gateway_unreachable")]
    assert office.yard.shop.scalar("SELECT count(*) FROM call") == 0


class ChargesWhole:
    """A runner whose calls nobody meters."""

    def __call__(self, order: AgentOrder, attempt: Attempt) -> AgentRun:
        exceeded = attempt.charge_unmetered(15_000_000_000, order.model)
        failed = Failed(State.FAILED, Reason.AGENT_FAILED, exceeded.scope) if exceeded else None
        result = {".agent-result.json": b'{"status": "complete", "summary": "Done."}'}
        return AgentRun({**order.files, **result}, failed)
