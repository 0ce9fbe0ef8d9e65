"""What is traced, what is taken over from callers, and that nothing is done or loaded while tracing is off."""

import logging
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import ValidationError

from ledger.errors import TracingUnavailableError
from monitoring import traces
from monitoring.config import TracingConfig
from monitoring.trace_recorder import Recorder
from tests.services import wait_until

IDS = f"{'a1' * 16}-{'b2' * 8}"
SAMPLED, UNSAMPLED = f"00-{IDS}-01", f"00-{IDS}-00"
URL = "http://127.0.0.1:1/v1/traces"
HEADER = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[0-3]")


class Recording:
    """A recorder of this process, and what it has sent."""

    def __init__(self, **settings: object) -> None:
        config = TracingConfig(endpoint=URL, **settings)
        self.sent = InMemorySpanExporter()
        self.recorder = Recorder(config, program="test", connect=lambda: self.sent)

    def spans(self) -> dict[str, ReadableSpan]:
        self.recorder.stop()
        return {span.name: span for span in self.sent.get_finished_spans()}


Record = Callable[..., Recording]


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Iterator[Record]:
    def begin(**settings: object) -> Recording:
        made = Recording(**settings)
        monkeypatch.setattr(traces, "_recorder", made.recorder)
        return made

    yield begin
    traces.stop()


@pytest.mark.slow
def test_a_program_that_traces_nothing_loads_nothing_of_it() -> None:
    script = (
        "import sys; import monitoring.traces as t; t.start(__import__('monitoring.config').config.TracingConfig(),"
        " program='api')\n"
        "with t.begin('a', 'x'), t.span('b') as s: s.note({'c': 1}); s.rename('d'); t.note({})\n"
        "assert (t.is_on(), t.current(), t.within('a', 'b')) == (False, None, 'a'); t.stop()\n"
        "assert not [m for m in sys.modules if m.startswith('opentelemetry')]\n"
        "import gateway.relay\n"
        "assert not [m for m in sys.modules if m.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True)


def test_off_every_span_is_the_same_object() -> None:
    assert traces.begin("a") is traces.span("b") is traces.of_job("c", SAMPLED) is traces.UNRECORDED


def test_an_endpoint_without_the_extra_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "monitoring.trace_recorder", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    said = r"^POINTSMAN_TRACING__ENDPOINT: needs `pip install 'pointsman\[tracing\]'`$"
    with pytest.raises(TracingUnavailableError, match=said):
        traces.start(TracingConfig(endpoint=URL), program="api")


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://x/v1", "http://", "http://host:4318", "http://a b/c"])
def test_an_endpoint_is_a_whole_url(endpoint: str) -> None:
    with pytest.raises(ValidationError):
        TracingConfig(endpoint=endpoint)


def test_spans_nest_and_say_what_they_were_told(record: Record) -> None:
    recording = record()
    with traces.begin("POST", kind=traces.Kind.SERVER) as outer:
        with traces.span("submit", facts={"pointsman.tenant": "demo", "pointsman.tier": None}) as inner:
            inner.note({"pointsman.job.is_new": True})
            header = traces.current()
        outer.rename("POST /v1/jobs")
    assert traces.current() is None
    assert header is not None
    assert HEADER.fullmatch(header)
    spans = recording.spans()
    assert set(spans) == {"POST /v1/jobs", "submit"}
    assert spans["submit"].parent is not None
    assert spans["submit"].parent.span_id == spans["POST /v1/jobs"].context.span_id
    assert dict(spans["submit"].attributes or {}) == {"pointsman.tenant": "demo", "pointsman.job.is_new": True}
    assert spans["POST /v1/jobs"].resource.attributes["service.name"] == "pointsman-test"


def test_what_no_source_began_is_not_traced(record: Record) -> None:
    recording = record()
    with traces.span("alone"), traces.of_job("untraced job", None), traces.of_job("broken row", "nonsense"):
        assert traces.current() is None
    traces.past("gone", None, began=1, ended=2)
    assert recording.spans() == {}


def test_an_error_leaves_its_kind_and_not_its_text(record: Record) -> None:
    recording = record()
    secret = "sk-ant-secret of the prompt"
    with pytest.raises(ValueError, match="secret"), traces.begin("fails"):
        raise ValueError(secret)
    (span,) = recording.spans().values()
    assert dict(span.attributes or {}) == {"error.type": "ValueError"}
    assert (span.status.is_ok, span.status.description, span.events) == (False, None, ())
    assert secret not in span.to_json()


def test_a_span_that_names_an_error_has_failed_by_its_first_name(record: Record) -> None:
    recording = record()
    with traces.begin("call") as span:
        row = traces.current()
        span.note({"error.type": None})
    with suppress(ValueError), traces.begin("refused"):
        traces.note({"error.type": "cost_cap"})
        raise ValueError
    traces.past("lost", row, began=1, ended=1, facts={"error.type": "time_limit"})
    found = {
        name: (span.status.is_ok, (span.attributes or {}).get("error.type")) for name, span in recording.spans().items()
    }
    assert found == {"call": (True, None), "refused": (False, "cost_cap"), "lost": (False, "time_limit")}


def test_a_job_s_trace_goes_on_for_as_long_as_its_row_lives(record: Record) -> None:
    recording = record()
    with traces.begin("submit"):
        row = traces.current()
    with traces.of_job("process control", row, kind=traces.Kind.CONSUMER), traces.span("publish"):
        pass
    traces.past("wait control", row, began=100.0, ended=7_300.5)
    spans = recording.spans()
    assert len({span.context.trace_id for span in spans.values()}) == 1
    waited = spans["wait control"]
    assert waited.start_time is not None
    assert waited.end_time is not None
    assert waited.end_time - waited.start_time == 7_200_500_000_000


def test_of_a_caller_s_header_only_the_ids_are_taken_over(record: Record) -> None:
    recording = record()
    with traces.begin("POST", UNSAMPLED):
        assert str(traces.current()).startswith(f"00-{'a1' * 16}-")
    (span,) = recording.spans().values()
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == ("a1" * 16, "b2" * 8)
    assert span.context.trace_state == {}


@pytest.mark.parametrize(
    ("header", "is_trusted", "ratio", "is_recorded"),
    [
        (SAMPLED, False, 0.0, False),
        (UNSAMPLED, False, 1.0, True),
        (SAMPLED, True, 0.0, True),
        (UNSAMPLED, True, 1.0, False),
        (None, True, 1.0, True),
        (None, False, 0.0, False),
    ],
)
def test_the_sample_flag_is_the_caller_s_only_where_the_operator_says_so(
    record: Record, header: str | None, is_trusted: bool, ratio: float, is_recorded: bool
) -> None:
    recording = record(trust_sampled=is_trusted, sample_ratio=ratio)
    with traces.begin("POST", header):
        row = traces.current()
    assert int(str(row)[-2:], 16) % 2 == is_recorded
    with traces.of_job("process spec", row), traces.span("scan"):
        pass
    assert set(recording.spans()) == ({"POST", "process spec", "scan"} if is_recorded else set())


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        "00-" + "0" * 32 + "-" + "b2" * 8 + "-01",
        "00-" + "a1" * 16 + "-" + "0" * 16 + "-01",
        f"ff-{IDS}-01",
        f"00-{IDS}-01-more",
        SAMPLED.upper().replace("-", "_"),
        SAMPLED * 40,
        f"00-{IDS}",
        "\0" * 55,
        "00-" + "١" * 32 + "-" + "b2" * 8 + "-01",
    ],
)
def test_what_is_no_header_begins_a_trace_of_its_own(record: Record, header: str) -> None:
    record()
    with traces.begin("POST", header):
        found = str(traces.current())
    assert HEADER.fullmatch(found)
    assert "a1a1a1a1" not in found


@given(header=st.text(max_size=300))
def test_no_header_can_break_a_source(header: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces, "_recorder", RECORDING.recorder)
        with traces.begin("POST", header, kind=traces.Kind.SERVER):
            assert HEADER.fullmatch(str(traces.current()))
        assert HEADER.fullmatch(str(traces.within(SAMPLED, header)))


RECORDING = Recording()


def test_a_call_stays_within_its_job_s_trace_whatever_it_says(record: Record) -> None:
    record()
    inside = f"00-{'a1' * 16}-{'c3' * 8}-01"
    assert traces.within(SAMPLED, inside) == inside
    assert traces.within(UNSAMPLED, inside) == inside[:-2] + "00"
    assert traces.within(SAMPLED, f"00-{'d4' * 16}-{'c3' * 8}-01") == SAMPLED
    assert traces.within(SAMPLED, "x") == SAMPLED
    assert traces.within(None, inside) is None


def test_a_judgement_of_a_job_is_linked_to_its_trace(record: Record) -> None:
    recording = record()
    with traces.begin("POST"):
        traces.refer_to(SAMPLED)
        traces.refer_to(UNSAMPLED)
        traces.refer_to(traces.current())
        traces.refer_to(None)
    (span,) = recording.spans().values()
    assert [f"{link.context.trace_id:032x}" for link in span.links] == ["a1" * 16]


class Held(InMemorySpanExporter):
    """A collector that answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = threading.Event()

    def export(self, spans: object) -> object:  # type: ignore[override]
        self.may_answer.wait(20)
        return super().export(spans)  # type: ignore[arg-type]


def work(recorder: Recorder, times: int = 1) -> None:
    for _ in range(times):
        with recorder.open("work", None, kind=traces.Kind.INTERNAL, facts={}):
            pass


def test_a_collector_that_says_nothing_costs_bounded_room_and_nobody_s_time(caplog: pytest.LogCaptureFixture) -> None:
    config = TracingConfig(endpoint=URL, queue_spans=100, exit_seconds=0.05)
    held = Held()
    recorder = Recorder(config, program="test", connect=lambda: held)
    began = time.monotonic()
    work(recorder, times=2_000)
    recorder.stop()
    assert time.monotonic() - began < 2
    held.may_answer.set()
    wait_until(lambda: len(held.get_finished_spans()) >= 100, seconds=10, what="what was kept is sent")
    assert len(held.get_finished_spans()) <= 300
    assert "Queue full, dropping Span." in caplog.messages


@pytest.mark.slow
def test_an_exporter_that_raises_loses_what_it_was_to_send_and_nothing_after_that(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    sent, failures = InMemorySpanExporter(), iter([ValueError("no such header"), TypeError("cannot be encoded")])

    def connect() -> SpanExporter:
        for failure in failures:
            raise failure
        return sent

    recorder = Recorder(TracingConfig(endpoint=URL), program="test", connect=connect)

    def is_delivered_again() -> bool:
        work(recorder)
        return "traces_delivered_again" in caplog.messages

    wait_until(is_delivered_again, seconds=10, what="spans get through again")
    recorder.stop()
    lines = [line for line in caplog.records if line.name == "monitoring.trace_recorder"]
    assert [line.getMessage() for line in lines] == ["traces_not_delivered", "traces_delivered_again"]
    assert lines[0].exc_info is not None
    assert vars(lines[1])["spans_lost"] >= 2
    assert sent.get_finished_spans()


@pytest.mark.slow
@pytest.mark.parametrize("answers", [False, True], ids=["nobody listens", "nobody answers"])
def test_a_dead_endpoint_holds_nobody_up(answers: bool, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hole:
        port = hole.getsockname()[1] if answers else 1
        config = TracingConfig(endpoint=f"http://127.0.0.1:{port}/v1/traces", timeout_seconds=1.5, exit_seconds=0.1)
        recorder = Recorder(config, program="test")
        began = time.monotonic()
        work(recorder)
        recorder.stop()
        assert time.monotonic() - began < 1
        wait_until(lambda: caplog.messages, seconds=10, what="the log says so")
    names = ("monitoring", "opentelemetry")
    assert [line.getMessage() for line in caplog.records if line.name.startswith(names)] == ["traces_not_delivered"]
