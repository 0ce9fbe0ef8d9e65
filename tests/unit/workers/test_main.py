"""The worker's command line and its tasks: every queue has one, with that queue's limits."""

import pytest

from routing.broker import create_app
from routing.policy.platform import platform_policy
from routing.queues import QUEUES, QueueName
from workers.config import WorkerConfig
from workers.lifecycle import Resources
from workers.main import main, parse_arguments
from workers.tasks import register_tasks


def never() -> Resources:
    raise AssertionError("resources are opened after the fork, never at registration")


def test_every_queue_has_a_task_with_that_queue_s_limits() -> None:
    app = create_app("redis://127.0.0.1:1/0")
    register_tasks(app, resources=never, policy=platform_policy(), environment=dict)
    for name, queue in QUEUES.items():
        limits = platform_policy().queues[name]
        registered = app.tasks[queue.task]
        assert (registered.soft_time_limit, registered.time_limit) == (limits.soft_seconds, limits.hard_seconds)
        assert registered.acks_late is False


def test_tasks_belong_to_the_application_they_were_registered_with() -> None:
    register_tasks(create_app("redis://127.0.0.1:1/0"), resources=never, policy=platform_policy(), environment=dict)
    other = create_app("redis://127.0.0.1:1/0")
    assert not [name for name in other.tasks if name.startswith("pointsman.")]


@pytest.mark.req("H-097", "H-098", "H-099", "S-011", "S-021")
@pytest.mark.parametrize(("queue", "seconds"), [(QueueName.SPEC, 30), (QueueName.PATCH, 60), (QueueName.AGENT, 300)])
def test_the_hard_limit_of_a_tier_s_task_is_seed_000_s(queue: QueueName, seconds: int) -> None:
    app = create_app("redis://127.0.0.1:1/0")
    register_tasks(app, resources=never, policy=platform_policy(), environment=dict)
    assert app.tasks[QUEUES[queue].task].time_limit == seconds


def test_a_worker_may_serve_several_queues() -> None:
    arguments = parse_arguments(["spec", "tools", "--concurrency", "3"])
    assert (arguments.queues, arguments.concurrency) == (["spec", "tools"], 3)


@pytest.mark.parametrize(
    ("argv", "pool", "concurrency"),
    [
        (["answer", "spec", "patch"], "dense", 50),
        (["spec", "--concurrency", "1000"], "dense", 1000),
        (["spec", "--pool", "prefork"], "prefork", 2),
        (["spec", "tools"], "prefork", 2),
        (["agent"], "prefork", 2),
    ],
)
def test_model_bound_queues_wait_in_threads_unless_told_otherwise(argv: list[str], pool: str, concurrency: int) -> None:
    arguments = parse_arguments(argv)
    assert (arguments.pool, arguments.concurrency) == (pool, concurrency)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["spce"],
        ["unrouted"],
        ["spec", "--concurrency", "x"],
        ["spec", "--pool", "none"],
        ["spec", "--idle-children", "0"],
        ["tools", "--pool", "dense"],
        ["steps", "--pool", "dense"],
    ],
)
def test_a_wrong_command_line_is_refused_as_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse_arguments(argv)
    assert stopped.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_a_misspelt_setting_stops_the_worker_before_it_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POINTSMAN_BROKER__URI", "redis://secretword")
    assert main(["spec"]) == 2
    said = capsys.readouterr().err
    assert "POINTSMAN_BROKER__URI" in said
    assert "secretword" not in said


def test_every_short_queue_ends_within_a_worker_s_grace() -> None:
    grace = WorkerConfig().stop_seconds
    longer = {name for name, limits in platform_policy().queues.items() if limits.hard_seconds > grace}
    assert longer == {QueueName.AGENT, QueueName.STEPS}
