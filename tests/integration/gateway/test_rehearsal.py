"""The fake provider against the real anthropic SDK: what a client sees, and what the log says it was billed."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from gateway.fake_provider.config import FakeProviderConfig, LoggedCall, billed_nanousd, read_log
from gateway.fake_provider.server import Address, running_fake_provider
from routing.policy.platform import platform_policy
from routing.policy.prices import Usage, cost_nanousd
from tests.lazy import Lazy
from tests.services import wait_until

if TYPE_CHECKING:
    import anthropic
else:
    anthropic = Lazy("anthropic")

HAIKU = "claude-haiku-4-5-20251001"
TOOL: Any = {
    "name": "set_title",
    "description": "Set the title of the page.",
    "input_schema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
}
RULES = """
rules:
  - name: unhurried
    when: {prompt: "unhurried"}
    pace: {first_token_seconds: 0.05, tokens_per_second: 100}
  - name: long
    when: {prompt: "write at length"}
    say: [{wordy: {tokens: 3000}}]
  - name: paced
    when: {prompt: "at a stated pace"}
    pace: {first_token_seconds: 0.2, tokens_per_second: 100}
    say: [{wordy: {tokens: 80}}]
  - name: whole-stall
    when: {prompt: "stop for a moment"}
    fault: {kind: stall, after_characters: 40, seconds: 0.2}
    say: [{wordy: {tokens: 50}}]
"""


def asked(prompt: str, **overrides: Any) -> dict[str, Any]:
    return {"model": HAIKU, "max_tokens": 4000, "messages": [{"role": "user", "content": prompt}]} | overrides


class Server:
    def __init__(self, address: Address, log: Path, sdk: anthropic.Anthropic) -> None:
        self.address, self._log = address, log
        self.client = sdk.with_options(base_url=address.url)

    def ask(self, prompt: str, **overrides: Any) -> Any:
        return self.client.messages.create(**asked(prompt, **overrides))

    def stream(self, prompt: str, **overrides: Any) -> Any:
        return self.client.messages.stream(**asked(prompt, **overrides))

    def logged(self, count: int = 1) -> LoggedCall:
        """Return the last of exactly `count` logged calls."""
        wait_until(lambda: len(read_log(self._log)) >= count, seconds=5, what="the calls are logged")
        calls = read_log(self._log)
        assert len(calls) == count
        return calls[-1]


@pytest.fixture(scope="module")
def sdk() -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture
def server(tmp_path: Path, sdk: anthropic.Anthropic) -> Iterator[Server]:
    (tmp_path / "rules.yaml").write_text(RULES)
    log = tmp_path / "calls.jsonl"
    config = FakeProviderConfig(log=log, speed="max", faults=True, scenarios=(tmp_path / "rules.yaml",))
    with running_fake_provider(config) as address:
        yield Server(address, log, sdk)


def billed(usage: Any) -> Usage:
    return Usage(
        usage.input_tokens, usage.output_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens
    )


def test_a_text_reply_bills_what_the_log_says(server: Server) -> None:
    reply = server.ask("When do you open?", extra_headers={"x-pointsman-call": "call-7"})
    call = server.logged()
    assert "When do you open?" in reply.content[0].text
    assert reply.stop_reason == "end_turn"
    assert call.usage == billed(reply.usage)
    assert call.output_tokens == -(-len(reply.content[0].text) // 4)
    assert (call.status, call.finish, call.call, call.stream) == (200, "completed", "call-7", False)
    prices = platform_policy().prices
    assert billed_nanousd(call, prices) == cost_nanousd(prices[HAIKU], call.usage)


def test_a_streamed_reply_equals_the_whole_one(server: Server) -> None:
    whole = server.ask("When do you open?")
    with server.stream("When do you open?") as stream:
        kinds = [event.type for event in stream]
        streamed = stream.get_final_message()
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    assert streamed.content[0].text == whole.content[0].text
    assert billed(streamed.usage) == billed(whole.usage) == server.logged(2).usage


def test_the_first_event_says_what_the_input_costs(server: Server) -> None:
    with server.ask("Hi", max_tokens=50, stream=True) as stream:
        first, *_, delta, _ = list(stream)
    assert first.message.usage.output_tokens == 1
    assert first.message.usage.input_tokens == delta.usage.input_tokens > 0
    assert delta.usage.output_tokens == 50


def test_counting_tokens_foretells_the_bill(server: Server) -> None:
    message: Any = {"role": "user", "content": "How much is this? ü"}
    counted = server.client.messages.count_tokens(model=HAIKU, messages=[message], tools=[TOOL], system="Be short")
    reply = server.ask("", messages=[message], tools=[TOOL], system="Be short")
    assert counted.input_tokens == reply.usage.input_tokens == server.logged().input_tokens


def test_a_rate_limit_says_when_to_come_back_and_costs_nothing(server: Server) -> None:
    with pytest.raises(anthropic.RateLimitError) as caught:
        server.ask("Go [rehearse:rate-limit]")
    assert caught.value.response.headers["retry-after"] == "1"
    assert caught.value.body["error"]["type"] == "rate_limit_error"
    call = server.logged()
    assert (call.status, call.finish, call.rule, call.usage) == (429, "fault", "rate-limit", Usage())


def test_an_overload_passes_when_the_sdk_tries_again(server: Server) -> None:
    with pytest.raises(anthropic.APIStatusError) as caught:
        server.ask("Go [rehearse:overload]")
    assert caught.value.status_code == 529
    assert caught.value.body["error"]["type"] == "overloaded_error"
    server.client = server.client.with_options(max_retries=3)
    assert server.ask("Go [rehearse:overload]").stop_reason
    assert server.logged(3).status == 200


def test_a_cut_stream_raises_and_bills_what_was_sent(server: Server) -> None:
    received: list[str] = []
    with server.stream("Go on [rehearse:cut]") as stream, pytest.raises(httpx2.RemoteProtocolError):
        received.extend(stream.text_stream)
    call = server.logged()
    assert len("".join(received)) == call.characters == 200
    assert (call.finish, call.output_tokens) == ("server_cut", 50)


def test_a_cut_without_streaming_is_a_connection_error(server: Server) -> None:
    with pytest.raises(anthropic.APIConnectionError):
        server.ask("Go on [rehearse:cut]")
    call = server.logged()
    assert (call.finish, call.status) == ("server_cut", None)


def test_an_error_in_mid_stream_is_an_api_error(server: Server) -> None:
    with pytest.raises(anthropic.APIStatusError) as caught, server.stream("Go on [rehearse:break]") as stream:
        stream.get_final_message()
    assert caught.value.body["error"]["type"] == "overloaded_error"
    call = server.logged()
    assert (call.finish, call.output_tokens) == ("fault", 50)


@pytest.mark.parametrize("streamed", [True, False])
def test_malformed_json_cannot_be_read(server: Server, streamed: bool) -> None:
    body = asked("x [rehearse:malformed]", stream=streamed)
    with httpx2.Client() as client:
        reply = client.post(f"{server.address.url}/v1/messages", json=body, headers={"authorization": "Bearer t"})
    last = reply.text.rsplit("data: ", 1)[-1].split("\n\n")[0]
    with pytest.raises(json.JSONDecodeError):
        json.loads(last)
    assert server.logged().finish == "fault"


def test_a_client_that_closes_mid_stream_is_billed_exactly_what_it_got(server: Server) -> None:
    received = ""
    with server.stream("Write at length, unhurried") as stream:
        for text in stream.text_stream:
            received += text
            if len(received) >= 200:
                break
    call = server.logged()
    assert call.finish == "client_cut"
    assert call.characters == len(received)
    assert call.output_tokens == -(-len(received) // 4)
    assert call.input_tokens > 0


def test_a_client_that_closes_before_the_reply_is_billed_the_input_alone(server: Server) -> None:
    with pytest.raises(anthropic.APITimeoutError):
        server.ask("Go [rehearse:slow]", timeout=0.2)
    call = server.logged()
    assert (call.finish, call.status, call.output_tokens) == ("client_cut", None, 0)
    assert call.input_tokens > 0


def test_a_stalled_reply_goes_on_when_the_client_waits(server: Server) -> None:
    started = time.monotonic()
    with server.stream("Stop for a moment") as stream:
        text = stream.get_final_text()
    assert len(text) == 200
    assert time.monotonic() - started >= 0.2
    assert server.logged().finish == "completed"


def test_a_client_that_loses_patience_in_a_stall_is_logged_so(server: Server) -> None:
    with pytest.raises(httpx2.ReadTimeout), server.stream("Go [rehearse:stall]", timeout=0.3) as stream:
        stream.get_final_message()
    call = server.logged()
    assert (call.finish, call.characters, call.output_tokens) == ("stalled", 200, 50)


def test_a_key_is_required_in_the_api_shape(server: Server) -> None:
    with httpx2.Client(base_url=server.address.url) as client:
        refused = client.post("/v1/messages", json=asked("Hi"))
        unknown = client.get("/v1/elsewhere")
        hello = client.head("/api/hello")
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
    assert refused.headers["request-id"] == refused.json()["request_id"] == server.logged().id
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "not_found_error")
    assert hello.status_code == 200
    assert server.logged().finish == "refused"


def test_a_short_reply_keeps_the_stated_pace(server: Server) -> None:
    started = time.monotonic()
    with server.stream("Speak at a stated pace") as stream:
        stream.get_final_message()
    assert time.monotonic() - started == pytest.approx(0.2 + 80 / 100, rel=0.25)


def test_the_program_says_where_it_listens_keeps_the_policys_pace_and_logs_what_its_end_cut(
    tmp_path: Path, sdk: anthropic.Anthropic
) -> None:
    log = tmp_path / "calls.jsonl"
    command = [sys.executable, "-m", "producers.cli", "fake-provider", "--port", "0", "--log", str(log), "--faults"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            ready = json.loads(program.stdout.readline())
            server = Server(Address(**ready), log, sdk)
            started = time.monotonic()
            reply = server.ask("Say it [rehearse:wordy]", max_tokens=60)
            speed = platform_policy().speeds[HAIKU]
            expected = speed.first_token_seconds + reply.usage.output_tokens / speed.tokens_per_second
            assert time.monotonic() - started == pytest.approx(expected, rel=0.25)
            with server.stream("Go [rehearse:wordy]") as stream:
                next(iter(stream.text_stream))
                program.send_signal(signal.SIGTERM)
                with pytest.raises(httpx2.RemoteProtocolError):
                    stream.until_done()
            assert program.wait(5) == 0
        finally:
            program.kill()
    assert [call.finish for call in read_log(log)] == ["completed", "server_cut"]


def test_a_port_that_is_taken_is_an_error_with_an_exit_code(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "producers.cli", "fake-provider", "--port", str(taken.getsockname()[1])]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 1
    assert "in use" in ended.stderr
    assert "Traceback" not in ended.stderr
