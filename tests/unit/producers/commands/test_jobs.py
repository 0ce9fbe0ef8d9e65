import json
from contextlib import nullcontext
from datetime import UTC, datetime
from importlib import resources
from io import StringIO
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from pointsman_client import Client
from rich.console import Console
from typer import Exit
from typer.testing import CliRunner

from producers.cli import app
from producers.commands import jobs
from producers.commands.jobs import follow, show_progress
from producers.use_cases.jobs import EventView, JobView


def job(**fields: object) -> JobView:
    answers = json.loads(resources.files("producers.api").joinpath("answers.json").read_text("utf-8"))
    return JobView.model_validate(answers["GET /v1/jobs/{job_id}"] | fields)


def test_at_a_terminal_it_shows_how_the_job_stands_while_nothing_happens() -> None:
    said = StringIO()
    with show_progress(Console(file=said, force_terminal=True, width=100), is_shown=True) as tell:
        tell(job(state="running", queue="spec", seconds=12.4))

    assert "running on spec, 12 s, $0.00 of $0.65" in said.getvalue()


def test_where_nobody_looks_nothing_is_drawn() -> None:
    said = StringIO()
    with show_progress(Console(file=said), is_shown=False) as tell:
        tell(job())

    assert said.getvalue() == ""


def test_a_job_that_never_was_on_a_route_has_no_line_for_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "wants_json", lambda: False)  # a command of another test may have set it
    with pytest.raises(Exit):
        jobs.exit_with(job(state="rejected", rule=None, why=None))
    assert "route" not in capsys.readouterr().out


def test_a_list_of_jobs_shows_the_start_of_a_prompt_and_a_submission_all_that_http_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[dict[str, Any]] = []

    class Listed(Client):
        def __init__(self) -> None:
            pass

        def list_jobs(self, **_: Any) -> Any:
            summary = {**dict(job()), "prompt": "word " * 6_000, "spent_usd": "0.00"}
            return SimpleNamespace(jobs=[SimpleNamespace(**summary)])

        def submit_job(self, prompt: str, **fields: Any) -> Any:
            sent.append(fields)
            return job()

        def get_job(self, job_id: UUID) -> Any:
            return job()

    monkeypatch.setattr(jobs, "connected", lambda _: nullcontext(Listed()))
    listed = CliRunner().invoke(app, ["jobs"]).stdout
    assert max(map(len, listed.splitlines())) < 200
    assert listed.rstrip().endswith("…")

    urgent = ["--priority", "P0", "--callback-url", "https://a.example/hook", "--idempotency-key", "order-7"]
    assert CliRunner().invoke(app, ["submit", "Fix it", "--site", "bakery", *urgent]).exit_code == 0
    keys = {"callback_url": "https://a.example/hook", "idempotency_key": "order-7"}
    assert sent == [{"site": "bakery", "priority": "P0", **keys}]


WAITING = {"queue": "spec", "tier": 1}
HELD = WAITING | {"held_for": "provider", "held_seconds": 30.0, "reason": "provider_busy"}
LOCKED = "the site bakery, which is held by job 1 (awaiting_approval)"


class Told(Client):
    """A client to which the API tells one thing after another."""

    def __init__(self, *told: tuple[JobView, list[tuple[str, dict[str, Any]]]]) -> None:
        self.told = iter(told)
        self.events: list[EventView] = []
        self.last_id = 0

    def get_job(self, job_id: UUID) -> JobView:  # type: ignore[override]
        view, events = next(self.told)
        at = datetime.now(UTC)
        self.events = [
            EventView(id=self.last_id + place, at=at, kind=kind, data=data)
            for place, (kind, data) in enumerate(events, 1)
        ]
        self.last_id += len(events)
        return view

    def list_job_events(self, job_id: UUID, *, after: int | None = None, **_: Any) -> list[EventView]:  # type: ignore[override]
        return self.events


def test_whoever_follows_a_job_is_told_what_it_waits_for_as_often_as_that_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jobs, "FIRST_POLL_SECONDS", 0.001)
    client = Told(
        (job(state="queued", waits_for=LOCKED), [("waiting", WAITING)]),
        (job(state="queued", waits_for=LOCKED), []),
        (job(state="queued", waits_for="queue spec, which is paused"), []),
        (job(state="queued", waits_for=None), []),
        (job(state="queued", waits_for="queue spec, which is paused"), [("waiting", HELD)]),
        (job(state="awaiting_approval"), []),
    )
    follow(client, UUID(int=1))
    said = [line.split("  ")[-1] for line in capsys.readouterr().err.splitlines()]
    assert said == [
        "waiting on queue spec",
        f"waits for {LOCKED}",
        "waits for queue spec, which is paused",
        "waiting on queue spec, held 30 s for its provider",
        "waits for queue spec, which is paused",
    ]
