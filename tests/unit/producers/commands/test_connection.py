"""Ids by their beginning."""

from uuid import UUID

import httpx2
import pytest
import typer
from pointsman_client import Client

from producers.commands.connection import job_id_of

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
