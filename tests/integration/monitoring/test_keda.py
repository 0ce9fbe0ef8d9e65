"""The KEDA example: what it scales, by which query, and that nobody's work is cut off by it.

There is no Kubernetes here. What can be proven without one is: the queries against a real Prometheus that scrapes real
metrics, and the arithmetic of limits, windows and graces against the policy.
"""

from __future__ import annotations

import http.server
import json
import re
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitoring.exporter import CONTENT_TYPE, render_metrics
from producers.local.supervisor import free_port
from routing.config import read_settings
from routing.policy.platform import platform_policy
from routing.queues import QUEUES
from routing.yaml_data import LOADER
from tests.factories import Shop
from tests.services import wait_until
from workers.config import WorkerConfig
from workers.main import WorkerSettings
from workers.pool import LET_GO_SECONDS

KEDA = Path(__file__).parents[3] / "compose" / "keda"
PREFIX = "pointsman-worker-"


def documents(name: str) -> dict[str, dict[str, Any]]:
    """The documents of a file by their queue."""
    found = [document for document in yaml.load_all((KEDA / name).read_text(), Loader=LOADER) if document]
    return {document["metadata"]["name"].removeprefix(PREFIX): document for document in found}


SCALED = documents("scaledobjects.yaml")
DEPLOYED = documents("workers.yaml")


def trigger(queue: str) -> dict[str, Any]:
    (only,) = SCALED[queue]["spec"]["triggers"]
    found: dict[str, Any] = only
    return found


def pod(queue: str) -> dict[str, Any]:
    found: dict[str, Any] = DEPLOYED[queue]["spec"]["template"]["spec"]
    return found


def setting(queue: str, name: str) -> str:
    (worker,) = pod(queue)["containers"]
    return next(str(one["value"]) for one in worker["env"] if one["name"] == name)


def test_each_queue_that_workers_serve_is_scaled_alone() -> None:
    queues = {queue.value for queue in QUEUES}
    assert set(SCALED) == set(DEPLOYED) == queues
    for queue in queues:
        assert SCALED[queue]["spec"]["scaleTargetRef"]["name"] == DEPLOYED[queue]["metadata"]["name"]
        (worker,) = pod(queue)["containers"]
        assert worker["args"][:2] == ["worker", queue]


@pytest.mark.parametrize("queue", sorted(SCALED))
def test_a_pod_counts_for_as_many_slots_as_its_worker_has(queue: str) -> None:
    (worker,) = pod(queue)["containers"]
    assert worker["args"][2:] == ["--concurrency", trigger(queue)["metadata"]["threshold"]]
    assert trigger(queue)["metricType"] == "AverageValue"
    assert trigger(queue)["metadata"]["ignoreNullValues"] == "false", "no metrics must not mean no workers"
    assert SCALED[queue]["spec"]["fallback"]["replicas"] >= 1


@pytest.mark.parametrize("queue", sorted(SCALED))
def test_a_pod_s_settings_are_its_worker_s_and_name_what_it_mounts(queue: str) -> None:
    (worker,) = pod(queue)["containers"]
    settings = read_settings(WorkerSettings, {one["name"]: one["value"] for one in worker["env"]})
    mounted = {one["name"]: Path(one["mountPath"]) for one in worker["volumeMounts"]}
    assert mounted.get("content-store", settings.content_store.root) == settings.content_store.root
    assert mounted.get("runs", settings.runs.root) == settings.runs.root
    limit = int(worker["resources"]["limits"]["memory"].removesuffix("Mi")) * 1024
    assert settings.worker.most_memory_kib_per_child < limit, "a runaway job ends alone"


@pytest.mark.parametrize("queue", sorted(SCALED))
def test_nobody_is_stopped_within_a_job_s_longest_time(queue: str) -> None:
    hard = next(limits.hard_seconds for name, limits in platform_policy().queues.items() if name.value == queue)
    behaviour = SCALED[queue]["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behaviour["scaleDown"]["stabilizationWindowSeconds"] >= hard, "at least the p99, which no limit passes"
    grace = pod(queue)["terminationGracePeriodSeconds"]
    stop = WorkerConfig(stop_seconds=float(setting(queue, "POINTSMAN_WORKER__STOP_SECONDS"))).stop_seconds
    assert stop >= hard
    assert grace >= stop + 2 * LET_GO_SECONDS
    assert SCALED[queue]["spec"]["minReplicaCount"] >= (0 if queue == "steps" else 1)


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = self.server.page()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-type", CONTENT_TYPE)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def scraped(shop: Shop, directory: Path) -> Iterator[str]:
    """A real Prometheus that scrapes this ledger's metrics each second."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    server.page = lambda: render_metrics(shop.ledger, policy=shop.policy)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    port = free_port()
    target = f"127.0.0.1:{server.server_port}"
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "pointsman", "static_configs": [{"targets": [target]}]}],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)
        server.shutdown()
        server.server_close()


def ask(url: str, query: str) -> list[Mapping[str, Any]]:
    whole = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(whole, timeout=5) as answer:
            found: list[Mapping[str, Any]] = json.load(answer)["data"]["result"]
    except OSError:
        return []
    return found


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed")
def test_every_query_gives_one_number_in_a_real_prometheus(shop: Shop, tmp_path: Path) -> None:
    for _ in range(3):
        shop.accept(tier=None)
    with scraped(shop, tmp_path) as url:
        wait_until(lambda: ask(url, trigger("answer")["metadata"]["query"]), seconds=30, what="Prometheus has scraped")
        found = {queue: ask(url, trigger(queue)["metadata"]["query"]) for queue in SCALED}
    for queue, vector in found.items():
        assert len(vector) == 1, f"{queue}: KEDA takes a query's only element"
    values = {queue: float(vector[0]["value"][1]) for queue, vector in found.items()}
    assert values.pop("answer") == 3
    assert set(values.values()) == {0.0}


def test_the_page_about_scaling_names_the_queries_as_they_are() -> None:
    page = (KEDA.parents[1] / "docs" / "scaling.md").read_text()
    named = re.search(r"max\(pointsman_wanted_slots\{queue_name=\"spec\"\}\)", page)
    assert named is not None
    assert named.group() == trigger("spec")["metadata"]["query"]
