from __future__ import annotations

import json
import pickle
import random
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from gateway import client as client_module
from gateway import network
from gateway.client import ModelClient, ModelReply, Stop, is_away, translate_error
from gateway.errors import (
    BudgetExceededError,
    CallTimeoutError,
    CancelledCallError,
    FencedCallError,
    GatewayError,
    GatewayUnreachableError,
    NoProviderKeyError,
    ProviderBusyError,
    ProviderDownError,
    ProviderError,
)
from gateway.messages import Code, RefusedError
from gateway.providers.provider import error_body
from routing.policy.prices import Usage
from tests.lazy import Lazy
from tests.tls import Authority, TlsProxy
from tests.unit.gateway.streams import Player, encoded, error_event, event, player, random_events

if TYPE_CHECKING:
    import anthropic
else:
    anthropic = Lazy("anthropic")


def answer(status: int, body: Any, **headers: str) -> GatewayError:
    return translate_error(status, body, retry_after=headers.get("retry-after"))


def refused(code: Code) -> GatewayError:
    refusal = RefusedError(code, "why")
    return answer(refusal.status, json.loads(refusal.body))


def failed(status: int, kind: str, **headers: str) -> GatewayError:
    return answer(status, {"type": "error", "error": {"type": kind, "message": "why"}}, **headers)


EXPECTED = {
    Code.UNKNOWN_TOKEN: FencedCallError,
    Code.ATTEMPT_ENDED: FencedCallError,
    Code.DEADLINE_PASSED: FencedCallError,
    Code.FENCED: FencedCallError,
    Code.CANCELLED: CancelledCallError,
    Code.NO_PROVIDER: NoProviderKeyError,
    Code.BUDGET_EXCEEDED: BudgetExceededError,
    Code.LEDGER_UNREACHABLE: GatewayUnreachableError,
    Code.SHUTTING_DOWN: GatewayUnreachableError,
    Code.CIRCUIT_OPEN: ProviderBusyError,
    Code.RATE_LIMITED: ProviderBusyError,
    Code.PROVIDER_UNREACHABLE: ProviderDownError,
    Code.PROVIDER_GONE: ProviderDownError,
}


@pytest.mark.parametrize("code", list(Code))
def test_every_refusal_of_the_gateway_has_its_error(code: Code) -> None:
    assert type(refused(code)) is EXPECTED.get(code, ProviderError)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (failed(429, "rate_limit_error"), ProviderBusyError),
        (failed(529, "overloaded_error"), ProviderBusyError),
        (failed(429, "api_error"), ProviderBusyError),
        (failed(503, "timeout_error"), ProviderBusyError),
        (failed(200, "overloaded_error"), ProviderBusyError),
        (failed(500, "api_error"), ProviderDownError),
        (failed(200, "api_error"), ProviderDownError),
        (failed(200, "timeout_error"), ProviderDownError),
        (failed(200, "invalid_request_error"), ProviderError),
        (answer(200, json.loads(RefusedError(Code.PROVIDER_GONE, "why").body)), ProviderDownError),
        (failed(400, "invalid_request_error"), ProviderError),
        (answer(408, json.loads(error_body(408, "timed out"))), ProviderDownError),
        (failed(402, "billing_error"), ProviderError),
        (failed(401, "authentication_error"), NoProviderKeyError),
        (answer(502, "<html>"), ProviderDownError),
        (answer(500, None), ProviderDownError),
        (answer(429, None), ProviderBusyError),
        (answer(529, "<html>"), ProviderBusyError),
    ],
)
def test_what_the_provider_says_is_told_apart(error: GatewayError, expected: type[GatewayError]) -> None:
    assert type(error) is expected


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("0.5", 0.5), ("soon", None), ("-1", None), ("inf", None)])
def test_the_wait_that_a_busy_provider_asks_for_is_known(header: str, seconds: float | None) -> None:
    error = failed(429, "rate_limit_error", **{"retry-after": header})
    assert isinstance(error, ProviderBusyError)
    assert error.retry_after == seconds


@pytest.mark.parametrize(
    "error",
    [
        BudgetExceededError("x"),
        FencedCallError("x"),
        CancelledCallError("x"),
        NoProviderKeyError("x"),
        GatewayUnreachableError("x"),
        ProviderBusyError("x", 1.5),
        ProviderBusyError("x"),
        ProviderError(500, "x"),
        RefusedError(Code.FENCED, "x"),
    ],
)
def test_errors_pickle(error: GatewayError) -> None:
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is type(error)
    assert str(copied) == str(error)
    assert vars(copied) == vars(error)


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def played() -> Iterator[Player]:
    with player() as playing:
        yield playing


@pytest.fixture
def guarded(played: Player, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Player]:
    """The same behind TLS, with a certificate of an authority that the client trusts."""
    authority = Authority(tmp_path)
    with TlsProxy(urlsplit(played.url).port or 0, authority.context_for("localhost")) as proxy:
        trusted = ssl.create_default_context(cafile=authority.path)
        monkeypatch.setattr(client_module, "authorities", lambda: trusted)
        played.url = f"https://localhost:{proxy.port}"
        yield played


def ask(played: Player, prompt: str = "hello", **fields: Any) -> ModelReply:
    with ModelClient(played.url, "pma_x", timeout_seconds=5) as client:
        return client.create([prompt], model="m", max_tokens=50, **fields)


HELLO = [
    event(
        "message_start",
        message={"id": "m", "content": [], "stop_reason": None, "usage": {"input_tokens": 3, "output_tokens": 1}},
    ),
    event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    event("content_block_delta", index=0, delta={"type": "text_delta", "text": "grüße"}),
    event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5}),
    event("message_stop"),
]


class Reference:
    """The anthropic SDK as a model client: what we make of its message and of its errors."""

    def __init__(self, url: str) -> None:
        self._sdk = anthropic.Anthropic(base_url=url, auth_token="pma_x", max_retries=0, timeout=5)

    def create(self) -> tuple[dict[str, Any] | None, tuple[type[GatewayError], str] | None]:
        """Return the message, or the type and text of the error."""
        try:
            with self._sdk.messages.stream(
                model="m", max_tokens=50, messages=[{"role": "user", "content": "hello"}]
            ) as stream:
                message = stream.get_final_message() if any(True for _ in stream) else None
        except anthropic.APIStatusError as error:
            header = error.response.headers.get("retry-after")
            ours = translate_error(error.status_code, error.body, retry_after=header)
            return None, (type(ours), str(ours))
        if message is None or message.stop_reason is None:
            return None, (ProviderDownError, "the reply broke off")
        return message.model_dump(mode="json", exclude_none=True, warnings=False), None


def outcome(url: str) -> tuple[dict[str, Any] | None, tuple[type[GatewayError], str] | None]:
    """What our client makes of the same."""
    replies: dict[str, Any] = {}
    with ModelClient(url, "pma_x", timeout_seconds=5, replies=replies) as client:
        try:
            reply = client.create(["hello"], model="m", max_tokens=50)
        except GatewayError as error:
            return None, (type(error), str(error))
    [message] = replies.values()
    check_reply(reply, message)
    return message, None


def check_reply(reply: ModelReply, message: dict[str, Any]) -> None:
    """A reply is what stands in its message."""
    of_type = {kind: [block for block in message["content"] if block["type"] == kind] for kind in ("text", "tool_use")}
    assert reply.text == "\n".join(block["text"] for block in of_type["text"]).strip()
    assert [use._asdict() for use in reply.tool_uses] == [
        {name: block[name] for name in ("id", "name", "input")} for block in of_type["tool_use"]
    ]
    assert list(reply.content) == message["content"]
    assert (reply.stop is Stop.MAX_TOKENS) == (message["stop_reason"] == "max_tokens")
    assert (reply.stop is Stop.REFUSED) == (message["stop_reason"] == "refusal")
    used = message["usage"]
    names = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    assert reply.usage == Usage(*(used.get(name, 0) for name in names))


@pytest.mark.slow
def test_our_client_reads_what_the_sdk_reads(played: Player) -> None:
    """Whole replies, cut ones and errors inside them, however the bytes are cut into pieces."""
    dice = random.Random(19)
    reference = Reference(played.url)
    whole = failed = 0
    for number in range(105):
        events = random_events(dice)
        if number % 3 == 1:
            events = events[: dice.randint(0, len(events) - 1)]
        if number % 6 == 2:
            events = [*events[: dice.randint(0, len(events) - 1)], error_event(dice)]
        body = encoded(events, dice.choice(("\n", "\n", "\r\n")))
        played.stream(body, size=1 if number % 25 == 0 else dice.randint(2, 3000))
        expected = reference.create()
        assert outcome(played.url) == expected, (number, events)
        whole += expected[0] is not None
        failed += expected[1] is not None
    assert whole > 50
    assert failed > 30


def test_an_error_response_means_what_it_means_to_the_sdk(played: Player) -> None:
    reference = Reference(played.url)
    bodies = [b"", b"<html>", b"[1]", b'{"error": "no"}', RefusedError(Code.CIRCUIT_OPEN, "why", retry_after=3).body]
    for status in (400, 401, 404, 413, 429, 500, 503, 529):
        for body in bodies:
            played.refuse(status, body, "retry-after: 3")
            assert outcome(played.url) == reference.create(), (status, body)
    played.refuse(301, b"", f"location: {played.url}/elsewhere")
    assert outcome(played.url) == (None, (ProviderError, "no message (HTTP 301)")), "it follows nobody"


def test_the_request_says_what_the_sdks_says(played: Player) -> None:
    played.stream(encoded(HELLO, "\n"), size=100)
    ask(played)
    Reference(played.url).create()
    ours, theirs = (request.partition(b"\r\n\r\n") for request in played.requests)
    assert json.loads(ours[2]) == json.loads(theirs[2])
    named = [
        dict(line.lower().split(": ", 1) for line in part[0].decode().split("\r\n")[1:]) for part in (ours, theirs)
    ]
    assert ours[0].split(b"\r\n")[0] == theirs[0].split(b"\r\n")[0] == b"POST /v1/messages HTTP/1.1"
    for name in ("authorization", "anthropic-version", "content-type", "content-length", "host"):
        assert named[0][name] == named[1][name]


HOSTILE = {
    "no JSON": [("message_start", "{broken")],
    "a message that is none": [event("message_start", message=[1])],
    "blocks that are none": [event("message_start", message={"content": [1]})],
    "a delta of no block": [
        *HELLO[:1],
        event("content_block_delta", index=7, delta={"type": "text_delta", "text": ""}),
    ],
    "a delta of no kind": [*HELLO[:2], event("content_block_delta", index=0, delta={"text": "x"})],
    "text that is none": [
        *HELLO[:2],
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": 5}),
        *HELLO[3:],
    ],
    "a block of no type": [*HELLO[:1], event("content_block_start", index=0, content_block={}), *HELLO[3:]],
    "usage that is none": [*HELLO[:3], event("message_delta", delta={"stop_reason": "end_turn"}, usage=7)],
    "a tool input that is none": [
        *HELLO[:1],
        event("content_block_start", index=0, content_block={"type": "tool_use", "id": "1", "name": "x", "input": {}}),
        event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": "{no"}),
        *HELLO[3:],
    ],
    "half a character": [*HELLO[:2], ("content_block_delta", HELLO[2][1].replace("gr", "\\ud800")), *HELLO[3:]],
}


@pytest.mark.parametrize("events", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_no_reply_is_a_providers_error(played: Player, events: list[tuple[str, str]]) -> None:
    played.stream(encoded(events, "\n"), size=100)
    with pytest.raises(ProviderError, match="cannot be read"):
        ask(played)


def test_a_reply_that_does_not_use_its_tool_is_a_providers_error(played: Player) -> None:
    played.stream(encoded(HELLO, "\n"), size=100)
    with ModelClient(played.url, "pma_x") as client, pytest.raises(ProviderError, match="did not use the tool t"):
        client.tool_call(["x"], model="m", max_tokens=9, tool={"name": "t"})


def test_a_reply_and_an_event_are_bounded(played: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    played.stream(encoded(HELLO[:1], "\n") + b"data: " + b"x" * (5 << 20), size=1 << 16)
    with pytest.raises(ProviderError, match="UnreadableStreamError"):
        ask(played)
    monkeypatch.setattr(client_module, "MAX_REPLY_BYTES", 1 << 16)
    played.stream(encoded([*HELLO[:1], *[event("ping")] * 3000], "\n"), size=1000)
    with pytest.raises(ProviderError, match="cannot be read"):
        ask(played)


@pytest.mark.parametrize(
    "answers",
    [
        [],
        [b"nonsense\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"],
    ],
)
def test_a_gateway_that_breaks_off_is_reported_as_unreachable(played: Player, answers: list[bytes]) -> None:
    played.answers = answers
    with pytest.raises(GatewayUnreachableError, match="broke off"):
        ask(played)
    played.stream(encoded(HELLO, "\n"), size=7, whole=False)
    with pytest.raises(GatewayUnreachableError, match="broke off"):
        ask(played)
    played.url = "http://127.0.0.1:9"
    with pytest.raises(GatewayUnreachableError, match="cannot be reached"):
        ask(played)


def test_silence_ends_a_call_when_its_time_is_up(played: Player) -> None:
    played.stream(encoded(HELLO[:3], "\n"), size=1000, whole=False)
    played.stays = True
    began = time.monotonic()
    with pytest.raises(CallTimeoutError):
        ask(played, until=began + 0.2)
    with pytest.raises(CallTimeoutError):
        ask(played, until=began)
    with ModelClient(played.url, "pma_x", timeout_seconds=0.2) as client, pytest.raises(GatewayUnreachableError):
        client.create(["hello"], model="m", max_tokens=5)
    assert 0.4 <= time.monotonic() - began < 2
    assert len(played.requests) == 2, "a call whose time was up is never made"
    assert played.left.wait(2)


class _TimeLimit(BaseException):
    """What ends an attempt."""


@pytest.mark.parametrize("transport", ["played", "guarded"])
@pytest.mark.parametrize("answers", [0, 3])
def test_a_call_that_waits_is_ended_from_another_thread_at_once(
    request: pytest.FixtureRequest, transport: str, answers: int
) -> None:
    played: Player = request.getfixturevalue(transport)
    played.stream(encoded(HELLO[:answers], "\n"), size=1000, whole=False)
    played.answers = played.answers[: answers and None]
    played.stays = True
    client, cause, seen = ModelClient(played.url, "pma_x", timeout_seconds=30), _TimeLimit(), []

    def call() -> None:
        try:
            client.create(["hello"], model="m", max_tokens=5)
        except BaseException as error:  # noqa: BLE001 - it is what the test looks at
            seen.append(error)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 5
    while len(played.requests) < 3 and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.05)
    assert all(thread.is_alive() for thread in threads)
    began = time.monotonic()
    client.abort(cause)
    for thread in threads:
        thread.join(5)
    assert time.monotonic() - began < 1
    assert seen == [cause] * 3
    call()
    assert seen == [cause] * 4
    assert len(played.requests) == 3
    assert played.left.wait(2)


def test_a_reply_that_was_whole_when_its_call_was_ended_is_kept(
    played: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.stream(encoded(HELLO, "\n"), size=1000)
    replies: dict[str, Any] = {}
    client = ModelClient(played.url, "pma_x", replies=replies)
    read = client_module._reply_of

    def read_and_abort(message: Any) -> ModelReply:
        client.abort(_TimeLimit())
        return read(message)

    monkeypatch.setattr(client_module, "_reply_of", read_and_abort)
    with pytest.raises(_TimeLimit):
        client.create(["hello"], model="m", max_tokens=5)
    assert [message["stop_reason"] for message in replies.values()] == ["end_turn"]


def test_a_gateway_behind_tls_must_prove_who_it_is(guarded: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    guarded.stream(encoded(HELLO, "\n"), size=3)
    assert ask(guarded).text == "grüße"
    guarded.url = guarded.url.replace("localhost", "127.0.0.1")
    with pytest.raises(GatewayUnreachableError, match="SSLCertVerificationError"):
        ask(guarded)
    guarded.url = guarded.url.replace("127.0.0.1", "localhost")
    monkeypatch.setattr(client_module, "authorities", network.authorities)
    with pytest.raises(GatewayUnreachableError, match="SSLCertVerificationError"):
        ask(guarded)
    assert len(guarded.requests) == 1


def test_no_proxy_of_the_environment_stands_before_the_gateway(played: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    played.stream(encoded(HELLO, "\n"), size=100)
    assert ask(played).text == "grüße"


@pytest.mark.parametrize(
    ("body", "away"),
    [
        (b'{"stood_still_seconds_ago": null}', False),
        (b'{"stood_still_seconds_ago": 99.5}', False),
        (b'{"stood_still_seconds_ago": 1}', True),
        (b'{"stood_still_seconds_ago": "x"}', True),
        (b"<html>", False),
    ],
)
def test_a_gateway_is_away_that_does_not_answer_or_stood_still(played: Player, body: bytes, away: bool) -> None:
    played.refuse(200, body)
    assert is_away(played.url, within_seconds=10) is away
    played.refuse(503, body)
    assert is_away(played.url, within_seconds=10)
