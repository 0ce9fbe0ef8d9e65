"""The KEDA example: what it scales, by which query, and that nobody's work is cut off by it.

There is no Kubernetes here. What can be proven without one is: the queries against a real Prometheus that scrapes real
metrics, and the arithmetic of limits, windows and graces against the policy.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from monitoring.exporter import CONTENT_TYPE, render_metrics
from routing.config import read_settings
from routing.policy.platform import platform_policy
from routing.queues import QUEUES
from routing.yaml_data import LOADER
from tests.factories import Shop
from tests.prometheus import Prometheus, needs_prometheus
from tests.services import wait_until
from tests.threads import serve_app_in_thread
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


@needs_prometheus
def test_every_query_gives_one_number_in_a_real_prometheus(shop: Shop, tmp_path: Path) -> None:
    for _ in range(3):
        shop.accept(tier=None)

    async def page(_: web.Request) -> web.Response:
        return web.Response(
            body=render_metrics(shop.ledger, policy=shop.policy), headers={"content-type": CONTENT_TYPE}
        )

    app = web.Application()
    app.router.add_get("/metrics", page)
    queries = {queue: trigger(queue)["metadata"]["query"] for queue in SCALED}
    with serve_app_in_thread(app) as url, Prometheus(tmp_path, url) as prometheus:
        wait_until(lambda: prometheus.query(queries["answer"]), seconds=30, what="Prometheus has scraped")
        found = {queue: [*prometheus.query(query).values()] for queue, query in queries.items()}
    assert found == {queue: [3.0 if queue == "answer" else 0.0] for queue in SCALED}, "KEDA takes the only element"


def test_the_page_about_scaling_names_the_queries_as_they_are() -> None:
    page = (KEDA.parents[1] / "docs" / "scaling.md").read_text()
    named = re.search(r"max\(pointsman_wanted_slots\{queue_name=\"spec\"\}\)", page)
    assert named is not None
    assert named.group() == trigger("spec")["metadata"]["query"]
