"""Keys that people write into requests: what is kept and shown of them, and what is not."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlmodel import SQLModel

from monitoring.logs import configure_logging
from producers.use_cases.tenants import hash_secret
from routing.jobs import Reason, State
from tests.integration.api.http_world import PAGES, World, shared_ledger, world

__all__ = ["shared_ledger", "world"]

PLANTED = {
    "provider key": "sk-ant-api03-PLANTEDplantedPLANTEDplanted01",
    "API key": "pmk_PLANTEDplantedPLANTEDplantedPLANTEDplanted02",
    "webhook secret": "whsec_PLANTEDplantedPLANTEDplanted03",
    "forge token": "ghp_PLANTEDplantedPLANTEDplanted04abcd",
    "URL's password": "PLANTEDplanted05",
}
TEXT = (
    f"Keys: {PLANTED['provider key']} {PLANTED['API key']} {PLANTED['webhook secret']} {PLANTED['forge token']} "
    f"https://bob:{PLANTED['URL' + chr(39) + 's password']}@example.com/x"
)
ALLOWED = {
    ("job", "prompt"),
    ("job", "request"),  # what is asked for: workers need it as it was written
    ("approval", "reason"),  # what a reviewer says to the owner, in the owner's own ledger row
}


def tables_with_secrets(world: World) -> set[tuple[str, str]]:
    found = set()
    with world.ledger.begin() as session:
        for name, table in SQLModel.metadata.tables.items():
            for column in table.columns:
                query = text(f'SELECT count(*) FROM "{name}" WHERE "{column.name}"::text LIKE :planted')
                if session.scalar(query, {"planted": "%planted0%"}):
                    found.add((name, column.name))
    return found


@pytest.mark.req("S-080")
def test_planted_keys_are_in_no_log_audit_row_event_problem_or_metric(world: World, tmp_path: Path) -> None:
    log = io.StringIO()
    configure_logging(stream=log)
    world.site("bakery", PAGES, tmp_path)
    world.app.state.resources.streams.stop()
    debated = world.submit(prompt=f"Change the headline to 'Fresh bread'. {TEXT}", site="bakery")
    world.finish(debated, State.FAILED, reason=Reason.PROVIDER_ERROR, detail=TEXT)
    job_id = world.submit(prompt=f"Change the headline to '{PLANTED['provider key']}'", site="bakery")
    world.offer(job_id, {**PAGES, "new.html": PAGES["index.html"]})
    world.call("POST", f"/v1/jobs/{job_id}/reject", json={"reason": TEXT}, headers={"X-Any": TEXT})
    world.call("GET", f"/v1/jobs/{job_id}?token={PLANTED['API key']}")
    reject = f"/v1/jobs/{job_id}/reject"
    shown = {
        "unknown field": world.call("POST", "/v1/jobs", json={"prompt": "What?", PLANTED["provider key"]: 1}).text,
        "wrong type": world.call("POST", "/v1/jobs", json={"prompt": 7, "site": TEXT}).text,
        "unknown field of a verdict": world.call("POST", reject, json={"reason": "no", PLANTED["API key"]: 1}).text,
        "events": world.call("GET", f"/v1/jobs/{job_id}/events").text,
        "events as JSON": world.call("GET", f"/v1/jobs/{job_id}/events?format=json&after=0").text,
        "a failed job's events": world.call("GET", f"/v1/jobs/{debated}/events?format=json&after=0").text,
        "dead letters": world.call("GET", "/v1/dead-letters").text,
        "wrong key": world.client.get("/v1/jobs", headers={"X-API-Key": PLANTED["API key"]}).text,
        "metrics": world.client.get("/metrics").text,
        "log": log.getvalue(),
    }
    found = {(place, name) for place, said in shown.items() for name, secret in PLANTED.items() if secret in said}
    assert found == set()
    assert tables_with_secrets(world) <= ALLOWED


def test_of_an_api_key_only_the_hash_is_in_the_ledger(world: World) -> None:
    secret = world.key("read")
    assert world.client.get("/v1/jobs", headers={"X-API-Key": secret}).status_code == 200
    with world.ledger.begin() as session:
        rows = {
            name: json.dumps([list(map(str, row)) for row in session.execute(table.select()).all()])
            for name, table in SQLModel.metadata.tables.items()
        }
    assert not [name for name, content in rows.items() if secret in content or secret.removeprefix("pmk_") in content]
    assert [name for name, content in rows.items() if hash_secret(secret) in content] == ["api_key"]


def test_what_a_ledger_says_that_fails_shows_no_key(world: World, tmp_path: Path) -> None:
    """PostgreSQL quotes the whole row that it refuses, whatever SQLAlchemy hides."""
    log = io.StringIO()
    configure_logging(stream=log)
    world.site("bakery", PAGES, tmp_path)
    asked = {"headers": world.headers(), "json": {"prompt": f"Change the headline. {TEXT}", "site": "bakery"}}
    rule = "ALTER TABLE job {} CONSTRAINT refuse_all {}"
    with world.ledger.begin() as session:
        session.execute(text(rule.format("ADD", "CHECK (false) NOT VALID")))
    try:
        answer = TestClient(world.app, raise_server_exceptions=False).post("/v1/jobs", **asked)
        assert answer.status_code == 500, answer.text
        with pytest.raises(IntegrityError, match="refuse_all") as caught:
            world.client.post("/v1/jobs", **asked)
    finally:
        with world.ledger.begin() as session:
            session.execute(text(rule.format("DROP", "")))
    logging.getLogger("uvicorn.error").error("Exception in ASGI application", exc_info=caught.value)
    assert "refuse_all" in log.getvalue()
    assert not [name for name, secret in PLANTED.items() if secret in answer.text + log.getvalue()]


def test_text_that_cannot_be_stored_is_not_shown(world: World) -> None:
    body = json.dumps({"prompt": TEXT, "session": "\ud800"})  # JSON may name half a character
    answer = world.client.post("/v1/jobs", headers=world.headers(), content=body)
    assert answer.status_code == 422
    assert not [name for name, secret in PLANTED.items() if secret in answer.text]
