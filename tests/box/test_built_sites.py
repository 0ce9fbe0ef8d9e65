"""Sites with a build, whole: packages from the machine's own registry through the real mirror, into real boxes.

The engine's network has no way out, so the mirror serves a socket of that network from outside of it
(tests/outside_mirror.py). Without a registry these tests have nothing to prove: they are skipped, and fail in CI.
"""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Route, sync_playwright
from typer.testing import CliRunner

from ledger.tables import Job, Release
from producers.chromium import LEAN
from producers.cli import app
from producers.pages import PageResources, create_pages_app
from producers.use_cases.sites import Sites
from routing.queues import QueueName, Tier
from sandbox.docker.engine import is_outer_network
from sandbox.pool import open_engine
from sites.preview import PreviewSigner
from sites.releases import manifest_of
from tests.box.ground import open_resources, start_gateway
from tests.box.test_agent_session import CANARY, Yard
from tests.engine import Listener, TestEngine
from tests.outside_mirror import unreachable
from tests.services import Postgres
from workers.handlers.agent import edit_with_agent
from workers.handlers.patch import patch_files
from workers.handlers.publish import run_control
from workers.lifecycle import run_attempt

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

GATEWAY_PORT = 8098
MODEL_PORT = 8099
MIRROR_PORT = 8100
THREE = "add a three.js canvas, npm install and build"
PACKAGE = {
    "name": "cafe",
    "private": True,
    "type": "module",
    "scripts": {"build": "node build.mjs"},
    "dependencies": {"esbuild": "0.24.0", "three": "0.170.0"},
}
BUILD = """\
import { build } from "esbuild";
import { cpSync } from "node:fs";

cpSync("pages", "dist", { recursive: true });
await build({ entryPoints: ["src/main.js"], bundle: true, minify: true, format: "esm", outfile: "dist/main.js" });
"""
MAIN = """\
import { BoxGeometry, Mesh, MeshNormalMaterial, PerspectiveCamera, Scene, WebGLRenderer } from "three";

const canvas = document.querySelector("#scene");
const renderer = new WebGLRenderer({ canvas, antialias: true });
const camera = new PerspectiveCamera(50, canvas.clientWidth / canvas.clientHeight, 0.1, 10);
const scene = new Scene();
const cube = new Mesh(new BoxGeometry(), new MeshNormalMaterial());
camera.position.z = 3;
scene.add(cube);
renderer.setAnimationLoop((time) => {
  cube.rotation.y = time / 1000;
  renderer.render(scene, camera);
});
"""
PAGE = """\
<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Cafe</title><script type="module" src="main.js"></script></head>
<body><main><h1>Welcome</h1><canvas id="scene" width="640" height="360"></canvas></main></body>
</html>
"""
STUDIO = PAGE.replace('<script type="module" src="main.js"></script>', "").replace("Welcome", "Studio")


def write(path: str, content: str) -> dict[str, Any]:
    return {"tool": "Write", "input": {"file_path": path, "content": content}}


def bash(command: str) -> dict[str, Any]:
    return {"tool": "Bash", "input": {"command": command, "timeout": 120_000}}


SCENARIO = {
    "rules": [
        {
            "name": "adds-three",
            "when": {"prompt": "three\\.js canvas", "tools": ["Bash"], "turn": 1, "tool_result": False},
            "say": [
                write("package.json", json.dumps(PACKAGE, indent=2)),
                write("build.mjs", BUILD),
                write("src/main.js", MAIN),
                write("pages/index.html", PAGE),
                bash("rm index.html site.css"),
                bash("npm install 2>&1"),
                bash("npm run build 2>&1"),
                bash("ls -l dist; du -sm node_modules"),
            ],
        },
        {
            "name": "has-three",
            "when": {"prompt": "three\\.js canvas", "tools": ["Bash"], "tool_result": True},
            "say": [{"text": "I added a turning cube, drawn by three.js, and a build that bundles it."}],
        },
        {
            "name": "makes-a-studio",
            "when": {"prompt": "pottery studio", "tools": ["Write"], "turn": 1, "tool_result": False},
            "say": [write("index.html", STUDIO)],
        },
        {
            "name": "made-a-studio",
            "when": {"prompt": "pottery studio", "tools": ["Write"], "tool_result": True},
            "say": [{"text": "I made the studio's page."}],
        },
    ]
}


@dataclass
class BuildYard(Yard):
    """An installation whose boxes get packages."""

    url: str
    daemon: TestEngine

    def site(self, name: str, files: dict[str, str], folder: Path, *, profile: str) -> Any:
        self.shop.clear()
        self.shop.tenant(provider="fake")
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        sites = Sites(self.shop.ledger, self.resources.content_store, self.shop.policy)
        sites.create("acme", name, profile=profile)
        sites.import_site("acme", name, folder)
        return self.shop.scalar("SELECT id FROM site WHERE name = :name", name=name)

    def submit(self, prompt: str, *options: str) -> Job:
        """Submit a job as its owner types it, and let a worker do it."""
        command = ["submit", prompt, "--tenant", "acme", "--json", *options]
        said = CliRunner().invoke(app, command, env={"POINTSMAN_LEDGER__URL": self.url}, prog_name="pointsman")
        assert said.exit_code == 0, said.output
        return self.do(self.shop.scalar("SELECT id FROM job ORDER BY created_at DESC LIMIT 1"))

    def do(self, job_id: Any) -> Job:
        queue = QueueName(self.shop.job(job_id).queue)
        handler = {QueueName.AGENT: edit_with_agent, QueueName.PATCH: patch_files}[queue]
        with self.daemon.network():  # where the gateway is
            run_attempt(self.shop.message(job_id), queue, handler, self.resources)
        return self.shop.job(job_id)

    def publish(self, job: Job) -> Job:
        self.shop.approve(job.id)
        run_control(self.shop.message(job.id), self.resources)
        return self.shop.job(job.id)

    def served(self, job: Job) -> dict[str, bytes]:
        release: Release = self.shop.find(Release, job.release_id)
        return self.resources.content_store.read_tree(manifest_of(release).served)

    def boxes(self, job: Job) -> int:
        """How many boxes a job had."""
        return int(self.shop.scalar("SELECT count(*) FROM event WHERE job_id = :id AND kind = 'box'", id=job.id))

    def steps(self, job: Job) -> dict[str, float]:
        rows = self.shop.rows(
            "SELECT data ->> 'step', (data ->> 'seconds')::float FROM event"
            " WHERE job_id = :id AND kind = 'step' ORDER BY id",
            id=job.id,
        )
        return {step: seconds for step, seconds in rows}


@pytest.fixture(scope="module")
def registry() -> None:
    if why := unreachable():
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)


@pytest.fixture(scope="module")
def yard(
    daemon: TestEngine, registry: None, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BuildYard]:
    home = tmp_path_factory.mktemp("built")
    with ExitStack() as stack:
        url = stack.enter_context(postgres.database())
        start_gateway(
            stack,
            daemon,
            home,
            url,
            port=GATEWAY_PORT,
            model_port=MODEL_PORT,
            canary=CANARY,
            scenario=json.dumps(SCENARIO),
        )
        daemon.serve_mirror(stack, MIRROR_PORT, ledger_url=url, cache=home / "mirror")
        daemon.await_ports(MIRROR_PORT)
        config = daemon.config(
            gateway_port=GATEWAY_PORT,
            mirror_port=MIRROR_PORT,
            memory_mib=2048,
            workspace_mib=512,
            file_mib=64,
            workspace_files=20_000,
            processes=256,
            warm=0,
        )
        shop, resources = open_resources(
            stack, home, url, config, gateway_url=f"http://127.0.0.1:{GATEWAY_PORT}", canary=CANARY
        )
        engine = open_engine(config)
        stack.callback(engine.close)
        yield BuildYard(shop, resources, engine, url, daemon)


@dataclass
class Done:
    """The job of the issue, published."""

    job: Job
    release: Release
    served: dict[str, bytes]
    seconds: float


@pytest.fixture(scope="module")
def three(yard: BuildYard, tmp_path_factory: pytest.TempPathFactory) -> Done:
    plain = {"index.html": STUDIO, "site.css": "h1 { color: teal; }\n"}
    site = yard.site("cafe", plain, tmp_path_factory.mktemp("cafe"), profile="interactive")
    began = time.monotonic()
    job = yard.submit(THREE, "--site", "cafe")
    seconds = time.monotonic() - began
    assert job.site_id == site
    assert (job.state, job.detail) == ("awaiting_approval", None), job.result
    return Done(yard.publish(job), yard.shop.find(Release, job.release_id), yard.served(job), seconds)


@pytest.mark.req("H-043", "H-080")
def test_a_three_js_canvas_is_installed_built_and_published(yard: BuildYard, three: Done) -> None:
    job, release = three.job, three.release
    assert (job.state, job.tier) == ("published", Tier.AGENT)
    files = yard.files(job)
    assert not any("node_modules" in path for path in files)
    assert {"package.json", "package-lock.json", "build.mjs", "src/main.js", "dist/main.js"} <= files.keys()
    assert set(three.served) == {"index.html", "main.js"}
    assert b"WebGLRenderer" in three.served["main.js"]
    assert release.scan["js_bytes"] == len(three.served["main.js"]), "sources are not charged to the budget"
    shown = yard.resources.content_store.root / "sites" / "acme_cafe" / "active"
    assert {path.name: path.read_bytes() for path in shown.resolve().iterdir()} == three.served
    assert all(is_outer_network(found) for found in yard.engine.leftovers())
    assert yard.boxes(job) == 2, "the build has a box of its own"
    assert three.seconds < yard.shop.policy.queues[QueueName.AGENT].hard_seconds
    print(job.result["build"], f"whole job {three.seconds:.1f} s")
    print(f"bundle {release.scan['js_bytes']} bytes, {release.scan['js_gzip_bytes']} compressed")
    for step, seconds in yard.steps(job).items():
        print(f"{step:10} {seconds:8.3f} s")


@pytest.mark.browser
def test_the_published_canvas_draws_in_a_browser_under_the_headers_of_its_release(yard: BuildYard, three: Done) -> None:
    signer = PreviewSigner(["preview-key-of-the-tests-0123456789"])
    pages = TestClient(create_pages_app(PageResources(yard.shop.ledger, yard.resources.content_store, signer, 60)))
    errors: list[str] = []

    def answer(route: Route) -> None:
        said = pages.get(urlsplit(route.request.url).path, headers={"origin": "null"})
        route.fulfill(status=said.status_code, headers=dict(said.headers), body=said.content)

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", LEAN, "--use-angle=swiftshader", "--ignore-gpu-blocklist"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
        page = browser.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.route("**/*", answer)
        page.goto("https://pages.example/live/acme/cafe/")
        page.wait_for_selector("canvas[data-engine^='three.js']", timeout=30_000)
        page.wait_for_timeout(200)
        browser.close()
    assert errors == []


@pytest.mark.req("H-033", "H-089")
def test_a_patch_of_a_built_site_installs_and_builds_within_its_tier_s_time(yard: BuildYard, tmp_path: Path) -> None:
    sources = {"package.json": json.dumps(PACKAGE), "build.mjs": BUILD, "src/main.js": MAIN, "pages/index.html": PAGE}
    site = yard.site("cafe", {**sources, "dist/index.html": STUDIO}, tmp_path, profile="interactive")
    locks = []
    for old, new in (("Welcome", "Good morning"), ("Good morning", "Good evening")):
        began = time.monotonic()
        job = yard.do(yard.shop.accept(prompt=f'Change "{old}" to "{new}"', site_id=site, tier=Tier.PATCH))
        assert (job.state, job.detail) == ("awaiting_approval", None), job.result
        took = time.monotonic() - began
        assert took < yard.shop.policy.queues[QueueName.PATCH].soft_seconds
        served = yard.served(job)
        assert set(served) == {"index.html", "main.js"}
        assert f"<h1>{new}</h1>".encode() in served["index.html"]
        assert yard.boxes(job) == 1
        locks.append(yard.files(job)["package-lock.json"])
        yard.publish(job)
        print(f"patch {took:.1f} s", job.result["build"], yard.steps(job))
    assert locks[0] == locks[1], "the second build installs what the first has locked"
    assert all(is_outer_network(found) for found in yard.engine.leftovers())


PROBES = """\
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";

const reached = (host, port) => new Promise((done) => {
  const socket = connect({ host, port, timeout: 1500 });
  const end = (said) => { socket.destroy(); done(`${host}:${port} ${said}`); };
  socket.on("connect", () => end("open")).on("timeout", () => end("shut")).on("error", () => end("shut"));
});
const asked = async (url) => `${url} ${(await fetch(url)).status}`;
const found = await Promise.all([
  ...["203.0.113.7", "169.254.169.254", "198.51.100.9"].map((host) => reached(host, 8000)),
  reached("203.0.113.7", 443), asked("http://egress:8081/three"), asked("http://egress:8081/-/whoami"),
  asked("http://egress:8081/http://203.0.113.7:8000/x"),
]);
const secrets = Object.keys(process.env).filter((name) => /token|key|secret/i.test(name));
mkdirSync("dist");
writeFileSync("dist/index.html", readFileSync("pages/index.html"));
writeFileSync("dist/reach.txt", [...found, `secrets ${secrets.join()}`].join("\\n"));
"""


@pytest.mark.req("H-092")
def test_a_build_reaches_packages_of_the_registry_and_nothing_else(
    yard: BuildYard, outside: Listener, tmp_path: Path
) -> None:
    package = json.dumps({"type": "module", "scripts": {"build": "node build.mjs"}})
    sources = {"package.json": package, "build.mjs": PROBES, "pages/index.html": STUDIO, "dist/index.html": STUDIO}
    site = yard.site("cafe", sources, tmp_path, profile="default")
    asked = len(outside.requests())
    job = yard.do(yard.shop.accept(prompt='Change "Studio" to "Workshop"', site_id=site, tier=Tier.PATCH))
    assert (job.state, job.detail) == ("awaiting_approval", None), job.result
    seen = dict(line.rsplit(" ", 1) for line in yard.served(job)["reach.txt"].decode().splitlines())
    assert seen.pop("http://egress:8081/three") == "200"
    assert seen.pop("secrets") == ""
    assert all(int(seen.pop(url)) >= 400 for url in list(seen) if url.startswith("http"))
    assert set(seen.values()) == {"shut"}
    assert len(outside.requests()) == asked


@pytest.mark.req("H-038", "H-080")
def test_a_new_site_is_made_by_an_agent_from_the_command_line_to_its_live_page(yard: BuildYard) -> None:
    yard.shop.clear()
    yard.shop.tenant(provider="fake")
    job = yard.submit("A one-page site for my pottery studio", "--new-site", "studio", "--tier", "agent")
    assert (job.state, job.detail) == ("awaiting_approval", None), job.result
    assert job.base_release_id is None
    job = yard.publish(job)
    assert job.state == "published"
    ((path, page),) = yard.shown(job.site_id).items()
    assert (path, page.strip()) == ("index.html", STUDIO.strip().encode())
    assert "build" not in yard.steps(job)
