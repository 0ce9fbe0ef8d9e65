import json
from contextlib import nullcontext
from importlib import resources
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from pointsman_client import Client
from typer import Exit
from typer.testing import CliRunner

from producers.cli import app
from producers.commands import jobs
from producers.use_cases.jobs import JobView


def job(**fields: object) -> JobView:
    answers = json.loads(resources.files("producers.api").joinpath("answers.json").read_text("utf-8"))
    return JobView.model_validate(answers["GET /v1/jobs/{job_id}"] | fields)


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
