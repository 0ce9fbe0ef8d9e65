"""A collector of traces for tests: takes OTLP over HTTP as any other does, and decodes what it gets."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from tests.http_server import Handler, served
from tests.services import wait_until

Fact = str | int | float | bool


@dataclass(frozen=True)
class Seen:
    """One span, as it arrived."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    program: str
    pid: int
    facts: dict[str, Fact]
    links: tuple[str, ...]
    began: int
    ended: int
    is_error: bool

    @property
    def seconds(self) -> float:
        return (self.ended - self.began) / 1e9


class Collector:
    """What has arrived."""

    def __init__(self) -> None:
        self.raw: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self._lock = threading.Lock()

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        data = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        with self._lock:
            self.raw.append(data)
            self.headers.append(headers)

    @property
    def spans(self) -> list[Seen]:
        with self._lock:
            return [span for data in self.raw for span in _decode(data)]

    def named(self, name: str) -> list[Seen]:
        return [span for span in self.spans if span.name == name]

    def wait_for(self, *names: str, seconds: float = 10) -> list[Seen]:
        wait_until(
            lambda: set(names) <= {span.name for span in self.spans}, seconds=seconds, what=f"spans {sorted(names)}"
        )
        return self.spans


def _decode(data: bytes) -> Iterator[Seen]:
    for resource in ExportTraceServiceRequest.FromString(data).resource_spans:
        told = {pair.key: _value(pair.value) for pair in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Seen(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.kind,
                    str(told["service.name"]),
                    int(told.get("process.pid", 0)),
                    {pair.key: _value(pair.value) for pair in span.attributes},
                    tuple(link.trace_id.hex() for link in span.links),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    span.status.code == span.status.STATUS_CODE_ERROR,
                )


def _value(value: AnyValue) -> Fact:
    found: Fact = getattr(value, str(value.WhichOneof("value")))
    return found


@contextmanager
def running_collector() -> Iterator[Collector]:
    """Run a collector on a free port."""
    collector = Collector()

    class Taker(Handler):
        def answer(self) -> None:
            collector.take(self.read_body(), {name.lower(): value for name, value in self.headers.items()})
            self.say()

    with served(Taker) as url:
        collector.url = f"{url}/v1/traces"
        yield collector
