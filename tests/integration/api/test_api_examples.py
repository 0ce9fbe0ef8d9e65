"""The OpenAPI document's examples are real: requests that the source takes, and answers that it gave.

`RECORD=1` records the answers anew into producers/api/answers.json.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from jsonschema_rs import validator_for
from sqlalchemy import select
from sqlmodel import col

from ledger.jobs import lock_job
from ledger.runs.run import open_gate
from ledger.runs.specs import NewGate
from ledger.runs.tables import Gate
from ledger.store import Ledger
from routing.jobs import Reason, State
from tests.integration.api.http_world import PAGES, World, open_world, shared_ledger
from tests.integration.api.tenant_world import CLUSTER, furnish
from tests.unit.sites.test_archives import zipped

__all__ = ["shared_ledger"]

ANSWERS = Path(__file__).parents[3] / "producers" / "api" / "answers.json"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)")
_PREVIEW = re.compile(r"http://pages\.testserver/preview/[^/]+/")
WITHOUT_BODY = {
    ("POST", "/v1/imports"),
    ("POST", "/v1/jobs/{job_id}/cancel"),
    ("POST", "/v1/jobs/{job_id}/undo"),
    ("POST", "/v1/jobs/{job_id}/notification/replay"),
    ("POST", "/v1/notices/{notice_id}/replay"),
    ("POST", "/v1/tickets/{tracker}/{tenant}/{project}"),
}
"""An archive; the next four take none; what a tracker sends is the tracker's own to document."""
WITHOUT_ANSWER = {
    ("GET", "/v1/sites/{name}/export"),
    ("GET", "/v1/runs/{job_id}/bundle"),
    ("POST", "/v1/tickets/{tracker}/{tenant}/{project}"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
}
"""A tar archive, a git bundle, trackers' deliveries, and health checks."""


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def validator(document: dict[str, Any], schema: dict[str, Any]) -> Any:
    return validator_for({**schema, "components": document["components"]}, validate_formats=True)


@pytest.fixture(scope="module")
def examined(shared_ledger: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_world(shared_ledger, tmp_path_factory.mktemp("content_store")) as opened:
        yield opened


@pytest.fixture(scope="module")
def document(examined: World) -> dict[str, Any]:
    found: dict[str, Any] = examined.client.get("/openapi.json").json()
    return found


def test_every_body_and_every_answer_has_an_example_that_fits_its_schema(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        if method == "POST" and (method, path) not in WITHOUT_BODY:
            content = operation["requestBody"]["content"]["application/json"]
            examples = [item["value"] for item in content.get("examples", {}).values()] or [content["example"]]
            for example in examples:
                validator(document, content["schema"]).validate(example)
        good = next(code for code in operation["responses"] if code.startswith("2"))
        if (method, path) not in WITHOUT_ANSWER:
            content = operation["responses"][good]["content"]["application/json"]
            validator(document, content["schema"]).validate(content["example"])


def test_what_a_callback_gets_fits_what_the_document_says_of_it(examined: World, document: dict[str, Any]) -> None:
    sent = document["webhooks"]["job.ended"]["post"]["requestBody"]["content"]["application/json"]
    job_id = examined.submit(prompt="What is rye?", callback_url="https://example.com/hooks")
    examined.finish(job_id, State.ANSWERED, answer="A cereal.")
    owed = examined.call("GET", f"/v1/jobs/{job_id}/notification").json()["payload"]
    for payload in (owed, sent["example"]):
        validator(document, sent["schema"]).validate(payload)


def test_each_problem_that_callers_meet_has_an_example_of_its_status_that_fits(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        answers = operation["responses"]
        assert {"4XX", "5XX", "default"}.isdisjoint(answers), "each status is stated"
        for status in (status for status in answers if status >= "400" and status != "408"):
            problems = answers[status]["content"]["application/problem+json"]
            assert problems["examples"], (method, path, status)
            for example in problems["examples"].values():
                validator(document, problems["schema"]).validate(example["value"])
                assert str(example["value"]["status"]) == status
        if operation.get("security"):
            assert {"401", "403", "422", "429", "500", "503"} <= set(answers), (method, path)
    full = document["paths"]["/v1/jobs"]["post"]["responses"]["429"]["content"]["application/problem+json"]
    assert set(full["examples"]) == {"queue_full", "too_many_tries"}


def test_no_example_of_a_body_breaks_a_rule(shared_ledger: Ledger, document: dict[str, Any], tmp_path: Path) -> None:
    with open_world(shared_ledger, tmp_path / "content-store") as world:
        has = furnish(world, tmp_path)
        for method, path, operation in operations(document):
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            examples = [item["value"] for item in content.get("examples", {}).values()] or [content.get("example")]
            for example in examples if content else ():
                own = path.format(job_id=has.answered, gate_id=has.gate, name=has.site)
                answer = world.call(method, own, json=example)
                assert answer.status_code not in (400, 422), (method, path, answer.text)


def test_the_document_states_the_rules_of_names_and_keys(document: dict[str, Any]) -> None:
    job = document["components"]["schemas"]["JobRequest"]["properties"]
    [site, _] = job["site"]["anyOf"]
    for name, is_right in (("bakery", True), ("Bakery", False), ("-x", False), ("x" * 64, False)):
        assert bool(re.search(site["pattern"], name)) == is_right
    assert job["callback_url"]["anyOf"][0]["pattern"] == "^https?://[^\\s]+$"
    for _, path, operation in operations(document):
        for item in operation.get("parameters", ()):
            if item["name"] == "name" and item["in"] == "path":
                assert item["schema"]["pattern"] == site["pattern"], path
            if item["name"] == "idempotency-key":
                assert (item["schema"]["minLength"], item["schema"]["maxLength"]) == (1, 200), path


def test_each_example_of_a_job_is_really_taken(examined: World, document: dict[str, Any], tmp_path: Path) -> None:
    examined.site("bakery", PAGES, tmp_path)
    examples = document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]["examples"]
    assert len(examples) >= 8
    for name, example in examples.items():
        answer = examined.call("POST", "/v1/jobs", json=example["value"])
        assert answer.status_code == 202, (name, answer.text)


@pytest.mark.skipif(os.environ.get("RECORD") != "1", reason="RECORD=1 records the answers of the document anew")
def test_record_the_answers(shared_ledger: Ledger, tmp_path: Path) -> None:
    with open_world(shared_ledger, tmp_path / "content-store") as world:
        world.app.state.resources.streams.stop()
        answers = dict(_answers(world, tmp_path))
        text = json.dumps(answers, indent=1, ensure_ascii=False, sort_keys=True).replace(world.tenant, "acme")
    known: dict[str, str] = {}
    text = _UUID.sub(lambda found: known.setdefault(found[0], str(UUID(int=4 << 76 | 8 << 60 | len(known)))), text)
    text = _TIME.sub("2026-11-20T09:30:00Z", text)
    text = re.sub(r"key:acme/k-[0-9a-f]{8}", "key:acme/backend", text)
    ANSWERS.write_text(_PREVIEW.sub("https://pages.example.com/preview/TOKEN/", text) + "\n")


def _answers(world: World, directory: Path) -> Iterator[tuple[str, Any]]:
    has = furnish(world, directory)
    world.key("read")
    spare = world.call("GET", "/v1/access").json()["keys"][-1]["name"]
    told = world.submit(prompt="What is rye?", callback_url="https://example.com/hooks/pointsman")
    world.finish(told, State.ANSWERED, answer="A cereal, and the bread that is made of it.")
    sick = world.submit(prompt="Change the headline to 'Rye'", site="bakery", callback_url="https://example.com/hooks")
    cut = world.submit(prompt="What is a bagel, in every detail?")
    world.finish(cut, State.BUDGET_EXCEEDED, reason=Reason.COST_CAP, detail="the job's cap of $0.05 is spent")
    steps: list[tuple[str, str, str, dict[str, Any] | bytes | None]] = [
        ("POST", "/v1/jobs", "/v1/jobs", {"prompt": "Change the headline to 'Fresh bread'", "site": "bakery"}),
        (
            "POST",
            "/v1/jobs/batch",
            "/v1/jobs/batch",
            {"jobs": [{"prompt": "Change the headline to 'Fresh rolls'", "site": "bakery"}, {"prompt": ""}]},
        ),
        ("GET", "/v1/jobs", "/v1/jobs?limit=2", None),
        ("GET", "/v1/jobs/{job_id}", f"/v1/jobs/{has.offered}", None),
        ("GET", "/v1/jobs/{job_id}/diff", f"/v1/jobs/{has.offered}/diff", None),
        ("GET", "/v1/jobs/{job_id}/scan", f"/v1/jobs/{has.offered}/scan", None),
        ("GET", "/v1/jobs/{job_id}/events", f"/v1/jobs/{has.answered}/events?format=json", None),
        ("GET", "/v1/jobs/{job_id}/notification", f"/v1/jobs/{told}/notification", None),
        ("POST", "/v1/jobs/{job_id}/notification/replay", f"/v1/jobs/{told}/notification/replay", None),
        ("GET", "/v1/notifications", "/v1/notifications?state=pending", None),
        ("GET", "/v1/access", "/v1/access", None),
        ("POST", "/v1/access/revoke", "/v1/access/revoke", {"key": spare}),
        ("GET", "/v1/notices", "/v1/notices", None),
        ("POST", "/v1/notices/{notice_id}/replay", f"/v1/notices/{has.notice}/replay", None),
        ("GET", "/v1/notice-choice", "/v1/notice-choice", None),
        ("PUT", "/v1/notice-choice", "/v1/notice-choice", {"states": ["awaiting_approval", "clarifying"]}),
        ("GET", "/v1/dead-letters", "/v1/dead-letters", None),
        ("GET", "/v1/dead-letters/{cluster}", f"/v1/dead-letters/{CLUSTER}", None),
        ("POST", "/v1/dead-letters/replay", "/v1/dead-letters/replay", {"ids": [str(has.dead)]}),
        ("POST", "/v1/dead-letters/dismiss", "/v1/dead-letters/dismiss", {"ids": [str(has.dead)]}),
        ("POST", "/v1/jobs/{job_id}/reply", f"/v1/jobs/{has.asking}/reply", {"text": "the bakery"}),
        ("POST", "/v1/jobs/{job_id}/resume", f"/v1/jobs/{cut}/resume", {"budget_usd": 0.25}),
        ("POST", "/v1/jobs/{job_id}/cancel", f"/v1/jobs/{sick}/cancel", None),
        ("POST", "/v1/jobs/{job_id}/revise", f"/v1/jobs/{has.offered}/revise", {"text": "Make the logo smaller"}),
        ("GET", "/v1/sites", "/v1/sites", None),
        ("POST", "/v1/sites", "/v1/sites", {"name": "bike-repair"}),
        ("POST", "/v1/imports", "/v1/imports?name=corner", zipped(PAGES)),
        ("GET", "/v1/sites/{name}/releases", "/v1/sites/bakery/releases", None),
        ("GET", "/v1/sites/{name}/diff", f"/v1/sites/bakery/diff?after={has.release}", None),
        ("GET", "/v1/queues", "/v1/queues", None),
        ("GET", "/v1/projects", "/v1/projects", None),
        (
            "POST",
            "/v1/projects",
            "/v1/projects",
            {
                "name": "web",
                "file": "repo: {url: https://forge.example/acme/web.git}\nstack: {language: typescript}\n"
                "keys: {anthropic: acme}\n",
            },
        ),
        ("POST", "/v1/runs", "/v1/runs", {"project": "shop", "title": "The cart forgets its items", "body": "Reload."}),
        ("GET", "/v1/runs/{job_id}", f"/v1/runs/{has.run}", None),
        ("GET", "/v1/runs/{job_id}/diff", f"/v1/runs/{has.run}/diff", None),
        ("GET", "/v1/gates", "/v1/gates", None),
        ("GET", "/v1/gates/{gate_id}", f"/v1/gates/{has.gate}", None),
        ("POST", "/v1/gates/{gate_id}/pass", f"/v1/gates/{has.gate}/pass", {"reason": "Looks right."}),
        ("POST", "/v1/sites/{name}/revoke-previews", "/v1/sites/bakery/revoke-previews", {}),
    ]
    for method, path, url, body in steps:
        yield f"{method} {path}", _ask(world, method, url, body)
    world.site("cafe", PAGES, directory)
    other = world.submit(prompt="Change the headline to 'Rolls'", site="cafe")
    again = world.submit(prompt="Change the headline to 'Buns'", site="cafe")
    world.offer(other, {**PAGES, "rolls.html": b"<!doctype html><html lang=en><title>Rolls</title></html>"})
    rejected = _ask(world, "POST", f"/v1/jobs/{other}/reject", {"reason": "The logo is too large."})
    yield "POST /v1/jobs/{job_id}/reject", rejected
    world.offer(again, {**PAGES, "buns.html": b"<!doctype html><html lang=en><title>Buns</title></html>"})
    yield "POST /v1/jobs/{job_id}/approve", _ask(world, "POST", f"/v1/jobs/{again}/approve", {"undo_seconds": 60})
    yield "POST /v1/jobs/{job_id}/undo", _ask(world, "POST", f"/v1/jobs/{again}/undo", None)
    _ask(world, "POST", f"/v1/jobs/{again}/approve", {})
    world.publish(again)
    yield "POST /v1/sites/{name}/rollback", _ask(world, "POST", "/v1/sites/cafe/rollback", {})
    for verb, reason in (("rework", "Keep the border."), ("fail", "Not like this.")):
        with world.ledger.begin() as session:
            spec = NewGate(key=f"after-{verb}", kind="rule", reason="A person looks once more.", after=())
            open_gate(session, lock_job(session, has.run), spec, hours=1)
            own = select(col(Gate.id)).where(col(Gate.run_id) == has.run, col(Gate.key) == spec.key)
            gate = session.scalars(own).one()
        yield f"POST /v1/gates/{{gate_id}}/{verb}", _ask(world, "POST", f"/v1/gates/{gate}/{verb}", {"reason": reason})


def _ask(world: World, method: str, url: str, body: dict[str, Any] | bytes | None) -> Any:
    answer = world.call(method, url, **({"content": body} if isinstance(body, bytes) else {"json": body}))
    assert answer.is_success, (method, url, answer.text)
    return answer.json()
