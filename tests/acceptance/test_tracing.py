"""A traced fleet as it is in production: five programs, forked workers, and one trace."""

import os
import tempfile
from pathlib import Path

import pytest

from gateway.fake_provider.config import FakeProviderConfig
from producers.local.embedded import Embedded, Options
from tests.acceptance.installation import Installation
from tests.collector import running_collector

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]

IDS = ("a1" * 16, "b2" * 8)
PROGRAMS = {
    "POST /v1/jobs": "api",
    "submit": "api",
    "send spec": "api",
    "wait spec": "worker",
    "claim spec": "worker",
    "process spec": "worker",
    "model:spec_edit": "worker",
    "render": "worker",
    "scan": "worker",
    "preview": "worker",
    "send control": "dispatcher",
    "wait control": "worker",
    "claim control": "worker",
    "process control": "worker",
    "publish": "worker",
    "lay out": "worker",
    "swap": "worker",
    "show": "worker",
}


def test_one_job_through_every_program_is_one_trace() -> None:
    with running_collector() as collector, tempfile.TemporaryDirectory(prefix="pointsman-test-") as home:
        options = Options(
            home=Path(home),
            fake_provider=FakeProviderConfig(speed="max"),
            api_port=0,
            environment={
                "POINTSMAN_TRACING__ENDPOINT": collector.url,
                "POINTSMAN_TRACING__HEADERS__AUTHORIZATION": "Bearer mine",
            },
        )
        with Embedded(options, base_environment=os.environ) as embedded:
            running = Installation(embedded)
            embedded.import_site("bakery")
            running.http.headers["traceparent"] = f"00-{IDS[0]}-{IDS[1]}-01"
            prompt = "Add a short FAQ about opening hours and how to order ahead"
            job_id = running.submit(prompt, site="bakery")
            running.wait_for(job_id, "awaiting_approval")
            del running.http.headers["traceparent"]
            running.http.post(f"/v1/jobs/{job_id}/approve")
            job = running.wait_for(job_id, "published")
            running.http.close()
            collector.wait_for(*PROGRAMS)
        spans = {span.id: span for span in collector.spans if span.trace == IDS[0]}
    (call,) = [span for span in spans.values() if span.name.startswith("chat ")]
    assert call.program == "pointsman-gateway"
    assert call.facts["pointsman.call.cost_nanousd"] == job["bill"]["spent_nanousd"]
    found = {span.name: span.program for span in spans.values() if span is not call}
    assert found == {name: f"pointsman-{program}" for name, program in PROGRAMS.items()}
    roots = [span.name for span in spans.values() if span.parent not in spans]
    assert roots == ["POST /v1/jobs"]
    assert spans[call.parent].name == "model:spec_edit"
    assert {headers["authorization"] for headers in collector.headers} == {"Bearer mine"}
