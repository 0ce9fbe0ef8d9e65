"""Bad input at the HTTP API: field and rule are named, nothing is enqueued, nothing is written but the refusal."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select
from sqlmodel import col

from ledger.record_tables import AuditRow, Event
from routing.errors import FieldError, InvalidJobError
from routing.jobs import Source
from tests.integration.api.http_world import PAGES, World, problem_of, shared_ledger, shared_world

__all__ = ["shared_ledger", "shared_world", "world"]


@pytest.fixture(scope="module")
def world(shared_world: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A refusal leaves nothing behind but itself, so all of these share one ledger with one site."""
    shared_world.site("bakery", PAGES, tmp_path_factory.mktemp("site"))
    shared_world.headers()
    return shared_world


SECRET = "hunter2-do-not-repeat"
EDIT: dict[str, Any] = {"prompt": "Change the headline to 'Fresh bread'", "site": "bakery"}

FIELD_CASES: dict[str, tuple[Any, str, str]] = {  # the rules of fields: tests/unit/routing/test_jobs.py
    "blank prompt": ({"prompt": " \n\t", "site": "bakery"}, "prompt", "must not be empty"),
    "no prompt": ({"site": "bakery"}, "prompt", "is required"),
    "32 KiB and one byte in UTF-8": ({"prompt": "ü" * (16 * 1024) + "x"}, "prompt", "32768 bytes"),
    "prompt of a wrong type": ({"prompt": [SECRET]}, "prompt", "string"),
    "prompt with NUL": ({"prompt": f"a\x00{SECRET}"}, "prompt", "Unicode"),
    "prompt with half a surrogate pair": ({"prompt": f"\ud800{SECRET}"}, "prompt", "Unicode"),
    "unknown site": ({"prompt": "Change the title", "site": SECRET}, "site", "no site of this name"),
    "unknown project": ({"prompt": "Fix the build", "project": SECRET}, "project", "no project of this name"),
    "action without a target": (
        {"prompt": "Change the headline to 'Fresh bread'", "tier": "spec"},
        "site",
        "needs one of",
    ),
    "new site of a name that is taken": ({"prompt": "A site for a bakery", "new_site": "bakery"}, "new_site", "exists"),
    "two options with one id": ({**EDIT, "options": [{"id": "a", "label": "b"}] * 2}, "options", "the same id"),
    "unknown field": ({**EDIT, "colour": SECRET}, "colour", "not a field"),
    "tenant from the body": ({**EDIT, "tenant": "somebody-else"}, "tenant", "not a field"),
    "wrong tier": ({**EDIT, "tier": SECRET}, "tier", "'spec', 'patch' or 'agent'"),
    "two targets": ({**EDIT, "new_site": "other"}, "body", "only one of"),
    "huge budget": ({**EDIT, "budget_usd": 1e308}, "budget_usd", "less than or equal to 25"),
    "callback to a private address": ({**EDIT, "callback_url": "http://[fec0::1]/"}, "callback_url", "not public"),
    "callback with a password": ({**EDIT, "callback_url": f"https://a:{SECRET}@b.example/"}, "callback_url", "credent"),
    "option with NUL": ({**EDIT, "options": [{"id": "a", "label": "\x00"}]}, "options.0.label", "Unicode"),
    "option of a wrong type": ({**EDIT, "options": [SECRET]}, "options.0", "object"),
    "field name with half a surrogate pair": ({**EDIT, "\ud800": 1}, "body", ""),
    "a list": ([EDIT], "body", "JSON object"),
    "null": (None, "body", "JSON object"),
}
PATH_TRICKS = ("..", "a/b", "a\\b", "%2e%2e", "bakery\x00", "BAKERY", "bäckerei", "\u202ebakery", "b" * 64, "")
BROKEN: dict[str, bytes] = {  # what else is no JSON: tests/unit/producers/api/test_requests.py
    "nothing": b"",
    "cut off": b'{"prompt": "' + SECRET.encode(),
    "a field twice": b'{"prompt": "x", "prompt": "y"}',
    "UTF-16": '{"prompt": "x"}'.encode("utf-16"),
    "too deep": b"[" * 30_000 + b"]" * 30_000,
    "a form": b"prompt=x&site=bakery",
}


def send(world: World, body: Any, **arguments: Any) -> Any:
    return world.call("POST", "/v1/jobs", content=json.dumps(body).encode(), **arguments)


def assert_only_refused(world: World, before: dict[str, int]) -> None:
    """Nothing was enqueued, and the refusal is all that was written: one event, one audit row, no value in either."""
    after = world.counts()
    changed = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert changed == {"event": 1, "audit": 1}
    with world.ledger.begin() as session:
        event = session.scalars(select(Event).order_by(col(Event.id).desc()).limit(1)).one()
        row = session.scalars(select(AuditRow).order_by(col(AuditRow.seq).desc()).limit(1)).one()
    assert (event.kind, event.data["source"]) == ("refused", "http")
    assert (row.action, row.tenant, row.prompt) == ("job_refused", world.tenant, None)
    assert row.actor.startswith(f"key:{world.tenant}/")
    assert SECRET not in json.dumps([event.data, row.detail])


@pytest.mark.parametrize("case", FIELD_CASES)
def test_a_bad_field_is_named_with_its_rule_and_nothing_is_enqueued(world: World, case: str) -> None:
    body, field, rule = FIELD_CASES[case]
    before = world.counts()
    answer = send(world, body)
    assert answer.status_code == 422, answer.text
    errors = problem_of(answer)["errors"]
    assert field in [error["field"] for error in errors]
    assert rule in next(error["rule"] for error in errors if error["field"] == field)
    assert SECRET not in answer.text
    assert_only_refused(world, before)


@pytest.mark.parametrize("host", ["10.0.0.1", "127.1", "localhost", "[fec0::1]", "[64:ff9b:1::a00:1]"])
def test_a_project_whose_remote_has_an_address_that_is_not_public_is_refused(world: World, host: str) -> None:
    file = f"repo: {{url: 'https://{host}/a/shop.git'}}\nstack: {{language: typescript}}\nkeys: {{anthropic: acme}}\n"
    answer = world.call("POST", "/v1/projects", json={"name": "shop", "file": file})
    assert answer.status_code == 422, answer.text
    (error,) = problem_of(answer)["errors"]
    assert error == {"field": "file", "rule": "repo.url: must not lead to an address that is not public"}
    assert world.call("GET", "/v1/projects").json() == []


@pytest.mark.parametrize("name", PATH_TRICKS)
@pytest.mark.parametrize("field", ["site", "new_site"])
def test_a_path_trick_in_a_sites_name_is_refused_by_the_rule_for_names(world: World, field: str, name: str) -> None:
    before = world.counts()
    answer = send(world, {"prompt": "Change the headline", field: name})
    assert answer.status_code == 422
    (error,) = problem_of(answer)["errors"]
    assert error["field"] == field
    assert "a-z, 0-9 and hyphen" in error["rule"]
    assert_only_refused(world, before)
    assert {path.name for path in world.den_root.iterdir()} == {"blobs", "ledger", "sites"}
    assert [path.name for path in (world.den_root / "sites").iterdir()] == [f"{world.tenant}_bakery"]


@pytest.mark.parametrize("case", BROKEN)
def test_broken_json_is_400_and_refused_on_record(world: World, case: str) -> None:
    before = world.counts()
    answer = world.call("POST", "/v1/jobs", content=BROKEN[case])
    assert answer.status_code == 400, answer.text
    (error,) = problem_of(answer)["errors"]
    assert error["field"] == "body"
    assert SECRET not in answer.text
    assert_only_refused(world, before)


@pytest.mark.parametrize("size", [66_000, 300_000])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_over_64_kib_is_413(world: World, *, is_chunked: bool, size: int) -> None:
    before = world.counts()
    body = json.dumps({"prompt": "x" * size}).encode()
    content: Any = iter([body[:40_000], body[40_000:]]) if is_chunked else body
    answer = world.call("POST", "/v1/jobs", content=content)
    assert answer.status_code == 413
    assert problem_of(answer)["errors"] == [{"field": "body", "rule": "must not be longer than 64 KiB"}]
    assert {name for name, count in world.counts().items() if count != before[name]} <= {"event", "audit"}


@pytest.mark.parametrize("letter", ["x", "ü", "\u0001", "🍞"])
def test_a_prompt_of_exactly_32_kib_is_accepted_however_it_is_escaped(world: World, letter: str) -> None:
    start = "Change the headline to "
    room = 32 * 1024 - len(start)
    prompt = start + letter * (room // len(letter.encode())) + "x" * (room % len(letter.encode()))
    assert send(world, {"prompt": prompt, "site": "bakery"}).status_code == 202


def test_an_idempotency_key_that_differs_between_header_and_body_is_refused(world: World) -> None:
    before = world.counts()
    answer = send(world, {"prompt": "What is this?", "idempotency_key": SECRET}, headers={"Idempotency-Key": "other"})
    assert answer.status_code == 422
    (error,) = problem_of(answer)["errors"]
    assert (error["field"], "differs" in error["rule"]) == ("idempotency_key", True)
    assert SECRET not in answer.text
    assert_only_refused(world, before)


def test_several_bad_fields_are_all_named(world: World) -> None:
    answer = send(world, {"prompt": "", "tier": "x", "nope": 1})
    assert {error["field"] for error in problem_of(answer)["errors"]} == {"prompt", "tier", "nope"}


def test_without_a_key_not_even_the_refusal_is_written(world: World) -> None:
    before = world.counts()
    for body in (b"{", b'{"prompt": ""}', b'{"prompt": "What is this?"}'):
        assert world.client.post("/v1/jobs", content=body).status_code == 401
    assert world.counts() == before


def test_a_celery_client_reads_by_its_task_id_why_its_message_without_a_tenant_became_no_job(world: World) -> None:
    task_id = uuid4()
    refusal = InvalidJobError((FieldError("tenant", "is missing"),))
    world.resources.submitter.record_refusal(refusal, tenant="", source=Source.CELERY, job_id=task_id)
    answer = world.call("GET", f"/v1/jobs/{task_id}")
    assert answer.status_code == 422
    assert "tenant: is missing" in problem_of(answer)["detail"]
    assert world.call("GET", f"/v1/jobs/{uuid4()}").status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": "../x"}, "name"),
        ({"name": "a\x00"}, "name"),
        ({"name": 7}, "name"),
        ({"name": "ok", "profile": SECRET}, "profile"),
        ({"name": "ok", "more": 1}, "more"),
        ([], "body"),
    ],
)
def test_a_site_that_cannot_be_made_is_refused_by_name(world: World, body: Any, field: str) -> None:
    before = world.counts()
    answer = world.call("POST", "/v1/sites", content=json.dumps(body).encode())
    assert answer.status_code == 422
    assert [error["field"] for error in problem_of(answer)["errors"]] == [field]
    assert SECRET not in answer.text
    assert world.counts() == before


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/jobs/", "/nope", "/v1/jobs/x/y/z", "/v1//jobs"])
def test_a_path_that_is_not_there_is_a_404_problem(world: World, path: str) -> None:
    told = problem_of(world.call("GET", path))
    assert (told["status"], told["detail"]) == (404, "there is nothing here")


def test_what_is_no_id_is_a_404_that_says_so_and_a_query_s_rule_reads_as_a_body_s(world: World) -> None:
    told = problem_of(world.call("GET", "/v1/jobs/xyz"))
    assert (told["status"], told["detail"]) == (404, "there is nothing here: job_id must be a UUID")
    (error,) = problem_of(world.call("GET", "/v1/jobs?limit=0"))["errors"]
    assert error["rule"].startswith("input should be greater")
