import json
from importlib import resources
from io import StringIO

from rich.console import Console

from producers.commands.jobs import show_progress
from producers.use_cases.jobs import JobView


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
