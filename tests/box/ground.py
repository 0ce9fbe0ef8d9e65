"""Tier 3 whole, for those who attack it: gateway, mirror and model as processes, and a box that is looked into."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ledger.start_attempt import Claim
from ledger.store import Ledger, create_ledger_engine
from ledger.tables import Job
from producers.use_cases.sites import Sites
from routing.policy.platform import Policy, platform_policy
from routing.policy.services import Service
from routing.queues import QueueName, Tier
from sandbox.box import Box, Injected
from sandbox.config import BoxConfig
from sandbox.docker.box import DockerBox
from sandbox.docker.engine import Engine
from sandbox.execution import ExecResult
from sandbox.image.rootfs import image_reference
from sites.content_store import ContentStore
from tests.engine import Listener, TestEngine
from tests.factories import Shop
from tests.services import Postgres
from tests.well import well_gateway
from workers.boxes import EnginePool, open_engine_pool
from workers.handlers.agent import edit_with_agent
from workers.lifecycle import Resources, run_attempt

GATEWAY_PORT, MODEL_PORT, MIRROR_PORT, REGISTRY_PORT = 8106, 8107, 8108, 8109
CANARY = "sk-ant-canary-of-the-ground-0123456789abcdefghij"
PAGE = (
    b'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>x</title></head><body><h1>Hi</h1></body></html>'
)


class Watched:
    """A container that a test lays files into, and looks into while it runs and before it is gone."""

    def __init__(self, box: DockerBox, watch: Watch) -> None:
        self.box = box
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.box, name)

    def put(self, files: Mapping[str, bytes], **rules: Any) -> Injected:
        return self.box.put({**files, **self._watch.files}, **rules)

    def run(self, argv: Any, *, on_line: Callable[[bytes], bool] | None = None, **fields: Any) -> ExecResult:
        self._watch.environment.update(fields.get("env") or {})
        if self._watch.token_file:
            self.box.put({self._watch.token_file: self._watch.environment["ANTHROPIC_AUTH_TOKEN"].encode()})

        def look(line: bytes) -> bool:
            self._watch.lines.append(line)
            if b'"tool_use"' in line and not self._watch.is_seen:
                self._watch.is_seen = True
                self._watch.during(self.box)
            return on_line(line) if on_line is not None else True

        return self.box.run(argv, on_line=look if on_line is not None else None, **fields)

    def close(self) -> None:
        try:
            if not self._watch.is_over:
                self._watch.is_over = True
                self._watch.after(self.box)
        finally:
            self.box.close()


@dataclass
class Watch:
    """Looks into the box of the next session, and gives it to whoever asks for one."""

    pool: EnginePool
    files: Mapping[str, bytes] = field(default_factory=dict)
    during: Callable[[DockerBox], None] = lambda box: None
    """Called once, when the model uses its first tool."""
    after: Callable[[DockerBox], None] = lambda box: None
    """Called once, before the session's box is destroyed."""
    token_file: str = ""
    """Where the session finds its token, which nothing else gives to it."""
    environment: dict[str, str] = field(default_factory=dict)
    lines: list[bytes] = field(default_factory=list)
    is_seen: bool = False
    is_over: bool = False

    def acquire(
        self, asked: Sequence[Service] = (), *, image: str | None = None, watch: Callable[[], None] = lambda: None
    ) -> Box:
        box = self.pool.acquire()
        assert isinstance(box, DockerBox)
        return Watched(box, self)  # type: ignore[return-value]


@dataclass
class Ground:
    """An installation around an engine."""

    daemon: TestEngine
    shop: Shop
    resources: Resources
    engine: Engine
    pool: EnginePool
    registry: Listener
    home: Path
    image: str
    """The id of the image that its boxes are made from."""

    def site(self, name: str, folder: Path) -> Any:
        folder.mkdir(exist_ok=True)
        (folder / "index.html").write_bytes(PAGE)
        Sites(self.shop.ledger, self.resources.content_store, self.shop.policy).import_site("acme", name, folder)
        return self.shop.scalar("SELECT id FROM site WHERE name = :name", name=name)

    def begin(self) -> None:
        self.shop.clear()
        self.shop.tenant(provider="fake")

    def accept(self, site: Any, prompt: str, **fields: Any) -> Any:
        return self.shop.accept(prompt=prompt, site_id=site, tier=Tier.AGENT, **fields)

    def work(self, job_id: Any, watch: Watch) -> Job:
        resources = replace(self.resources, boxes=watch)
        run_attempt(self.shop.message(job_id), QueueName.AGENT, edit_with_agent, resources)
        return self.shop.job(job_id)

    def rival(self, site: Any, box: DockerBox, **fields: Any) -> Claim:
        """Another job that holds another box."""
        claimed = self.shop.running(prompt="x", site_id=site, tier=Tier.AGENT, **fields)
        egress = {"egress": box.egress.address, "id": claimed.attempt.id}
        self.shop.execute("UPDATE attempt SET egress_address = :egress WHERE id = :id", **egress)
        return claimed

    def logs(self) -> dict[str, str]:
        """What each process of the installation has said."""
        return {path.name: path.read_text(errors="replace") for path in self.home.glob("*.log")}


def provider_settings(url: str, *, model_port: int, canary: str) -> dict[str, str]:
    """What a gateway is told of its ledger and of the provider that plays."""
    fields = {"base_url": f"http://127.0.0.1:{model_port}", "api_key": canary, "label": "fake", "day_usd": "100"}
    settings = {f"POINTSMAN_GATEWAY__PROVIDERS__FAKE__{name.upper()}": value for name, value in fields.items()}
    return settings | {"POINTSMAN_LEDGER__URL": url, "POINTSMAN_GATEWAY__PEPPER": "p" * 32}


def start_gateway(
    stack: ExitStack,
    daemon: TestEngine,
    home: Path,
    url: str,
    *,
    port: int,
    model_port: int,
    canary: str,
    scenario: str,
    **settings: str,
) -> None:
    """Run a provider that plays a scenario, and a gateway before it, on the engine's host."""
    (home / "mine.yaml").write_text(scenario)
    played = ("--scenarios", str(home / "mine.yaml"))
    daemon.run(stack, "fake-provider", "--port", str(model_port), "--speed", "max", *played, log=home / "model.log")
    listens = {"POINTSMAN_GATEWAY__HOST": "0.0.0.0", "POINTSMAN_GATEWAY__PORT": str(port)}
    known = provider_settings(url, model_port=model_port, canary=canary)
    daemon.run(stack, "gateway", log=home / "gateway.log", **known, **listens, **settings)
    daemon.await_ports(model_port, port)


def open_resources(
    stack: ExitStack,
    home: Path,
    url: str,
    config: BoxConfig,
    *,
    gateway_url: str,
    canary: str,
    policy: Policy | None = None,
) -> tuple[Shop, Resources]:
    """What a worker of an installation has, in this process, with a pool of boxes."""
    ledger = Ledger(create_ledger_engine(url, pool_size=4))
    stack.callback(ledger.close)
    pool = open_engine_pool(config)
    stack.callback(pool.close)
    resources = Resources(
        ledger=ledger,
        content_store=ContentStore(home / "content-store"),
        policy=policy or platform_policy(),
        gateway_url=gateway_url,
        worker="w1",
        boxes=pool,  # type: ignore[arg-type]
        known_keys=(canary,),
        environment={"PATH": os.defpath},
    )
    return Shop(ledger, url=url, policy=resources.policy), resources


@contextmanager
def ground(daemon: TestEngine, postgres: Postgres, home: Path, *, scenario: str) -> Iterator[Ground]:
    """Start everything."""
    with ExitStack() as stack:
        url = stack.enter_context(postgres.database())
        npm = home / "npm"
        npm.write_text(f"#!/bin/sh\necho '{json.dumps({'registry': f'http://127.0.0.1:{REGISTRY_PORT}/'})}'\n")
        npm.chmod(0o755)
        registry = daemon.listen(REGISTRY_PORT, says="registry")
        stack.callback(registry.stop)
        start_gateway(
            stack, daemon, home, url, port=GATEWAY_PORT, model_port=MODEL_PORT, canary=CANARY, scenario=scenario
        )
        daemon.run(
            stack,
            "mirror",
            log=home / "mirror.log",
            POINTSMAN_LEDGER__URL=url,
            POINTSMAN_MIRROR__HOST="0.0.0.0",
            POINTSMAN_MIRROR__PORT=str(MIRROR_PORT),
            POINTSMAN_MIRROR__NPM=str(npm),
            POINTSMAN_MIRROR__CACHE=str(home / "mirror"),
        )
        daemon.await_ports(MIRROR_PORT)
        config = daemon.config(
            gateway_port=GATEWAY_PORT, mirror_port=MIRROR_PORT, memory_mib=1536, processes=256, warm=0
        )
        gateway_url = stack.enter_context(well_gateway())
        shop, resources = open_resources(stack, home, url, config, gateway_url=gateway_url, canary=CANARY)
        engine = daemon.open()
        stack.callback(engine.close)
        image = engine.image_id(image_reference(config.base_image))
        yield Ground(daemon, shop, resources, engine, resources.boxes, registry, home, image)
