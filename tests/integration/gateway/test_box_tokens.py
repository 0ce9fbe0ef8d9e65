"""What an attempt's token is worth once its box is gone: nothing, even where a build finds it in a file."""

import json
from pathlib import Path

import pytest

from tests.integration.jobs.test_agent_jobs import edit, maker
from tests.integration.jobs.test_patch_jobs import plain_site
from tests.integration.jobs.test_spec_jobs import Rig, rig, servers
from tests.played_cli import PlayedMaker

__all__ = ["maker", "rig", "servers"]  # fixtures

PACKAGE = json.dumps({"name": "x", "private": True, "scripts": {"build": "make"}})
LEAVES_TOKEN = f"""
init()
status, _ = call()
write("found.json", json.dumps({{
    "url": os.environ["ANTHROPIC_BASE_URL"], "token": os.environ["ANTHROPIC_AUTH_TOKEN"], "model": MODEL,
    "in_session": status,
}}))
write("package.json", {PACKAGE!r})
result()
"""
TRIES_TOKEN = """
import json, pathlib, urllib.error, urllib.request

found = json.loads(pathlib.Path("found.json").read_text())
body = {"model": found["model"], "max_tokens": 1024, "messages": [{"role": "user", "content": "x"}]}
headers = {"authorization": "Bearer " + found.pop("token"), "content-type": "application/json"}
request = urllib.request.Request(found["url"] + "/v1/messages", json.dumps(body).encode(), headers)
try:
    status, said = urllib.request.urlopen(request).status, None
except urllib.error.HTTPError as error:
    status, said = error.code, json.load(error)["error"]["details"]["error_code"]
pathlib.Path("found.json").write_text(json.dumps({**found, "in_build": status, "said": said}))
pathlib.Path("dist").mkdir(exist_ok=True)
pathlib.Path("dist/index.html").write_text("<!doctype html><html lang=en><title>x</title><h1>x</h1></html>")
"""


@pytest.mark.threat("C2")
def test_a_build_that_finds_the_sessions_token_can_call_no_model(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    maker.program("claude", LEAVES_TOKEN)
    maker.program("npm", TRIES_TOKEN)
    job = edit(rig, plain_site(rig, tmp_path), maker)
    assert (job.state, job.detail) == ("awaiting_approval", None)
    found = json.loads(rig.files(job.release_id)["found.json"])
    assert (found["in_session"], found["in_build"], found["said"]) == (200, 401, "unknown_token")
    assert {box.egress.address for box in maker.boxes} == {"127.0.0.1"}
    assert rig.shop.rows("SELECT status FROM call WHERE job_id = :id", id=job.id) == [(200,)]


@pytest.mark.threat("C2")
def test_no_box_is_destroyed_before_its_token_is_ended(rig: Rig, maker: PlayedMaker, tmp_path: Path) -> None:
    seen: list[tuple[str | None, int]] = []

    class Watched(PlayedMaker):
        def acquire(self):  # type: ignore[no-untyped-def]
            box = super().acquire()
            close = box.close

            def closing() -> None:
                seen.extend(
                    rig.shop.rows(
                        "SELECT egress_address, count(*) FROM attempt WHERE ended_at IS NULL GROUP BY egress_address"
                    )
                )
                close()

            box.close = closing  # type: ignore[method-assign]
            return box

    watched = Watched(maker.home, gateway_port=maker.spec.gateway.port)
    watched.program("claude", "init()\nsys.exit(3)")
    job = edit(rig, plain_site(rig, tmp_path), watched)
    assert job.state == "failed"
    assert seen == [(None, 1)]
