"""Names and limits: nothing may miss, and seed 000's table stands as it is written."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from docs.generate_queues import ROOT, generated
from routing.policy.platform import platform_policy
from routing.queues import MEBIBYTE, QUEUE_OF_TIER, QUEUES, SUBMIT_TASK, Limits, QueueName, Tier, TierName, parse_tier
from workers.tasks import HANDLERS

TABLE = {
    "container": ("none", "build_only", "required"),
    "network": ("none", "registry_allowlist", "registry_allowlist"),
    "shell": ("none", "none", "restricted"),
    "hard_seconds": (30, 60, 300),
    "llm_usd": (0.05, 0.10, 0.50),
    "output_bytes": (2 * MEBIBYTE, 5 * MEBIBYTE, 20 * MEBIBYTE),
    "js_budget": ("publish_profile", "publish_profile", "publish_profile"),
}


@pytest.mark.req("H-088", "H-089", "H-090", "H-091", "H-092", "H-093", "H-094", "H-095", "H-096", "H-097")
@pytest.mark.req("H-098", "H-099", "H-100", "H-101", "H-102", "H-103", "H-104", "H-105", "H-106", "H-107")
@pytest.mark.parametrize("row", TABLE)
def test_the_limits_of_the_three_tiers_are_the_seven_rows_of_seed_000(row: str) -> None:
    assert tuple(getattr(platform_policy().limits_of(tier), row) for tier in Tier) == TABLE[row]


@pytest.mark.req("H-107")
def test_limits_are_frozen_and_have_the_seven_rows_the_soft_limit_and_the_wait_in_the_queue() -> None:
    assert set(Limits.model_fields) == {*TABLE, "soft_seconds", "wait_seconds"}
    with pytest.raises(ValueError, match="frozen"):
        platform_policy().limits_of(Tier.SPEC).llm_usd = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("queue", "soft", "hard", "usd", "size", "container"),
    [
        ("intake", 50, 60, 0.05, 65_536, "none"),
        ("tools", 5, 10, 0, 65_536, "none"),
        ("answer", 50, 60, 0.05, 262_144, "none"),
        ("spec", 25, 30, 0.05, 2 * MEBIBYTE, "none"),
        ("patch", 50, 60, 0.10, 5 * MEBIBYTE, "build_only"),
        ("agent", 280, 300, 0.50, 20 * MEBIBYTE, "required"),
        ("steps", 870, 900, 25, 20 * MEBIBYTE, "per_role"),
        ("control", 25, 30, 0, MEBIBYTE, "none"),
    ],
)
def test_the_limits_of_every_queue_are_the_design_s(
    queue: str, soft: float, hard: float, usd: float, size: int, container: str
) -> None:
    limits = platform_policy().queues[QueueName(queue)]
    assert (limits.soft_seconds, limits.hard_seconds, limits.llm_usd) == (soft, hard, usd)
    assert (limits.output_bytes, limits.container) == (size, container)


def test_a_tier_has_a_queue_of_its_own_and_a_queue_at_most_one_tier() -> None:
    assert set(QUEUE_OF_TIER) == set(Tier)
    assert [QUEUES[queue].tier for queue in QUEUE_OF_TIER.values()] == list(QUEUE_OF_TIER)
    assert sum(queue.tier is not None for queue in QUEUES.values()) == len(Tier)
    assert [parse_tier(name) for name in get_args(TierName)] == list(Tier)


def test_every_queue_but_the_unrouted_one_has_a_task_of_its_own() -> None:
    assert set(QUEUES) == set(QueueName) - {QueueName.UNROUTED}
    tasks = {queue.task for queue in QUEUES.values()}
    assert len(tasks | {SUBMIT_TASK}) == len(QUEUES) + 1
    assert all(task.startswith("pointsman.") for task in tasks)
    assert SUBMIT_TASK == "pointsman.submit"


def test_records_agree_with_the_limits_that_ship() -> None:
    for name, queue in QUEUES.items():
        limits = platform_policy().queues[name]
        assert queue.needs_box == (limits.container != "none")
        assert queue.waits_forever == (limits.wait_seconds is None)
        assert name in QUEUE_OF_TIER.values() or not queue.writes_site


def test_limits_in_nanodollars_are_exact() -> None:
    assert [platform_policy().limits_of(tier).llm_nanousd for tier in Tier] == [50_000_000, 100_000_000, 500_000_000]


# A queue is one record: what derives from it has it, and no other list of queues stands anywhere.

PRODUCT = ("routing", "monitoring", "sandbox", "workers", "producers", "ledger", "sites", "gateway")
MODULES = [path for room in PRODUCT for path in sorted((ROOT / room).rglob("*.py"))]
RECORDS = ROOT / "routing" / "queues.py"
MOST_NAMED_TOGETHER = 2

ADDED_NAME = '    TRANSLATE = "translate"\n'
ADDED_RECORD = """    QueueName.TRANSLATE: Queue(
        work="translations", task="pointsman.translate", writes_site=True, box="on_demand", volumes=("content_store",),
        call="answer", arrivals=0.01, pool=3,
    ),
"""
ADDED_LIMITS = "  translate: {soft_seconds: 40, hard_seconds: 45, llm_usd: 0.05, output_bytes: 65536}\n"

WITH_ONE_MORE = f"""
import sys, types
from pathlib import Path

source = Path({str(RECORDS)!r}).read_text()
source = source.replace('    UNROUTED = "unrouted"\\n', '    UNROUTED = "unrouted"\\n' + {ADDED_NAME!r}, 1)
before, after = source.split("QUEUES: Mapping", 1)
records, rest = after.split("\\n}}\\n", 1)
module = types.ModuleType("routing.queues")
sys.modules["routing.queues"] = module
exec(compile(before + "QUEUES: Mapping" + records + "\\n" + {ADDED_RECORD!r} + "}}\\n" + rest, "queues", "exec"),
     module.__dict__)

from routing.errors import PolicyError
from routing.policy.platform import parse_policy
from routing.queues import QueueName
shipped = Path({str(ROOT / "routing" / "policy" / "platform.yaml")!r}).read_text()
try:
    parse_policy(shipped, source="without limits")
except PolicyError as error:
    assert "translate" in str(error), error
else:
    raise AssertionError("a queue without limits was accepted")
policy = parse_policy(shipped.replace("queues:\\n", "queues:\\n" + {ADDED_LIMITS!r}, 1), source="with limits")

from routing.broker import create_app
from routing.broker import fleet_users
app = create_app("redis://127.0.0.1:1/0")
assert "translate" in [queue.name for queue in app.conf.task_queues]
assert all("~translate" in user.rules for user in fleet_users() if user.name == "pointsman-worker")

from workers.main import ProcessResources, WorkerSettings, parse_arguments
from workers.tasks import HANDLERS, register_tasks
added = QueueName("translate")
register_tasks(app, resources=lambda: None, policy=policy, environment=dict,
               handlers={{**HANDLERS, added: lambda attempt: None}})
task = app.tasks["pointsman.translate"]
assert (task.soft_time_limit, task.time_limit) == (40, 45)
assert parse_arguments(["translate"]).queues == ["translate"]
opened = ProcessResources(WorkerSettings(), policy, worker="one", queues=["translate"])
assert opened._boxes._open_pool == opened._open_pool

from producers.local.embedded import WORKERS
assert "translate" in WORKERS["worker-quick"]

from monitoring.capacity.workload import default_workload
assert default_workload(policy).queues[added].usd > 0
assert added in default_workload(policy).mix

from ledger import dispatch_window
assert added in dispatch_window.WRITING_QUEUES
assert any("('translate')" in str(value) for value in vars(dispatch_window).values())

from monitoring import metrics
assert "translate" in metrics.SERVED and ("none", "translate") in metrics.PLACES
assert ("translate", "warm") in [tuple(zero) for zero in metrics.BOXES_OPENED.zeros]

from producers.diagnosis import judge_workers
assert "translate" in str(judge_workers({{}}))

from typer.testing import CliRunner
from producers.cli import app as cli
refused = CliRunner().invoke(cli, ["queue", "pause", "nonsense"])
assert "translate" in refused.output, refused.output

from docs.generate_queues import generated
made = {{path.name: text for path, text in generated(policy).items()}}
assert 'command: [worker, translate, --concurrency, "${{TRANSLATE_CONCURRENCY:-3}}"]' in made["docker-compose.yml"]
assert "name: pointsman-worker-translate" in made["workers.yaml"]
assert 'pointsman_wanted_slots{{queue_name="translate"}}' in made["scaledobjects.yaml"]
assert "| `translate` | translations |" in made["queues.md"]
"""


@pytest.mark.slow
@pytest.mark.timeout(240)  # it imports the whole product anew
def test_one_record_and_its_limits_are_all_that_a_new_queue_needs_beside_its_handler() -> None:
    done = subprocess.run([sys.executable, "-c", WITH_ONE_MORE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", generated())
def test_what_is_generated_from_the_records_is_what_they_say(path: Path) -> None:
    assert (ROOT / path).read_text() == generated()[path], "run `make docs`"


def test_every_queue_that_workers_serve_has_a_record_and_a_handler() -> None:
    assert set(QUEUES) == set(QueueName) - {QueueName.UNROUTED}
    assert {*HANDLERS, QueueName.INTAKE, QueueName.CONTROL} == set(QUEUES)


def named_together(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of collections that name three queues or more, by their enum or by their plain names."""
    names = {queue.value for queue in QUEUES}
    for node in ast.walk(tree):
        match node:
            case ast.Dict(keys=keys):
                parts: list[ast.expr | None] = [*keys]
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                parts = [*elements]
            case _:
                continue
        by_enum = [part for part in parts if _is_member(part)]
        by_name = {part.value for part in parts if isinstance(part, ast.Constant) and part.value in names}
        if len(by_enum) > MOST_NAMED_TOGETHER or len(by_name - {"spec", "patch", "agent"}) > MOST_NAMED_TOGETHER:
            yield node.lineno


def _is_member(part: ast.expr | None) -> bool:
    if isinstance(part, ast.Attribute) and part.attr == "value":
        part = part.value
    return isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "QueueName"


def may_name_three(text: str) -> bool:
    """Tell the modules that are worth parsing, which are few."""
    names = sum(f'"{queue.value}"' in text or f"'{queue.value}'" in text for queue in QUEUES)
    return names > MOST_NAMED_TOGETHER or text.count("QueueName.") > MOST_NAMED_TOGETHER


def test_nobody_else_lists_queues_by_hand() -> None:
    allowed = {RECORDS, ROOT / "workers" / "tasks.py"}
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in MODULES
        if path not in allowed and may_name_three(text := path.read_text())
        for line in named_together(ast.parse(text))
    ]
    assert not found, "derive it from QUEUES"


@pytest.mark.parametrize(
    "text",
    [
        "a = [QueueName.INTAKE, QueueName.STEPS, QueueName.CONTROL]",
        "a = {QueueName.INTAKE: 1, QueueName.STEPS: 2, QueueName.CONTROL: 3}",
        "a = frozenset({QueueName.PATCH.value, QueueName.AGENT.value, QueueName.STEPS.value})",
        'a = ("intake", "tools", "answer", "control")',
    ],
)
def test_a_list_by_hand_would_be_found(text: str) -> None:
    assert may_name_three(text)
    assert [*named_together(ast.parse(text))] == [1]
