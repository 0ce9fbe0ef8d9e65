"""A box in its job's trace: opened, used and closed, and nothing of what was run in it but the program's name."""

from collections.abc import Callable, Sequence

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from monitoring import traces
from monitoring.config import TracingConfig
from monitoring.trace_recorder import Recorder
from routing.policy.services import Service
from sandbox.docker.box import DockerBox, DockerMaker
from sandbox.execution import Clocks
from workers.boxes import PoolOnDemand

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]


class _OneByOne:
    """Gives boxes that are made when they are wanted."""

    def __init__(self, maker: DockerMaker) -> None:
        self._maker = maker

    def acquire(
        self, asked: Sequence[Service] = (), *, image: str | None = None, watch: Callable[[], None] = lambda: None
    ) -> DockerBox:
        return self._maker.create(asked, watch=watch)

    def close(self) -> None:
        pass


def test_a_box_is_traced_when_it_opens_runs_and_closes(maker: DockerMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = InMemorySpanExporter()
    config = TracingConfig(endpoint="http://127.0.0.1:1/v1/traces")
    recorder = Recorder(config, program="test", connect=lambda: sent)
    monkeypatch.setattr(traces, "_recorder", recorder)
    with traces.begin("process agent"):
        box = PoolOnDemand(lambda: _OneByOne(maker)).acquire()
        result = box.run(
            ["/bin/bash", "-c", "echo a-secret; exit 3"],
            env={"TOKEN": "a-secret"},
            clocks=Clocks(soft_seconds=20, hard_seconds=25, grace_seconds=2),
        )
        box.close()
    traces.stop()
    assert result.exit_code == 3
    spans = {span.name: span for span in sent.get_finished_spans()}
    assert list(spans) == ["box open", "box exec", "box close", "process agent"]
    assert dict(spans["box exec"].attributes or {}) == {
        "process.executable.name": "bash",
        "process.exit.code": 3,
        "pointsman.ending": "exited",
    }
    assert not [span for span in spans.values() if "a-secret" in span.to_json()]
