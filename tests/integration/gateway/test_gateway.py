"""The gateway as its callers meet it: the real SDK, a real ledger, and providers that behave and misbehave."""

from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from aiohttp import web
from sqlalchemy import text

from gateway.client import ModelClient, ModelReply, Stop, Text, Turn, is_away
from gateway.errors import (
    BudgetExceededError,
    CancelledCallError,
    FencedCallError,
    GatewayUnreachableError,
    NoProviderKeyError,
    ProviderBusyError,
    ProviderError,
)
from gateway.fake_provider.config import FakeProviderConfig, billed_nanousd, read_log
from gateway.fake_provider.server import running_fake_provider
from gateway.ledger_client import Ledger as LedgerClient
from gateway.server import server_config
from ledger.money import presume_lost_calls
from ledger.store import Ledger
from routing.config import key_fingerprint
from routing.model_call import LITTLE_TIME, today_line
from routing.policy.platform import platform_policy
from routing.policy.prices import Usage, cost_nanousd
from tests.integration.gateway.gateway_world import (
    HAIKU,
    KEY,
    TOOL,
    Held,
    Rehearsed,
    ScriptedProvider,
    World,
    block,
    closing,
    event,
    gateway_config,
    gateway_world,
    message,
    opening,
    provider,
    scenario,
    scripted_provider,
    scripted_world,
    stream,
    words,
)
from tests.lazy import Lazy
from tests.services import wait_until
from tests.threads import serve_in_thread

if TYPE_CHECKING:
    import anthropic
else:
    anthropic = Lazy("anthropic")

PRICE = platform_policy().prices[HAIKU]
RULES = """
rules:
  - name: paced
    when: {prompt: "slowly"}
    pace: {first_token_seconds: 0.15, tokens_per_second: 200}
    say: [{wordy: {tokens: 400}}]
  - name: crawling
    when: {prompt: "at a crawl"}
    pace: {first_token_seconds: 0.15, tokens_per_second: 40}
    say: [{wordy: {tokens: 400}}]
  - name: dear
    when: {prompt: "dearly"}
    usage: {input_tokens: 60000}
    pace: {first_token_seconds: 0.05, tokens_per_second: 200}
    say: [{wordy: {tokens: 400}}]
"""


@pytest.fixture
def rehearsed(ledger: Ledger, ledger_url: str, tmp_path: Path) -> Iterator[Rehearsed]:
    rules = scenario(tmp_path, RULES)
    config = FakeProviderConfig(log=tmp_path / "log", speed="max", scenarios=(rules,), faults=True)
    with (
        running_fake_provider(config) as upstream,
        gateway_world(ledger, ledger_url, {"fake": provider(upstream.url)}) as world,
    ):
        yield Rehearsed(**vars(world), log=tmp_path / "log")


def ask(world: World, held: Held, prompt: Turn = "hello", *, max_tokens: int = 1500) -> ModelReply:
    with world.client(held) as client:
        return client.create([prompt], model=HAIKU, max_tokens=max_tokens)


def leave_after(world: World, held: Held, body: dict[str, Any], *, seconds: float, admitted: bool = False) -> None:
    """Call, and be gone without a word after a while (counted from the admission), as a killed worker is."""
    content = json.dumps(body).encode()
    host, port = world.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {held.token}\r\n"
        connection.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        if admitted:
            wait_until(lambda: world.calls(held.job_id), seconds=10, what="the call is admitted")
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            connection.settimeout(left)
            try:
                connection.recv(65536)
            except TimeoutError:
                return


# -- what a call costs -------------------------------------------------------------------------------------------------


def test_cached_input_is_billed_at_its_own_prices(rehearsed: Rehearsed) -> None:
    held = rehearsed.attempt()
    for calls in (1, 2):
        ask(rehearsed, held, prompt=[Text("You know a lot. " * 500, ends_prefix=True), Text("What do you know?")])
        assert [call.state for call in rehearsed.calls()] == ["settled"] * calls, "booked before the last byte is sent"
    assert rehearsed.own_bill() == rehearsed.provider_bill(2)
    written, read = rehearsed.calls()
    assert written.cache_write_tokens == read.cache_read_tokens > 1000


def test_a_reply_that_an_earlier_attempt_paid_for_is_read_once_and_otherwise_asked_for(rehearsed: Rehearsed) -> None:
    held = rehearsed.attempt()
    replies: dict[str, Any] = {}
    for calls in (2, 3):
        with ModelClient(rehearsed.url, held.token, replies=replies) as client:
            first, second = (client.create(["hello"], model=HAIKU, max_tokens=1500) for _ in range(2))
        assert (first.text, first.stop) == (second.text, second.stop)
        assert len(rehearsed.calls()) == calls
    rehearsed.check_books()


def test_a_repeated_request_is_not_paid_again_because_less_time_or_another_day_was_told(rehearsed: Rehearsed) -> None:
    held = rehearsed.attempt()
    replies: dict[str, Any] = {}
    days = (datetime(2026, 11, 27, tzinfo=UTC), datetime(2026, 11, 28, tzinfo=UTC))
    for told in (f"{today_line(days[0])} done{LITTLE_TIME}", f"{today_line(days[1])} done"):
        with ModelClient(rehearsed.url, held.token, replies=replies) as client:
            client.create([told], model=HAIKU, max_tokens=1500)
    assert len(rehearsed.calls()) == 1


def test_a_reply_that_the_provider_breaks_off_is_billed_for_what_may_have_been_written(rehearsed: Rehearsed) -> None:
    held = rehearsed.attempt()
    for tag in ("cut", "break"):
        with pytest.raises((ProviderError, ProviderBusyError)):
            ask(rehearsed, held, prompt=f"[rehearse:{tag}] write a long text")
    assert rehearsed.own_bill() >= rehearsed.provider_bill(2) > 0
    for call in rehearsed.calls():
        most = cost_nanousd(PRICE, Usage(call.input_tokens, call.max_tokens))
        assert (call.finish, call.state, call.cost_nanousd) == ("provider_gone", "presumed", most)
    rehearsed.check_books()


@pytest.mark.threat("C5")
@pytest.mark.parametrize("seconds", [0.03, 0.3, 0.61, 1.0])
def test_a_caller_that_leaves_pays_what_may_have_been_written_for_it(rehearsed: Rehearsed, seconds: float) -> None:
    held = rehearsed.attempt()
    leave_after(rehearsed, held, message("write slowly", stream=True), seconds=seconds, admitted=True)
    assert rehearsed.own_bill() >= rehearsed.provider_bill(1) > 0
    [call], [logged] = rehearsed.calls(), rehearsed.logged(1)
    assert (call.finish, call.state, logged.finish) == ("client_gone", "presumed", "client_cut")
    assert call.cost_nanousd == cost_nanousd(PRICE, Usage(logged.input_tokens, call.max_tokens))


@pytest.mark.threat("C5")
def test_a_caller_that_leaves_a_call_that_is_not_streamed_pays_its_worst_case(rehearsed: Rehearsed) -> None:
    held = rehearsed.attempt()
    leave_after(rehearsed, held, message("write slowly"), seconds=0.4, admitted=True)
    wait_until(lambda: rehearsed.calls() and rehearsed.is_settled(), seconds=5, what="the call is booked")
    [call] = rehearsed.calls()
    assert (call.finish, call.state) == ("client_gone", "presumed")
    assert call.cost_nanousd == call.reserved_nanousd >= rehearsed.provider_bill(1)


def test_every_call_is_booked_exactly_once_however_its_callers_leave(rehearsed: Rehearsed) -> None:
    held = rehearsed.attempt(cap_usd=0.65)
    rehearsed.execute("INSERT INTO cap VALUES ('tier', :key, 1, 0, 0)", key=f"{held.job_id}/answer")
    with ThreadPoolExecutor(6) as pool:
        delays = [number * 0.03 for number in range(48)]
        list(
            pool.map(
                lambda delay: leave_after(
                    rehearsed, held, message("write slowly", stream=True, max_tokens=300), seconds=delay
                ),
                delays,
            )
        )
    wait_until(rehearsed.is_settled, seconds=10, what="every call is booked")
    rehearsed.check_books()
    calls = rehearsed.calls()
    assert len(rehearsed.events("call")) == len(calls) > 10
    assert all(cap.reserved_nanousd == 0 for cap in rehearsed.caps().values())


# -- caps --------------------------------------------------------------------------------------------------------------


@pytest.mark.threat("C3")
def test_of_ten_parallel_calls_on_a_budget_for_one_exactly_one_is_admitted(rehearsed: Rehearsed) -> None:
    held = rehearsed.attempt(cap_usd=0.008)
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: rehearsed.post(held, message("write slowly", stream=True)), range(10)))
    assert sorted(answer.status_code for answer in answers) == [200] + [429] * 9
    for answer in answers:
        if answer.status_code == 429:
            assert answer.json()["error"]["type"] == "billing_error"
            assert "job budget" in answer.json()["error"]["message"]
            assert answer.headers["x-should-retry"] == "false"
    assert len(rehearsed.logged(1)) == 1
    hits = rehearsed.events("limit_hit")
    assert len(hits) == 9
    assert {(hit["limit"], hit["phase"], hit["scope"]) for hit in hits} == {("cost", "admit", "job")}
    rehearsed.check_books()


def test_a_call_gets_the_output_tokens_that_the_cap_has_room_for(rehearsed: Rehearsed) -> None:
    held = rehearsed.attempt(cap_usd=0.006)
    reply = ask(rehearsed, held, prompt="[rehearse:wordy]")
    [call] = rehearsed.calls()
    assert 1024 <= call.max_tokens < 1500
    assert reply.usage.output_tokens == call.max_tokens
    assert reply.stop is Stop.MAX_TOKENS
    with pytest.raises(BudgetExceededError, match=r"job budget has \$0\.0\d+ left"):
        ask(rehearsed, held)


@pytest.mark.threat("C6")
def test_a_huge_max_tokens_is_lowered_to_the_policys(rehearsed: Rehearsed) -> None:
    ask(rehearsed, rehearsed.attempt(), max_tokens=10**9)
    assert [call.max_tokens for call in rehearsed.calls()] == [rehearsed.policy.gateway.max_output_tokens]


def test_a_tenants_own_lower_limit_holds(ledger: Ledger, ledger_url: str) -> None:
    with scripted_world(ledger, ledger_url, opening(), block(), closing(output_tokens=5)) as (_, world):
        world.tenant("thrifty", provider="own", overrides={"queues": {"answer": {"llm_usd": 0.001}}})
        with pytest.raises(BudgetExceededError, match="tier budget"):
            ask(world, world.attempt(tenant="thrifty"))
        ask(world, world.attempt())


def test_the_providers_count_admits_what_the_bodys_size_would_not(ledger: Ledger, ledger_url: str) -> None:
    reply = (opening(input_tokens=1000), block(), words("yes"), closing(output_tokens=5))
    with scripted_world(ledger, ledger_url, *reply) as (up, world):
        body = message("word " * 10_000, stream=True)
        assert world.post(world.attempt(cap_usd=0.01), body).status_code == 429
        up.count_answer = {"input_tokens": 1000}
        assert world.post(world.attempt(cap_usd=0.01), body).status_code == 200
        assert up.counts[1].keys() == {"model", "messages"}
        assert [call.reserved_nanousd < 10_000_000 for call in world.calls()] == [True]


def test_a_job_whose_prompt_is_cached_goes_on_until_its_budget_is_used(rehearsed: Rehearsed) -> None:
    cap_usd, held = 0.04, rehearsed.attempt(cap_usd=0.04)
    prompt = [Text("You know a lot. " * 2500, ends_prefix=True), Text("[rehearse:wordy] What do you know?")]
    with suppress(BudgetExceededError):
        for _ in range(20):
            ask(rehearsed, held, prompt=prompt, max_tokens=1100)
    assert rehearsed.own_bill() >= 0.8 * cap_usd * 1e9
    assert rehearsed.own_bill() <= cap_usd * 1e9
    assert all(call.cost_nanousd <= call.reserved_nanousd for call in rehearsed.calls())


@pytest.mark.threat("C4")
def test_a_stream_is_cut_as_soon_as_it_has_used_its_reserve(rehearsed: Rehearsed) -> None:
    held = rehearsed.attempt()
    with pytest.raises(BudgetExceededError):
        ask(rehearsed, held, prompt="write dearly")
    [call] = rehearsed.calls()
    [logged] = rehearsed.logged(1)
    assert (call.finish, call.state) == ("cut", "presumed")
    assert logged.finish == "client_cut"
    assert logged.characters <= 40, "more than one chunk was let through"
    assert rehearsed.own_bill() >= rehearsed.provider_bill(1) > 60_000_000 > call.reserved_nanousd
    assert [hit["phase"] for hit in rehearsed.events("limit_hit")] == ["stream"]
    with pytest.raises(BudgetExceededError, match="tier budget"):
        ask(rehearsed, held)


@pytest.mark.threat("C4")
def test_a_provider_that_ignores_max_tokens_is_cut_and_what_it_wrote_is_billed(ledger: Ledger, ledger_url: str) -> None:
    parts = (opening(), block(), *(words("x" * 400) for _ in range(200)), closing(output_tokens=20_000))
    with scripted_world(ledger, ledger_url, *parts, pause=0.001) as (up, world):
        answer = world.post(world.attempt(), message(stream=True, max_tokens=1000))
        assert answer.text.rstrip().rsplit("\n\n", 1)[-1].startswith("event: error")
        assert '"billing_error"' in answer.text
        wait_until(up.gone.is_set, seconds=5, what="the provider's stream is closed")
        [call] = world.calls()
        passed_on = answer.text.count("x" * 400) * 400
        assert passed_on <= 1000 * 6
        assert call.output_tokens >= passed_on / 4
        assert call.cost_nanousd > call.reserved_nanousd


def test_a_reply_of_long_words_at_its_max_tokens_is_not_cut(ledger: Ledger, ledger_url: str) -> None:
    parts = (opening(input_tokens=10), block(), *(words("x" * 50) for _ in range(100)), closing(output_tokens=1000))
    with scripted_world(ledger, ledger_url, *parts) as (_, world):
        answer = world.post(world.attempt(), message(stream=True, max_tokens=1000))
        assert "event: error" not in answer.text
        assert [call.output_tokens for call in world.calls()] == [1000]


# -- who may call ------------------------------------------------------------------------------------------------------


@pytest.mark.threat("C2")
@pytest.mark.parametrize(
    ("change", "status", "error"),
    [
        ("UPDATE attempt SET ended_at = now()", 401, FencedCallError),
        ("UPDATE attempt SET deadline = now() - interval '1 second'", 401, FencedCallError),
        ("UPDATE attempt SET token_hash = 'another'", 401, FencedCallError),
        ("UPDATE job SET fence = fence + 1", 403, FencedCallError),
        ("UPDATE job SET cancel_requested_at = now()", 403, CancelledCallError),
        ("UPDATE tenant SET provider = 'unheard-of'", 403, NoProviderKeyError),
        ('UPDATE tenant SET overrides = \'{"budgets": {"job_usd": 1000}}\'', 403, ProviderError),
    ],
)
def test_a_token_is_worth_nothing_once_its_attempt_may_not_call(
    rehearsed: Rehearsed, change: str, status: int, error: type[Exception]
) -> None:
    held = rehearsed.attempt()
    rehearsed.execute(change)
    with pytest.raises(error):
        ask(rehearsed, held)
    for to in ("", "count_tokens"):  # which reserves nothing: all rests on the bearer
        answer = rehearsed.post(held, message(), to=to)
        assert answer.status_code == status
        assert answer.json()["error"]["type"] == {401: "authentication_error", 403: "permission_error"}[status]
    assert read_log(rehearsed.log) == []
    assert rehearsed.calls() == []


@pytest.mark.threat("C2")
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("UPDATE attempt SET ended_at = now()", FencedCallError),
        ("UPDATE attempt SET deadline = now() - interval '1 second'", FencedCallError),
        ("UPDATE attempt SET token_hash = id::text", FencedCallError),
        ("UPDATE attempt SET egress_address = '10.0.0.1'", ProviderError),
        ("UPDATE job SET fence = fence + 1", FencedCallError),
        ("UPDATE job SET cancel_requested_at = now()", CancelledCallError),
        ("UPDATE tenant SET provider = NULL", NoProviderKeyError),
        ('UPDATE tenant SET overrides = \'{"budgets": {"job_usd": 1000}}\'', ProviderError),
    ],
)
def test_who_called_a_moment_ago_is_refused_at_once_when_that_is_over(
    rehearsed: Rehearsed, monkeypatch: pytest.MonkeyPatch, change: str, error: type[Exception]
) -> None:
    looked_up = []
    look_up = LedgerClient.bearer
    monkeypatch.setattr(LedgerClient, "bearer", lambda *given: (looked_up.append(given), look_up(*given))[1])
    held, other = rehearsed.attempt(), rehearsed.attempt()
    for caller in (held, held, held, other):
        ask(rehearsed, caller)
    assert len(looked_up) == 2
    rehearsed.execute(change)
    with pytest.raises(error):
        ask(rehearsed, held)
    assert rehearsed.post(other, message(), to="count_tokens").is_error, "which reserves nothing"
    assert len(rehearsed.logged(4)) == len(rehearsed.calls()) == 4
    assert len(looked_up) == 4


def test_a_change_that_leaves_a_caller_its_right_holds_for_its_next_call(rehearsed: Rehearsed) -> None:
    held = rehearsed.attempt()
    ask(rehearsed, held)
    rehearsed.execute('UPDATE tenant SET overrides = \'{"queues": {"answer": {"llm_usd": 0.01}}}\'')
    ask(rehearsed, held, max_tokens=1200)
    assert [cap.limit_nanousd for scope, cap in rehearsed.caps().items() if scope == "tier"] == [10_000_000]
    rehearsed.check_books()


@pytest.mark.req("S-066", "S-067", "P-037")
def test_each_tenants_calls_go_to_its_own_provider_with_its_own_key(ledger: Ledger, ledger_url: str) -> None:
    def reply(played: ScriptedProvider, http: web.Request) -> Any:
        return stream(played, http, opening(), block(), closing(output_tokens=5))

    with scripted_provider(reply) as one, scripted_provider(reply) as two:
        providers = {
            "one": provider(one.url, label="one", key="key-one"),
            "two": provider(two.url, label="two", key="key-two"),
        }
        with gateway_world(ledger, ledger_url, providers) as world:
            world.tenant("other", provider="two")
            ask(world, world.attempt())
            ask(world, world.attempt(tenant="other"))
            assert [headers["x-api-key"] for headers, _ in one.requests] == ["key-one"]
            assert [headers["x-api-key"] for headers, _ in two.requests] == ["key-two"]
            hashes = {call.provider: call.key_hash for call in world.calls()}
            assert hashes == {n: key_fingerprint(f"key-{n}", pepper="pepper-pepper-pepper") for n in ("one", "two")}


def test_of_the_callers_headers_only_those_of_the_api_pass(ledger: Ledger, ledger_url: str) -> None:
    with scripted_world(ledger, ledger_url, opening(), block(), closing(output_tokens=5)) as (up, world):
        held = world.attempt()
        body = message(metadata={"user_id": "u"}, output_config={"effort": "high"})
        betas = "claude-code-20250219,code-execution-2025-08-25, effort-2025-11-24"
        world.post(
            held,
            body,
            **{
                "anthropic-beta": betas,
                "anthropic-x": "y",
                "cookie": "c",
                "x-forwarded-for": "1.2.3.4",
                "x-api-key": "z",
            },
        )
        [(headers, sent)] = up.requests
        names = {name.lower() for name in headers}
        assert names == {
            "host",
            "accept",
            "user-agent",
            "content-type",
            "content-length",
            "accept-encoding",
            "anthropic-beta",
            "anthropic-version",
            "x-api-key",
            "x-pointsman-call",
        }
        assert headers["anthropic-beta"] == "claude-code-20250219,effort-2025-11-24"
        assert headers["x-api-key"] == KEY
        assert held.token not in json.dumps(headers)
        assert sent == body


# -- what may be asked -------------------------------------------------------------------------------------------------


_WRONG_BODIES: list[tuple[dict[str, Any] | bytes, int]] = [
    (message(model="claude-opus-4-6"), 403),
    (message(model="unheard-of"), 403),
    (message(tools=[{"type": "web_search_20250305", "name": "web_search"}]), 403),
    (message(tools=[TOOL, {"type": "code_execution_20250522", "name": "code_execution"}]), 403),
    (message(mcp_servers=[{"type": "url", "url": "https://example.org", "name": "x"}]), 403),
    (message(max_tokens=0), 400),
    (message(max_tokens="many"), 400),
    (message(messages="hello"), 400),
    (b"[]", 400),
    (b'{"model":', 400),
    (json.dumps(message()).encode()[:-1] + b',"model":"claude-opus-4-6"}', 403),
]


@pytest.mark.threat("C6")
def test_a_body_that_breaks_a_rule_costs_nothing_and_reaches_nobody(
    rehearsed: Rehearsed, subtests: pytest.Subtests
) -> None:
    held = rehearsed.attempt()
    for body, status in _WRONG_BODIES:
        with subtests.test(body=body):
            answer = rehearsed.post(held, body)
            assert answer.status_code == status
            assert answer.json()["type"] == "error"
            assert answer.json()["error"].keys() == {"type", "message", "details"}
    assert rehearsed.calls() == []
    assert read_log(rehearsed.log) == []


def test_a_body_larger_than_the_policys_limit_is_refused(ledger: Ledger, ledger_url: str) -> None:
    rules = platform_policy().gateway.model_copy(update={"max_body_bytes": 2000})
    policy = platform_policy().model_copy(update={"gateway": rules})
    with gateway_world(ledger, ledger_url, {"own": provider("http://127.0.0.1:9")}, policy=policy) as world:
        assert world.post(world.attempt(), message("x" * 2000)).status_code == 413


_WRONG_PATHS = [
    ("POST", "/v1/files"),
    ("GET", "/v1/messages"),
    ("GET", "/v1/models"),
    ("POST", "/v1/messages/batches"),
    ("POST", "/v1/messages/../files"),
    ("CONNECT", "/"),
    ("GET", "/"),
]


@pytest.mark.threat("C6")
def test_every_other_path_is_unknown(rehearsed: Rehearsed, subtests: pytest.Subtests) -> None:
    headers = {"x-api-key": rehearsed.attempt().token}
    once = httpx2.Limits(max_keepalive_connections=0)  # what follows a CONNECT on its connection is no request
    with httpx2.Client(trust_env=False, verify=False, base_url=rehearsed.url, headers=headers, limits=once) as client:
        for method, path in _WRONG_PATHS:
            with subtests.test(method=method, path=path):
                answer = client.request(method, path, content=json.dumps(message()))
                assert answer.status_code == 404
                assert answer.json()["error"]["type"] == "not_found_error"


def test_the_gateway_says_that_it_is_there(rehearsed: Rehearsed) -> None:
    assert httpx2.get(f"{rehearsed.url}/healthz", trust_env=False, verify=False).status_code == 200
    assert httpx2.get(f"{rehearsed.url}/api/hello", trust_env=False, verify=False).status_code == 200
    assert httpx2.head(f"{rehearsed.url}/api/hello", trust_env=False, verify=False).status_code == 200


# -- while a call is open ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("UPDATE job SET cancel_requested_at = now()", CancelledCallError),
        ("UPDATE job SET fence = fence + 1", FencedCallError),
        ("UPDATE attempt SET ended_at = now()", FencedCallError),
    ],
)
def test_an_open_stream_is_cut_when_its_attempt_may_not_go_on(
    rehearsed: Rehearsed, change: str, error: type[Exception]
) -> None:
    held = rehearsed.attempt()

    def stop() -> None:
        wait_until(lambda: rehearsed.calls(held.job_id), seconds=20, what="the call is open")
        threading.Timer(0.4, rehearsed.execute, (change,)).start()

    threading.Thread(target=stop).start()
    with pytest.raises(error):
        ask(rehearsed, held, prompt="write slowly")
    assert rehearsed.own_bill() >= rehearsed.provider_bill(1) > 0
    assert [call.finish for call in rehearsed.calls()] == ["cut"]
    assert rehearsed.logged(1)[0].finish == "client_cut"


class _Interrupt(BaseException):
    """Stands for the worker's soft time limit."""


def test_a_time_limit_passes_through_the_client_and_closes_the_stream(rehearsed: Rehearsed) -> None:
    def interrupt(_number: int, _frame: object) -> None:
        raise _Interrupt

    held = rehearsed.attempt()
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(_Interrupt):
            ask(rehearsed, held, prompt="write slowly")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    served = rehearsed.provider_bill(1)  # only then is there a call to be booked
    assert rehearsed.own_bill() >= served > 0
    assert [call.finish for call in rehearsed.calls()] == ["client_gone"]


def test_the_leases_of_open_calls_are_renewed(ledger: Ledger, ledger_url: str) -> None:
    parts = (opening(), block(), *(words("x") for _ in range(10)), closing(output_tokens=5))
    with scripted_world(ledger, ledger_url, *parts, pause=0.1, renew_seconds=0.1) as (_, world):
        held = world.attempt()
        caller = threading.Thread(target=ask, args=(world, held))
        caller.start()
        wait_until(world.calls, seconds=5, what="the call is open")
        world.execute("UPDATE call SET lease_until = now()")
        with world.ledger.begin() as session:
            alive = "SELECT lease_until > now() + interval '20 seconds' FROM call"
            wait_until(lambda: session.connection().scalar(text(alive)), seconds=3, what="the lease is renewed")
        caller.join()
        assert [call.finish for call in world.calls()] == ["completed"]


# -- a provider in trouble ---------------------------------------------------------------------------------------------


def test_a_gateway_that_stood_still_says_so_to_who_ran_out_of_time_meanwhile(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.open_calls._STILL_SECONDS", 0.3)
    server = server_config(gateway_config({}, watch_seconds=0.1), ledger_url, platform_policy())
    gateway: Any = server.app

    async def freezable(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") == "/freeze":
            time.sleep(0.7)
        await gateway(scope, receive, send)

    server.app = freezable
    with serve_in_thread(server, name="gateway") as url:
        assert not is_away(url, within_seconds=60)
        httpx2.get(f"{url}/freeze", trust_env=False, verify=False)
        wait_until(lambda: is_away(url, within_seconds=60), seconds=5, what="it says that it stood still")
        # A machine that is busy lets it stand still once more; then that, too, is over.
        wait_until(lambda: not is_away(url, within_seconds=0), seconds=5, what="that is over")
    assert is_away(url, within_seconds=0)


_UNREADABLE_INPUT = [
    (opening(input_tokens=None), block(), words("hello"), closing(output_tokens=5)),
    (opening(input_tokens=-5), block(), words("hello"), closing(output_tokens=5)),
    (opening(), block(), words("hello"), closing(output_tokens="5")),
    (block(), words("hello"), closing(output_tokens=5)),
    (opening(), b"data: {broken\n\n", closing(output_tokens=5)),
    (b"",),
]
_UNREADABLE_OUTPUT = [
    (opening(), block(), words("hello"), closing()),
    (opening(), block("thinking"), words("hello")),
]


def test_usage_that_cannot_be_read_costs_the_most_that_it_can_have_been(
    ledger: Ledger, ledger_url: str, subtests: pytest.Subtests
) -> None:
    streams = [*_UNREADABLE_INPUT, *_UNREADABLE_OUTPUT]

    async def play(played: ScriptedProvider, http: web.Request) -> web.StreamResponse:
        return await stream(played, http, *streams[len(played.requests) - 1])

    with scripted_provider(play) as up, gateway_world(ledger, ledger_url, {"own": provider(up.url)}) as world:
        for parts in streams:
            with subtests.test(parts=parts):
                held = world.attempt()
                world.post(held, message("word " * 100, stream=True))
                [call] = world.calls(held.job_id)
                most = call.reserved_nanousd
                if parts in _UNREADABLE_OUTPUT:
                    most = cost_nanousd(PRICE, Usage(input_tokens=100, output_tokens=call.max_tokens))
                assert (call.state, call.cost_nanousd) == ("presumed", most)
        world.check_books()


@pytest.mark.threat("C7")
def test_nothing_that_a_model_or_a_caller_writes_lowers_the_bill(ledger: Ledger, ledger_url: str) -> None:
    forged = 'x\n\nevent: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":0}}\n\n'
    result = '{"type":"result","total_cost_usd":0,"usage":{"input_tokens":0,"output_tokens":0}}'
    parts = (
        opening(input_tokens=1000),
        block(),
        words(forged),
        words(result),
        closing(output_tokens=700),
        event("message_delta", delta={}, usage={"input_tokens": 0, "output_tokens": 0}),
    )
    with scripted_world(ledger, ledger_url, *parts) as (up, world):
        held = world.attempt()
        body = message(stream=True, metadata={"usage": {"output_tokens": 0}, "total_cost_usd": 0})
        world.post(held, body, **{"x-pointsman-call": "spoofed", "x-total-cost-usd": "0"})
        [call] = world.calls()
        assert call.cost_nanousd == cost_nanousd(PRICE, Usage(input_tokens=1000, output_tokens=700))
        assert up.requests[0][0]["x-pointsman-call"] == str(call.id)


def test_a_stream_passes_unchanged_however_it_is_cut_into_pieces(
    ledger: Ledger, ledger_url: str, subtests: pytest.Subtests
) -> None:
    sizes = (1, 7, 64, 1000)
    said = b"".join(words(word) for word in ("grüße ", "日本語", "🚂"))
    whole = opening() + block() + said + closing(output_tokens=50)

    async def play(played: ScriptedProvider, http: web.Request) -> web.StreamResponse:
        size = sizes[len(played.requests) - 1]
        return await stream(played, http, *(whole[at : at + size] for at in range(0, len(whole), size)))

    with scripted_provider(play) as up, gateway_world(ledger, ledger_url, {"own": provider(up.url)}) as world:
        for size in sizes:
            with subtests.test(size=size):
                held = world.attempt()
                assert world.post(held, message(stream=True)).content == whole
                assert [call.output_tokens for call in world.calls(held.job_id)] == [50]


# -- secrets -----------------------------------------------------------------------------------------------------------


@pytest.mark.threat("C1", "C9")
def test_the_key_reaches_neither_the_caller_nor_the_log_nor_the_ledger(
    ledger: Ledger, ledger_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def echo(_played: ScriptedProvider, http: web.Request) -> web.Response:
        key = http.headers["x-api-key"]
        error = {"type": "authentication_error", "message": f"bad key {key}"}
        headers = {"x-echo": key, "set-cookie": f"k={key}"}
        return web.json_response({"type": "error", "error": error}, status=401, headers=headers)

    caplog.set_level(logging.DEBUG)
    with scripted_provider(echo) as up, gateway_world(ledger, ledger_url, {"own": provider(up.url)}) as world:
        held = world.attempt()
        answer = world.post(held, message("a secret prompt"))
        assert answer.status_code == 401
        assert KEY not in answer.text + str(answer.headers)
        with pytest.raises(NoProviderKeyError, match="refuses the tenant's key"):
            ask(world, held, prompt="a secret prompt")
        with world.ledger.begin() as session:
            tables = ("call", "cap", "event", "audit", "attempt", "job", "tenant")
            rows = [str(row) for name in tables for row in session.connection().execute(text(f"SELECT * FROM {name}"))]
    gateway_log = "".join(str(record.__dict__) for record in caplog.records if record.name.startswith("gateway"))
    assert "call_settled" in gateway_log
    assert KEY not in gateway_log + "".join(rows) + caplog.text
    assert held.token not in gateway_log + "".join(rows)
    assert "a secret prompt" not in gateway_log


# -- the ledger or the gateway goes away -------------------------------------------------------------------------------


@pytest.mark.threat("C8")
def test_without_the_ledger_nothing_is_forwarded(rehearsed: Rehearsed) -> None:
    held = rehearsed.attempt()
    ask(rehearsed, held)
    rehearsed.execute("ALTER TABLE call RENAME TO call_away")
    with pytest.raises(GatewayUnreachableError):
        ask(rehearsed, held)
    answer = rehearsed.post(held, message())
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "overloaded_error")
    rehearsed.execute("ALTER TABLE call_away RENAME TO call")
    ask(rehearsed, held)
    assert len(read_log(rehearsed.log)) == 2


def test_connections_that_died_are_replaced_without_a_failed_call(rehearsed: Rehearsed) -> None:
    held = rehearsed.attempt()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: ask(rehearsed, held), range(8)))
    rehearsed.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'pointsman-gateway' AND datname = current_database()"
    )
    ask(rehearsed, held)
    assert len(rehearsed.calls()) == 9


def test_a_call_whose_booking_fails_is_booked_when_the_ledger_is_back(rehearsed: Rehearsed) -> None:
    held = rehearsed.attempt()
    caller = threading.Thread(target=ask, args=(rehearsed, held), kwargs={"prompt": "write slowly", "max_tokens": 100})
    caller.start()
    wait_until(rehearsed.calls, seconds=5, what="the call is open")
    rehearsed.execute("ALTER TABLE event RENAME TO event_away")
    caller.join()
    assert not rehearsed.is_settled()
    rehearsed.execute("ALTER TABLE event_away RENAME TO event")
    assert rehearsed.own_bill() == rehearsed.provider_bill(1)
    rehearsed.check_books()


_SERVE = """
import sys
from routing.policy.platform import platform_policy
from gateway.config import GatewayConfig
from gateway.server import serve
serve(GatewayConfig.model_validate_json(sys.argv[1]), sys.argv[2], platform_policy())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_gateway_that_ends_leaves_no_call_unpaid(
    ledger: Ledger, ledger_url: str, tmp_path: Path, number: signal.Signals
) -> None:
    rules = scenario(tmp_path, RULES)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with running_fake_provider(FakeProviderConfig(log=tmp_path / "log", speed="max", scenarios=(rules,))) as up:
        own = {"base_url": up.url, "api_key": KEY, "label": "own"}
        facts = {"port": port, "pepper": "p" * 20, "grace_seconds": 0.2, "journal": str(tmp_path / "journal")}
        config = json.dumps(facts | {"providers": {"own": own}})
        process = subprocess.Popen([sys.executable, "-c", _SERVE, config, ledger_url])
        try:
            world = World(ledger, f"http://127.0.0.1:{port}", platform_policy())
            wait_until(lambda: _is_up(world.url), seconds=15, what="the gateway is up")
            world.tenant(provider="own")
            held = world.attempt()
            threading.Timer(0.7, process.send_signal, (number,)).start()
            with pytest.raises(GatewayUnreachableError):
                ask(world, held, prompt="write at a crawl")
        finally:
            process.kill() if number == signal.SIGKILL else process.terminate()
            process.wait(10)
        [call] = world.calls()
        if number == signal.SIGKILL:
            assert call.state == "reserved"
            world.execute("UPDATE call SET lease_until = now() - interval '1 second'")
            with world.ledger.begin() as session:
                assert presume_lost_calls(session) == 1
            [call] = world.calls()
            assert (call.state, call.cost_nanousd) == ("presumed", call.reserved_nanousd)
        else:
            [logged] = wait_until(lambda: read_log(tmp_path / "log"), seconds=5, what="the provider's log")
            assert call.finish == "cut"
            assert call.reserved_nanousd >= call.cost_nanousd >= billed_nanousd(logged, world.policy.prices) > 0
        world.check_books()


def _is_up(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/healthz", trust_env=False, verify=False).status_code == 200
    except httpx2.TransportError:
        return False
