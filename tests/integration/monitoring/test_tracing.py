"""One job is one trace: from the request to the publish, in the words of what takes traces, and nobody waits for it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
from pydantic import SecretStr

from gateway.config import GatewayConfig, ProviderConfig
from gateway.fake_provider.config import FakeProviderConfig
from gateway.fake_provider.server import running_fake_provider
from ledger.dispatch_window import pause_queue
from ledger.store import Ledger, create_ledger_engine
from ledger.tables import Job
from monitoring import traces
from monitoring.config import TracingConfig
from producers.intake.celery_intake import take_in
from producers.intake.celery_messages import read_message
from producers.use_cases.tenants import create_tenant
from routing.jobs import JobMessage
from routing.policy.platform import platform_policy
from routing.queues import QueueName
from tests.collector import Collector, Seen, running_collector
from tests.integration.api.http_world import World, open_world
from tests.services import Postgres
from tests.threads import serve_gateway_in_thread
from workers.handlers.publish import run_control
from workers.handlers.spec import edit_spec
from workers.lifecycle import Resources, run_attempt

DEMO_SITE = Path(__file__).parents[3] / "producers" / "local" / "demo_site"
PROMPT = "Add a short FAQ about opening hours and how to order ahead"
IDS = ("a1" * 16, "b2" * 8)
HEADER = f"00-{IDS[0]}-{IDS[1]}-00"


@dataclass
class Fleet:
    """A source, a gateway with a provider, and a worker, all in this process."""

    world: World
    resources: Resources

    def work(self, job_id: UUID) -> None:
        job = self.world.job(job_id)
        queue = QueueName(job.queue)
        with self.world.ledger.begin() as session:
            pause_queue(session, queue, is_paused=False)
        message = JobMessage(job_id=job.id, fence=job.fence)
        if queue is QueueName.CONTROL:
            run_control(message, self.resources)
        else:
            run_attempt(message, queue, edit_spec, self.resources)
        with self.world.ledger.begin() as session:
            pause_queue(session, queue, is_paused=True)

    def publish(self, **headers: str) -> UUID:
        answer = self.world.call("POST", "/v1/jobs", json={"prompt": PROMPT, "site": "bakery"}, headers=headers)
        job_id = UUID(answer.json()["id"])
        self.work(job_id)
        assert self.world.job(job_id).state == "awaiting_approval"
        assert self.world.call("POST", f"/v1/jobs/{job_id}/approve", json={}).status_code == 200
        self.work(job_id)
        assert self.world.job(job_id).state == "published"
        return job_id


@contextmanager
def traced(url: str, **settings: Any) -> Iterator[None]:
    traces.start(TracingConfig(endpoint=url, **settings), program="test")
    try:
        yield
    finally:
        traces.stop()


@pytest.fixture(scope="module")
def places(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ledger, str]]:
    """A ledger, and a gateway in front of a provider that does not pause."""
    with ExitStack() as stack:
        ledger_url = stack.enter_context(postgres.database())
        model = stack.enter_context(running_fake_provider(FakeProviderConfig(speed="max")))
        provider = ProviderConfig(base_url=model.url, api_key=SecretStr("k" * 32), label="fake", day_usd=100)
        config = GatewayConfig(providers={"fake": provider}, pepper=SecretStr("p" * 32))
        gateway_url = stack.enter_context(serve_gateway_in_thread(config, ledger_url, platform_policy()))
        ledger = stack.enter_context(closing(Ledger(create_ledger_engine(ledger_url, pool_size=4))))
        yield ledger, gateway_url


@contextmanager
def fleet(places: tuple[Ledger, str], home: Path) -> Iterator[Fleet]:
    ledger, gateway_url = places
    with open_world(ledger, home / "content-store") as world:
        with ledger.begin() as session:
            create_tenant(session, world.tenant, provider="fake")
        world.resources.sites.import_site(world.tenant, "bakery", DEMO_SITE)
        yield Fleet(
            world,
            Resources(
                ledger=ledger,
                content_store=world.content_store,
                policy=world.policy,
                gateway_url=gateway_url,
                worker="w1",
            ),
        )


@pytest.fixture
def collector() -> Iterator[Collector]:
    with running_collector() as running:
        yield running


def tree_of(spans: list[Seen]) -> dict[str, str]:
    """Each span's name, and its parent's."""
    names = {span.id: span.name for span in spans}
    return {span.name: names.get(span.parent, span.parent) for span in spans}


def test_a_job_is_one_trace_from_its_request_to_its_publish(
    places: tuple[Ledger, str], collector: Collector, tmp_path: Path
) -> None:
    with traced(collector.url), fleet(places, tmp_path) as running:
        job_id = running.publish(traceparent=HEADER, tracestate="vendor=secret", baggage="user=secret")
        job = running.world.job(job_id)
        spent = running.world.call("GET", f"/v1/jobs/{job_id}").json()["bill"]["spent_nanousd"]
        token = running.world.headers()["Authorization"].removeprefix("Bearer ")
    spans = collector.spans
    of_job = [span for span in spans if span.trace == IDS[0]]
    assert tree_of(of_job) == {
        "POST /v1/jobs": IDS[1],
        "submit": "POST /v1/jobs",
        "wait spec": "submit",
        "claim spec": "submit",
        "process spec": "submit",
        "model:spec_edit": "process spec",
        f"chat {_model()}": "model:spec_edit",
        "render": "process spec",
        "check": "process spec",
        "scan": "process spec",
        "preview": "process spec",
        "wait control": "submit",
        "claim control": "submit",
        "process control": "submit",
        "publish": "process control",
        "lay out": "publish",
        "swap": "publish",
        "show": "publish",
    }
    assert not any(span.is_error for span in spans)
    assert job.trace is not None
    assert job.trace.startswith(f"00-{IDS[0]}-")
    (call,) = [span for span in of_job if span.name.startswith("chat ")]
    assert call.facts["gen_ai.operation.name"] == "chat"
    assert call.facts["gen_ai.provider.name"] == "fake"
    assert call.facts["gen_ai.request.model"] == call.facts["gen_ai.response.model"] == _model()
    assert int(call.facts["gen_ai.usage.input_tokens"]) > int(call.facts["gen_ai.usage.output_tokens"]) > 0
    assert call.facts["pointsman.call.cost_nanousd"] == spent > 0
    (judged,) = [span for span in spans if span.name.endswith("/approve")]
    assert (judged.trace != IDS[0], judged.links) == (True, (IDS[0],))
    told = b"".join(collector.raw)
    assert [word for word in (PROMPT, "FAQ", token, "secret", "k" * 32) if word.encode() in told] == []
    assert not any(span.name.startswith("GET") for span in spans)


def _model() -> str:
    return platform_policy().calls["spec_edit"].model


def test_a_call_with_a_job_s_token_can_write_into_no_other_trace(
    places: tuple[Ledger, str], collector: Collector, tmp_path: Path
) -> None:
    said = [f"00-{'d4' * 16}-{'e5' * 8}-01", f"00-{IDS[0]}-{'e5' * 8}-00", "x", ""]
    with traced(collector.url), fleet(places, tmp_path) as running:
        asked = {"prompt": PROMPT, "site": "bakery"}
        answer = running.world.call("POST", "/v1/jobs", json=asked, headers={"traceparent": HEADER})
        claimed = running.world.claim(UUID(answer.json()["id"]))
        body = {"model": _model(), "max_tokens": 1024, "messages": [{"role": "user", "content": "Hello"}]}
        for header in said:
            headers = {"authorization": f"Bearer {claimed.token}", "traceparent": header}
            called = httpx2.post(f"{places[1]}/v1/messages", json=body, headers=headers, trust_env=False, timeout=20)
            assert called.status_code == 200, called.text
    (submitted,) = collector.named("submit")
    calls = [span for span in collector.spans if span.name.startswith("chat ")]
    assert {span.trace for span in calls} == {IDS[0]}
    assert [span.parent for span in calls] == [submitted.id, "e5" * 8, submitted.id, submitted.id]


def test_a_job_that_no_source_traced_is_traced_by_nobody(
    places: tuple[Ledger, str], collector: Collector, tmp_path: Path
) -> None:
    with fleet(places, tmp_path) as running:
        answer = running.world.call("POST", "/v1/jobs", json={"prompt": PROMPT, "site": "bakery"})
        with traced(collector.url):
            running.work(UUID(answer.json()["id"]))
        assert running.world.job(UUID(answer.json()["id"])).trace is None
    assert collector.spans == []


def test_a_stranger_at_the_intake_leaves_no_span(
    places: tuple[Ledger, str], collector: Collector, tmp_path: Path
) -> None:
    with traced(collector.url), fleet(places, tmp_path) as running:
        for key in ("", "Bearer pmk_nobodys"):
            headers = {"authorization": key, "traceparent": HEADER}
            assert running.world.client.post("/v1/jobs", json={"prompt": PROMPT}, headers=headers).status_code == 401
        assert running.world.call("POST", "/v1/jobs", json={"prompt": ""}).status_code == 422
    assert tree_of(collector.spans) == {"POST /v1/jobs": "", "submit": "POST /v1/jobs"}
    assert IDS[0] not in {span.trace for span in collector.spans}


def test_a_client_of_celery_has_its_job_in_its_own_trace(
    places: tuple[Ledger, str], collector: Collector, tmp_path: Path
) -> None:
    import json

    def message(job_id: UUID, **headers: Any) -> bytes:
        body = json.dumps([[], {"prompt": "What is a sourdough starter?"}, {}])
        told = {"task": "pointsman.submit", "id": str(job_id), **headers}
        envelope = {"body": body, "content-type": "application/json", "headers": told, "properties": {}}
        return json.dumps(envelope).encode()

    hostile: list[Any] = [HEADER, 7, ["x"], None, "\0" * 400, {"a": 1}]
    with traced(collector.url), fleet(places, tmp_path) as running:
        ids = [uuid4() for _ in hostile]
        for job_id, header in zip(ids, hostile, strict=True):
            read = read_message(message(job_id, traceparent=header))
            take_in(read, running.world.resources.submitter, tenant=running.world.tenant)
        jobs: list[Job] = [running.world.job(job_id) for job_id in ids]
    assert [str(job.trace)[3:35] == IDS[0] for job in jobs] == [True, *[False] * 5]
    assert len({str(job.trace)[3:35] for job in jobs}) == len(jobs)
    (mine,) = [span for span in collector.named("receive intake") if span.trace == IDS[0]]
    assert mine.parent == IDS[1]


def test_a_forked_child_sends_its_own_spans_and_none_of_its_parent_s(collector: Collector) -> None:
    script = """
import os, sys, time
from monitoring import traces
from monitoring.config import TracingConfig
traces.start(TracingConfig(endpoint=sys.argv[1], exit_seconds=10), program="test")
with traces.begin("before the first delivery"):
    pass
time.sleep(1)  # the parent's connection is open
with traces.begin("before the fork"):
    pass
if (child := os.fork()) == 0:
    with traces.begin("in the child"):
        pass
    traces.stop()
    os._exit(0)
os.waitpid(child, 0)
with traces.begin("after the fork"):
    pass
"""
    subprocess.run([sys.executable, "-W", "error", "-c", script, collector.url], check=True, timeout=60)
    names = ["after the fork", "before the first delivery", "before the fork", "in the child"]
    assert sorted(span.name for span in collector.spans) == names
