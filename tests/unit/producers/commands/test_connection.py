"""Ids by their beginning."""

import json
from pathlib import Path
from uuid import UUID

import httpx2
import pytest
import typer
from pointsman_client import Client
from typer.testing import CliRunner

from producers.cli import app
from producers.commands.connection import job_id_of
from tests.unit.test_clients import ACCEPTED, answering

ONE, OTHER, ELSE = (f"{start}-0000-4000-8000-000000000000" for start in ("abcd0001", "abcd0002", "00abcd00"))


def client(*ids: str) -> Client:
    job = dict.fromkeys(("reason", "tier", "site", "project", "ended_at"))
    job |= dict.fromkeys(("source", "queue", "prompt", "spent_usd"), "x")
    jobs = [{**job, "id": one, "state": "queued", "created_at": "2026-01-01T00:00:00Z"} for one in ids]
    page = {"jobs": jobs, "next_cursor": None}
    return Client("http://x", "k", transport=httpx2.MockTransport(lambda _: httpx2.Response(200, json=page)))


def test_a_beginning_means_the_one_job_whose_id_begins_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    known = client(ONE, OTHER, ELSE)  # the API also finds these characters in prompts
    assert job_id_of(known, "ABCD0001") == UUID(ONE)
    assert job_id_of(client(), ELSE) == UUID(ELSE)
    for text, code in (("abcd", 2), ("ffff", 1)):
        with pytest.raises(typer.Exit) as ended:
            job_id_of(known, text)
        assert ended.value.exit_code == code
    said = capsys.readouterr().err
    assert (ONE in said, OTHER in said, ELSE in said) == (True, True, False)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [(["jobs"], 1, "does not fit this client (jobs.0.id: "), (["job", "nope"], 2, "its first or last 4")],
)
def test_an_answer_of_another_version_and_a_wrong_argument_are_one_line_or_one_object(
    tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    with answering(*[(200, {"jobs": [{"id": "x"}], "next_cursor": None}, {})] * 2) as (url, _):
        given = dict.fromkeys(("HOME", "XDG_CONFIG_HOME"), str(tmp_path))
        given |= {"POINTSMAN_URL": url, "POINTSMAN_KEY": "pmk_k"}
        said = CliRunner().invoke(app, arguments, env=given, prog_name="pointsman")
        told = CliRunner().invoke(app, [*arguments, "--json"], env=given, prog_name="pointsman")
    assert (said.exit_code, message in " ".join(said.stderr.split())) == (code, True), said.output
    assert (told.exit_code, told.stdout, message in json.loads(told.stderr)["error"]) == (code, "", True)


def test_what_of_a_large_batch_was_accepted_is_told_although_the_rest_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producers.commands.jobs.MOST_IN_A_BATCH", 1)
    (tmp_path / "jobs.jsonl").write_text('{"prompt": "One"}\n' * 3)
    taken = {"accepted": 1, "refused": 0, "jobs": [{"job": ACCEPTED, "problem": None}]}
    too_large = {"type": "x", "title": "", "status": 413, "detail": "too large"}
    with answering((200, taken, {}), (413, too_large, {})) as (url, asked):
        given = dict.fromkeys(("HOME", "XDG_CONFIG_HOME"), str(tmp_path))
        given |= {"POINTSMAN_URL": url, "POINTSMAN_KEY": "pmk_k"}
        said = CliRunner().invoke(app, ["submit", "--batch", str(tmp_path / "jobs.jsonl")], env=given)
    assert [json.loads(line)["id"] for line in said.stdout.splitlines()] == [ACCEPTED["id"]]
    assert (said.exit_code, len(asked)) == (2, 2)
    assert "too large" in said.stderr
