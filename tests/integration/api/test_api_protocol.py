"""What HTTP asks of every route alike: HEAD, `Allow`, caching, no parameter that nobody reads; and the page of docs."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.integration.api.http_world import World, problem_of, shared_ledger
from tests.integration.api.tenant_world import Belongings, furnished

__all__ = ["furnished", "shared_ledger"]


@pytest.fixture(scope="module")
def paths(furnished: tuple[World, Belongings]) -> dict[str, dict[str, Any]]:
    """The operations of each path of the document, with the tenant's own things in place of parameters."""
    world, has = furnished
    own = {"job_id": has.jobs[0], "gate_id": has.gate, "notice_id": has.notice, "name": has.site}
    own |= {"cluster": "0123456789", "tracker": "github", "tenant": world.tenant, "project": has.project}
    document = world.client.get("/openapi.json").json()
    return {path.format(**own): operations for path, operations in document["paths"].items()}


def test_head_answers_as_get_without_the_body(
    furnished: tuple[World, Belongings], paths: dict[str, dict[str, Any]]
) -> None:
    world, _ = furnished
    for path in ["/docs", "/openapi.json", "/console/login", *(path for path in paths if "get" in paths[path])]:
        got, head = world.call("GET", path), world.call("HEAD", path)
        assert (head.status_code, head.content) == (got.status_code, b""), path
        assert set(head.headers) == set(got.headers), path


def test_a_wrong_method_is_told_every_right_one(
    furnished: tuple[World, Belongings], paths: dict[str, dict[str, Any]]
) -> None:
    world, _ = furnished
    for path, operations in paths.items():
        right = {method.upper() for method in operations} | ({"HEAD"} if "get" in operations else set())
        for method in {"GET", "POST", "PUT", "DELETE", "PATCH"} - right:
            answer = world.call(method, path)
            if method == "GET" and answer.status_code == 404:
                continue  # `/jobs/batch` could be a job's page, and is none
            assert problem_of(answer)["status"] == 405, (method, path)
            assert set(answer.headers["allow"].split(", ")) == right, path


def test_nothing_that_the_api_says_may_be_kept(
    furnished: tuple[World, Belongings], paths: dict[str, dict[str, Any]]
) -> None:
    world, _ = furnished
    for path in [*(path for path in paths if path.startswith("/v1")), "/v1/nothing"]:
        for answer in (world.call("GET", path), world.client.get(path)):
            assert answer.headers["cache-control"] == "no-store", path


def test_a_parameter_that_no_route_reads_is_refused(
    furnished: tuple[World, Belongings], paths: dict[str, dict[str, Any]]
) -> None:
    world, has = furnished
    for path, operations in paths.items():
        for method, operation in operations.items():
            if not operation.get("security"):
                continue
            answer = world.call(method.upper(), path, params={"sate": "queued"})
            assert answer.status_code == 422, (method, path)
            [error] = answer.json()["errors"]
            assert (error["field"], "sate" in answer.text) == ("query", False)
            known = [item["name"] for item in operation.get("parameters", ()) if item["in"] == "query"]
            assert all(name in error["rule"] for name in known)
    assert world.call("GET", "/v1/jobs", params={"state": "queued", "site": has.site, "limit": 5}).status_code == 200


def test_the_documentation_runs_its_own_script_alone_and_in_nobody_s_frame(
    furnished: tuple[World, Belongings], tmp_path: Path
) -> None:
    page = furnished[0].client.get("/docs")
    policy = dict(rule.split(" ", 1) for rule in page.headers["content-security-policy"].split("; "))
    assert (policy["default-src"], policy["frame-ancestors"], policy["base-uri"]) == ("'none'",) * 3
    [script] = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert policy["script-src"] == f"'self' 'sha256-{digest}'"
    assert page.headers["x-frame-options"] == "DENY"
    assert not re.search(r'(src|href)="(?!/docs/files/)', page.text), "all that it loads is ours"
