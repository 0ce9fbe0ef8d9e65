"""The compose stack for real: built, brought up, used, scaled under load, killed piece by piece, and taken down.

`make compose` runs it; it needs root, a Docker engine, docker-compose and debootstrap, and no registry of images. The
provider is the fake provider. What each part took is printed.
"""

import json
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import httpx2
import pytest

from sandbox.config import BoxConfig
from sandbox.docker.engine import DEFAULT_ENGINE
from sandbox.image.build import build as build_box_image
from tests.compose import images
from tests.compose.stack import TENANT, Stack
from tests.services import wait_until

pytestmark = [pytest.mark.long, pytest.mark.docker, pytest.mark.timeout(900)]

SITE = Path(__file__).parents[2] / "producers" / "local" / "demo_site"
BOX_CACHE = Path.home() / ".cache" / "pointsman" / "box"
QUEUES = ("answer", "spec", "patch", "agent", "steps", "tools", "control", "intake")
WORKERS = tuple(f"worker-{queue}" for queue in QUEUES)
PROCESSES = ("api", "gateway", "mirror", "dispatcher", "exporter", *WORKERS)
STAYING = (*PROCESSES, "valkey", "postgres", "prometheus", "fake-provider")
WITH_ENGINE = {"worker-patch", "worker-agent", "worker-steps"}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    if why_not := images.missing():
        pytest.skip(why_not)
    began = time.monotonic()
    made = images.build(f"t{os.getpid()}")
    taken = time.monotonic() - began
    try:
        with Stack(made) as running:
            running.seconds["images from packages"] = round(taken, 1)
            running.timed("build", "build")
            running.timed("up", "up", "--detach")
            scopes = ("--scope", "submit", "--scope", "read", "--scope", "approve")
            key = running.cli("key", "create", "--tenant", TENANT, "--provider", "main", *scopes).split()[-1]
            running.http.headers["authorization"] = f"Bearer {key}"
            running.cli("site", "import", "bakery", "/site", "--publish", mount=f"{SITE}:/site:ro")
            yield running
            print(f"\nseconds: {json.dumps(running.seconds)}")
    finally:
        assert made.remove() == []


def test_every_process_comes_up_well_as_another_user_than_root_and_can_write_nowhere(stack: Stack) -> None:
    began = time.monotonic()
    stack.wait_well(STAYING, seconds=180)
    stack.seconds["well after up"] = round(time.monotonic() - began, 1)
    reaches_engine = set()
    for each in stack.containers():
        if each["state"] != "running":
            continue
        host = each["host"]
        assert each["user"].split(":")[0] not in ("", "0", "root"), each["service"]
        assert host["ReadonlyRootfs"], each["service"]
        assert host["CapDrop"] == ["ALL"], each["service"]
        assert host["Memory"] > 0, each["service"]
        assert host["NanoCpus"] > 0, each["service"]
        assert host["PidsLimit"] > 0, each["service"]
        assert host["RestartPolicy"]["Name"] == "unless-stopped", each["service"]
        if any("docker.sock" in mount["Source"] for mount in each["mounts"]):
            reaches_engine.add(each["service"])
    assert reaches_engine == WITH_ENGINE
    assert set(stack.services()) == set(STAYING)


def test_nothing_of_the_set_up_of_pip_is_in_the_image(stack: Stack) -> None:
    image = stack.environment["POINTSMAN_IMAGE"]
    history = subprocess.run(
        ["docker", "history", "--no-trunc", image], capture_output=True, text=True, check=True
    ).stdout
    shown = subprocess.run(["docker", "inspect", image], capture_output=True, text=True, check=True).stdout
    for secret in ("/wheels", "PIP_"):
        assert secret not in history + shown
    alone = ["docker", "run", "--rm", "--network", "none", "--entrypoint", "sh"]
    listed = subprocess.run([*alone, image, "-c", "ls / /etc; id -u"], capture_output=True, text=True, check=True)
    assert "wheels" not in listed.stdout
    assert "pip.conf" not in listed.stdout
    assert "10001" in listed.stdout


def test_the_mirror_is_on_the_outer_network_and_serves_boxes_alone(stack: Stack) -> None:
    ask = (
        "import urllib.request as r, urllib.error as e\n"
        f"try: r.urlopen('http://{stack.environment['OUTER_MIRROR']}:8091/left-pad', timeout=20)\n"
        "except e.HTTPError as answer: print(answer.code, answer.read().decode())"
    )
    said = stack.compose("exec", "-T", "gateway", "python", "-c", ask)
    assert said.startswith("401 ")
    assert "no live attempt is bound to this address" in said


def test_a_command_of_the_tools_queue_runs_in_its_container(stack: Stack) -> None:
    stack.wait_for(stack.submit("ping 127.0.0.1"), "answered")


def test_a_job_through_the_api_becomes_a_published_release(stack: Stack) -> None:
    began = time.monotonic()
    job_id = stack.submit("Change the hero heading to 'Bread since 1932'", site="bakery")
    stack.wait_for(job_id, "awaiting_approval")
    stack.http.post(f"/v1/jobs/{job_id}/approve", json={}).raise_for_status()
    stack.wait_for(job_id, "published")
    live = httpx2.get(f"{stack.pages_url}/live/{TENANT}/bakery/", trust_env=False).text
    assert "Bread since 1932" in live
    paid = stack.wait_for(stack.submit("What is a sourdough starter?"), "answered")
    assert paid["bill"]["spent_nanousd"] > 0
    stack.seconds["an edit published, a question answered"] = round(time.monotonic() - began, 1)


def test_prometheus_finds_every_target_and_reads_what_the_ledger_says(stack: Stack) -> None:
    def are_up() -> bool:
        found = httpx2.get(f"{stack.prometheus_url}/api/v1/targets", trust_env=False).json()["data"]["activeTargets"]
        return {each["labels"]["job"] for each in found if each["health"] == "up"} == {
            "pointsman-exporter",
            "pointsman-api",
            "prometheus",
        }

    wait_until(are_up, seconds=60, what="all targets are up")

    def ended() -> float:
        query = {"query": 'sum(pointsman_jobs_finished_total{queue_name="answer"})'}
        answer = httpx2.get(f"{stack.prometheus_url}/api/v1/query", params=query, trust_env=False).json()
        return sum(float(each["value"][1]) for each in answer["data"]["result"])

    wait_until(lambda: ended() >= 1, seconds=60, what="the answered question is counted")


@contextmanager
def load(stack: Stack, *, every_seconds: float) -> Iterator[list[UUID]]:
    """Submit questions and new sites until the block ends; gives the jobs."""
    jobs: list[UUID] = []
    stopping = threading.Event()

    def submit_on() -> None:
        while not stopping.wait(every_seconds):
            number = len(jobs)
            if number % 4:
                jobs.append(stack.submit(f"What is a sourdough starter, told in {number + 3} sentences?"))
            else:
                site = f"bikes-{time.time_ns()}"
                jobs.append(stack.submit("A site for Ada's Bikes, a repair shop", new_site=site))

    with ThreadPoolExecutor(1) as pool:
        submitting = pool.submit(submit_on)
        try:
            yield jobs
        finally:
            stopping.set()
        submitting.result()


def all_came_through(stack: Stack, jobs: list[UUID], *, seconds: float) -> Counter[str]:
    """Return how the jobs stand once each was answered or waits for a person; nothing else may become of them."""
    return Counter(
        str(stack.wait_for(job_id, "answered", "awaiting_approval", seconds=seconds)["state"]) for job_id in jobs
    )


def others_than(stack: Stack, *services: str) -> set[str]:
    return {each["id"] for each in stack.containers() if each["service"] not in services}


def test_each_queue_is_scaled_alone_under_load_and_no_job_is_lost(stack: Stack) -> None:
    others = others_than(stack, "worker-answer", "worker-spec")
    with load(stack, every_seconds=0.5) as jobs:
        wait_until(lambda: len(jobs) > 5, seconds=60, what="there is load")
        stack.timed(
            "answer 1 -> 3, spec 1 -> 4",
            "up",
            "--detach",
            "--no-recreate",
            "--scale",
            "worker-answer=3",
            "--scale",
            "worker-spec=4",
        )
        assert (len(stack.of("worker-answer")), len(stack.of("worker-spec"))) == (3, 4)
        stack.wait_well(("worker-answer", "worker-spec"), seconds=120)
        stack.timed(
            "answer 3 -> 1, spec 4 -> 2",
            "up",
            "--detach",
            "--no-recreate",
            "--scale",
            "worker-answer=1",
            "--scale",
            "worker-spec=2",
        )
        assert (len(stack.of("worker-answer")), len(stack.of("worker-spec"))) == (1, 2)
    assert sum(all_came_through(stack, jobs, seconds=120).values()) == len(jobs) > 20
    assert others_than(stack, "worker-answer", "worker-spec") == others


def test_one_container_of_each_kind_is_killed_and_comes_back_and_every_job_ends_once(stack: Stack) -> None:
    back: dict[str, float] = {}
    with load(stack, every_seconds=1.0) as jobs:
        for service in STAYING:
            if service == "fake-provider":
                continue  # a provider that breaks off a call is its own failure, and one that is told
            began = time.monotonic()
            stack.wait_restarted(stack.kill(service), seconds=120)
            back[service] = round(time.monotonic() - began, 1)
    stack.seconds |= {f"{service} back": seconds for service, seconds in back.items()}
    states = all_came_through(stack, jobs, seconds=180)
    print(f"\n{len(jobs)} jobs while each of {len(STAYING)} services was killed: {dict(states)}")
    stack.wait_restarted(stack.kill("fake-provider"), seconds=120)
    stack.wait_for(stack.submit("What is a sourdough starter?"), "answered", seconds=120)
    print(stack.cli("audit", "history"))


def test_a_code_agent_works_in_a_box_behind_the_outer_network_of_the_stack(stack: Stack) -> None:
    BOX_CACHE.mkdir(parents=True, exist_ok=True)
    build_box_image(DEFAULT_ENGINE, base_image=BoxConfig().base_image, cache=BOX_CACHE, say=lambda line: None)
    began = time.monotonic()
    stack.cli("site", "import", "agents", "/site", "--publish", mount=f"{SITE}:/site:ro")
    job_id = stack.submit("Convert to a multi-page site with shared nav", site="agents")
    job = stack.wait_for(job_id, "awaiting_approval", seconds=280)
    assert job["tier"] == "agent"
    assert job["bill"]["spent_nanousd"] > 0
    stack.seconds["a code agent in a box"] = round(time.monotonic() - began, 1)


def test_down_leaves_nothing_on_the_engine(stack: Stack) -> None:
    began = time.monotonic()
    stack.down()
    stack.seconds["down"] = round(time.monotonic() - began, 1)
    assert stack.leftovers() == []
