"""Tier 3 whole: the real CLI in a real box, through the real gateway, to a candidate and a published release.

The gateway and the model listen on the engine's host, which has a network of its own; the ledger is reached by its
Unix socket, which is the same everywhere.
"""

import gzip
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import pytest

from ledger.releases import active_release
from ledger.tables import Job, Release, Site
from producers.intake.submit import Requester
from producers.use_cases.rounds import ResumeOrder, Rounds
from producers.use_cases.sites import Sites
from routing.jobs import Source
from routing.queues import QueueName, Tier
from sandbox.docker.engine import Engine, is_outer_network
from sandbox.transcripts import unpack
from sites.releases import manifest_of
from tests.box.ground import open_resources, start_gateway
from tests.engine import TestEngine
from tests.factories import Shop
from tests.services import Postgres
from tests.well import well_gateway
from workers.handlers.agent import edit_with_agent
from workers.handlers.publish import run_control
from workers.lifecycle import Resources, run_attempt

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

GATEWAY_PORT = 8096
MODEL_PORT = 8097
DOES_HALF = "printf '<p>half' >> half.html; printf %s sk-ant-api03 -of-the-tests-0123456789abcdef"
SEEN = b"sk-ant-api03-of-the-tests-0123456789abcdef"
CANARY = "sk-ant-canary-of-the-session-0123456789abcdef"
PAGE = b"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Cafe</title><link rel="stylesheet" href="site.css"></head>
<body>
<main>
  <h1>Welcome</h1>
  <section id="menu"><h2>Menu</h2><p>Coffee and cake.</p></section>
  <section id="contact"><h2>Contact</h2><p>Call us.</p></section>
</main>
</body>
</html>
"""
SCENARIO = """
rules:
  - name: looks-around
    when: {tag: shell, turn: 1, tools: [Bash]}
    say:
      - tool: Bash
        input:
          command: >-
            env; cat /proc/*/environ; curl http://203.0.113.7/; echo "curl $?"; /usr/bin/wget -h; echo "wget $?";
            sh -c "ssh -V"; echo "ssh $?"; printf '<p>By hand' > shell.html; echo "written $?"
  - name: goes-on
    when: {tag: half, prompt: Go on where you stopped}
    say:
      - text: "I went on after {{ results | length }} use: {{ results[0].input.command }}: {{ results[0].text }}"
  - name: begins-afresh
    when: {tag: half, prompt: do not begin anew}
    say:
      - text: I began afresh.
  - name: does-half
    when: {tag: half, turn: 1, tools: [Bash]}
    say:
      - tool: Bash
        input:
          command: printf '<p>half' >> half.html; printf %s sk-ant-api03 -of-the-tests-0123456789abcdef
  - name: makes-a-build
    when: {tag: build, turn: 1, tools: [Write]}
    say:
      - tool: Write
        input:
          file_path: package.json
          content: '{"name": "cafe", "private": true, "scripts": {"build": "node build.mjs"}}'
      - tool: Write
        input:
          file_path: build.mjs
          content: |
            import fs from "node:fs";
            fs.mkdirSync("dist");
            fs.copyFileSync("index.html", "dist/index.html");
            fs.writeFileSync("dist/site.css", "h1 { color: " + "teal; }");
  - name: is-done
    when: {tag: build, tool_result: true}
    say:
      - text: I added a build.
"""
STYLE = b"body { color: #222222; }\n"


@dataclass
class Yard:
    """An installation around an engine."""

    shop: Shop
    resources: Resources
    engine: Engine

    def edit(self, prompt: str, folder: Path, **fields: object) -> Job:
        self.shop.clear()
        self.shop.tenant(provider="fake")
        (folder / "index.html").write_bytes(PAGE)
        (folder / "site.css").write_bytes(STYLE)
        Sites(self.shop.ledger, self.resources.content_store, self.shop.policy).import_site("acme", "cafe", folder)
        site = self.shop.scalar("SELECT id FROM site WHERE name = 'cafe'")
        return self.work(self.shop.accept(prompt=prompt, site_id=site, tier=Tier.AGENT, **fields))

    def work(self, job_id: UUID) -> Job:
        run_attempt(self.shop.message(job_id), QueueName.AGENT, edit_with_agent, self.resources)
        return self.shop.job(job_id)

    def resume(self, job: Job) -> Job:
        requester = Requester(tenant="acme", source=Source.PYTHON, actor="owner")
        order = ResumeOrder(budget_usd=0.4)
        return self.work(Rounds(self.shop.ledger, self.shop.policy).resume(job.id, order, requester=requester).job.id)

    def news(self, job: Job) -> list[str]:
        found = "SELECT data ->> 'text' FROM event WHERE job_id = :id AND data ->> 'text' LIKE 'the earlier session%'"
        return [said for (said,) in self.shop.rows(found, id=job.id)]

    def files(self, job: Job) -> dict[str, bytes]:
        release: Release = self.shop.find(Release, job.release_id)
        return self.resources.content_store.read_tree(manifest_of(release))

    def shown(self, site_id: UUID | None) -> dict[str, bytes]:
        with self.shop.ledger.begin() as session:
            release = active_release(session, session.get_one(Site, site_id))
            assert release is not None
            return self.resources.content_store.read_tree(manifest_of(release))


@pytest.fixture(scope="module")
def yard(daemon: TestEngine, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    home = tmp_path_factory.mktemp("session")
    with ExitStack() as stack:
        url = stack.enter_context(postgres.database())
        start_gateway(
            stack, daemon, home, url, port=GATEWAY_PORT, model_port=MODEL_PORT, canary=CANARY, scenario=SCENARIO
        )
        config = daemon.config(gateway_port=GATEWAY_PORT, mirror_port=0, memory_mib=1536, processes=256, warm=0)
        gateway_url = stack.enter_context(well_gateway())
        shop, resources = open_resources(stack, home, url, config, gateway_url=gateway_url, canary=CANARY)
        engine = daemon.open()
        stack.callback(engine.close)
        yield Yard(shop, resources, engine)


@pytest.mark.req("H-038", "H-079")
def test_a_site_becomes_many_pages_with_a_shared_navigation(yard: Yard, tmp_path: Path) -> None:
    job = yard.edit("Convert to a multi-page site with shared nav", tmp_path)

    assert (job.state, job.detail) == ("awaiting_approval", None)
    assert yard.shown(job.site_id) == {"index.html": PAGE, "site.css": STYLE}
    assert all(is_outer_network(found) for found in yard.engine.leftovers())
    yard.shop.approve(job.id)
    run_control(yard.shop.message(job.id), yard.resources)
    pages = {path: data for path, data in yard.shown(job.site_id).items() if path.endswith(".html")}
    assert set(pages) == {"index.html", "menu.html", "contact.html"}
    navs = {data.partition(b"<nav")[2].partition(b"</nav>")[0] for data in pages.values()}
    assert len(navs) == 1
    assert all(f'href="{path}"'.encode() in next(iter(navs)) for path in pages)
    spent = yard.shop.scalar("SELECT sum(cost_nanousd) FROM call WHERE job_id = :id", id=job.id)
    assert 0 < spent <= 500_000_000
    for step, seconds in yard.shop.rows(
        "SELECT data ->> 'step', (data ->> 'seconds')::float FROM event WHERE kind = 'step' ORDER BY id"
    ):
        print(f"{step:10} {seconds:8.3f} s")


@pytest.mark.req("H-040", "H-096", "H-116")
@pytest.mark.threat("C1")
def test_the_agent_s_shell_has_the_listed_commands_and_finds_no_key(yard: Yard, tmp_path: Path) -> None:
    job = yard.edit("Add opening hours [rehearse:shell]", tmp_path)
    assert (job.state, job.detail) == ("awaiting_approval", None)
    said = gzip.decompress(yard.resources.content_store.get(job.result["agent"]["transcript_sha256"])).decode()
    results = next(line for line in said.splitlines() if "ANTHROPIC_BASE_URL" in line)
    for name in ("curl", "wget", "ssh"):
        assert re.search(rf"{name} 12[67]\b", results), results
    assert "written 0" in results
    assert yard.files(job)["shell.html"] == b"<p>By hand"
    assert CANARY not in said
    assert yard.shop.url not in said


@pytest.mark.req("H-080")
def test_a_build_runs_in_a_box_of_its_own(yard: Yard, tmp_path: Path) -> None:
    job = yard.edit("Add a build [rehearse:build]", tmp_path)
    assert (job.state, job.detail) == ("awaiting_approval", None)
    assert yard.files(job)["dist/site.css"] == b"h1 { color: teal; }"
    assert yard.files(job)["site.css"] == STYLE
    assert all(is_outer_network(found) for found in yard.engine.leftovers())


@pytest.mark.req("H-115")
def test_the_cli_stops_at_the_cap_at_once_and_the_job_says_so(yard: Yard, tmp_path: Path) -> None:
    job = yard.edit("Convert to a multi-page site with shared nav", tmp_path, cap_nanousd=20_000_000)
    assert (job.state, job.reason) == ("budget_exceeded", "cost_cap")
    refused = "SELECT count(*) FROM event WHERE kind = 'limit_hit' AND data ->> 'phase' = 'admit'"
    assert yard.shop.scalar(refused) == 1
    assert job.result["agent"]["seconds"] < 30
    assert yard.shown(job.site_id) == {"index.html": PAGE, "site.css": STYLE}


@pytest.mark.threat("C9")
def test_a_cut_session_goes_on_from_what_it_said_and_afresh_from_what_the_cli_does_not_take(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = yard.shop.policy
    one_turn = policy.agent.model_copy(update={"max_turns": 1})
    yard = replace(yard, resources=replace(yard.resources, policy=policy.model_copy(update={"agent": one_turn})))

    job = yard.edit("Add a page [rehearse:half]", tmp_path)
    assert (job.state, job.result["is_salvaged"]) == ("failed", True), job.detail
    said = unpack(yard.resources.content_store.get(job.result["agent"]["transcript_sha256"]))
    assert b"[redacted]" in said
    assert SEEN not in said
    again = yard.resume(job)
    assert (again.state, again.detail) == ("awaiting_approval", None)
    assert again.result["summary"] == f"I went on after 1 use: {DOES_HALF}: [redacted]"
    assert yard.files(again)["half.html"] == b"<p>half"
    assert yard.news(again) == []

    job = yard.edit("Add a page [rehearse:half]", tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("workers.session.conversation", lambda *a, **limits: b"what no CLI takes\n")
        again = yard.resume(job)
    assert (again.state, again.result["summary"]) == ("awaiting_approval", "I began afresh.")
    assert yard.files(again)["half.html"] == b"<p>half"
    assert "went_on_from" not in again.result["agent"]
    assert "No conversation found" in yard.news(again)[0]
