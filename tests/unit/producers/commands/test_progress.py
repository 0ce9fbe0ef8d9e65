import json
from datetime import UTC, datetime
from importlib import resources
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from pointsman_client import Client
from rich.console import Console

from producers.commands import progress
from producers.commands.progress import follow, show_progress
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
    monkeypatch.setattr(progress, "FIRST_POLL_SECONDS", 0.001)
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
