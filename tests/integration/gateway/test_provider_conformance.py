"""Every provider does the same for its callers and its bookkeeping, each at a server of its own dialect."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from gateway.client import ModelReply, Stop, Text, ToolResult, Turn
from gateway.config import ProviderConfig
from gateway.errors import (
    BudgetExceededError,
    CancelledCallError,
    NoProviderKeyError,
    ProviderBusyError,
    ProviderDownError,
    ProviderError,
)
from gateway.fake_provider.config import FakeProviderConfig, billed_nanousd, read_log
from gateway.fake_provider.server import running_fake_provider
from ledger.store import Ledger
from routing.policy.platform import platform_policy
from tests.integration.gateway.gateway_world import (
    HAIKU,
    KEY,
    TOOL,
    Held,
    Rehearsed,
    ScriptedProvider,
    World,
    gateway_config,
    gateway_world,
    message,
    scenario,
    scripted_provider,
)
from tests.lazy import Lazy
from tests.media_files import png
from tests.provider_dialects import (
    ACCESS,
    BEARER,
    PROJECT,
    REGION,
    SECRET,
    Dialects,
    dialects,
    service_account,
)
from tests.services import wait_until
from tests.threads import serve_gateway_in_thread

if TYPE_CHECKING:
    import anthropic
    import openai
else:
    anthropic = Lazy("anthropic")
    openai = Lazy("openai")

OWN_NAMES = {
    "anthropic": HAIKU,
    "bedrock": "eu.anthropic.claude-haiku-4-5-20251001-v1:0",
    "bedrock, signed": "eu.anthropic.claude-haiku-4-5-20251001-v1:0",
    "vertex": "claude-haiku-4-5@20251001",
    "vertex, signed": "claude-haiku-4-5@20251001",
    "openai": "qwen/qwen3-8b",
}
RULES = """
rules:
  - name: two tools
    when: {prompt: "both"}
    say:
      - {text: "Here are both."}
      - {tool: set_title, input: {title: "Grüße 🚂"}}
      - {tool: set_title, input: {title: "2"}}
  - name: paced
    when: {prompt: "slowly"}
    pace: {first_token_seconds: 0.05, tokens_per_second: 200}
    say: [{wordy: {tokens: 800}}]
"""


@dataclass(kw_only=True)
class Tried(Rehearsed):
    """A world whose provider is reached in one dialect."""

    dialect: str
    server: Dialects

    @property
    def name(self) -> str:
        return OWN_NAMES[self.dialect]

    def ask(self, prompt: str = "What is on the page?", *, held: Held | None = None, **fields: Any) -> ModelReply:
        with self.client(held or self.attempt()) as client:
            return client.create([prompt], model=HAIKU, **{"max_tokens": 400} | fields)

    def bills(self, calls: int = 1) -> tuple[int, int]:
        """What we booked and what the provider billed."""
        return self.own_bill(), self.provider_bill(calls)


def account(dialect: str, url: str, **fields: Any) -> ProviderConfig:
    base = {
        "anthropic": {"base_url": url, "api_key": KEY},
        "bedrock": {"api": "bedrock", "base_url": url, "api_key": BEARER},
        "bedrock, signed": {"api": "bedrock", "base_url": url, "api_key": f"{ACCESS}:{SECRET}", "region": REGION},
        "vertex": {"api": "vertex", "base_url": url + PROJECT, "api_key": BEARER},
        "vertex, signed": {"api": "vertex", "base_url": url + PROJECT, "api_key": service_account()[0]},
        "openai": {"api": "openai", "base_url": url + "/openai/v1", "api_key": BEARER},
    }[dialect]
    models = {HAIKU: OWN_NAMES[dialect]}
    return ProviderConfig.model_validate(base | {"label": dialect[:64], "models": models} | fields)


@contextmanager
def world_of(dialect: str, ledger: Ledger, ledger_url: str, home: Path) -> Iterator[Tried]:
    fake = FakeProviderConfig(log=home / "log", speed="max", scenarios=(scenario(home, RULES),), faults=True)
    with running_fake_provider(fake) as upstream, dialects(upstream.url) as server:
        config = account(dialect, upstream.url if dialect == "anthropic" else server.url)
        with gateway_world(ledger, ledger_url, {"own": config}) as world:
            yield Tried(**vars(world), dialect=dialect, server=server, log=home / "log")


@pytest.fixture(params=["anthropic", "bedrock, signed", "vertex, signed", "openai"])
def tried(request: pytest.FixtureRequest, ledger: Ledger, ledger_url: str, tmp_path: Path) -> Iterator[Tried]:
    with world_of(request.param, ledger, ledger_url, tmp_path) as world:
        yield world


@pytest.mark.parametrize("dialect", ["bedrock", "vertex"])
def test_a_cloud_takes_a_plain_key_as_well(dialect: str, ledger: Ledger, ledger_url: str, tmp_path: Path) -> None:
    with world_of(dialect, ledger, ledger_url, tmp_path) as world:
        assert world.ask().text
        assert world.bills() == (billed := world.bills()[1], billed)


@pytest.fixture
def refusing_url() -> Iterator[str]:
    """A server of the Messages API that repeats the key it refuses, as none should."""

    async def refuse(_played: ScriptedProvider, http: web.Request) -> web.Response:
        error = {"type": "authentication_error", "message": f"invalid key {http.headers['x-api-key']}"}
        return web.json_response({"type": "error", "error": error}, status=401)

    with scripted_provider(refuse) as upstream:
        yield upstream.url


# -- the local server of each dialect is one that the vendor's own SDK accepts -----------------------------------------
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("dialect", ["bedrock", "bedrock, signed", "vertex", "openai"])
def test_the_vendors_sdk_takes_our_server_for_theirs(dialect: str, streams: bool) -> None:
    ask: dict[str, Any] = {"model": OWN_NAMES[dialect], "max_tokens": 200}
    ask["messages"] = [{"role": "user", "content": "Set the title to 'Bread'"}]
    with running_fake_provider(FakeProviderConfig(speed="max")) as upstream, dialects(upstream.url) as server:
        if dialect == "openai":
            function = {"name": "set_title", "parameters": TOOL["input_schema"]}
            chat = openai.OpenAI(base_url=f"{server.url}/openai/v1", api_key=BEARER, max_retries=0)
            made: Any = chat.chat.completions.create(
                **ask,
                tools=[{"type": "function", "function": function}],
                tool_choice={"type": "function", "function": {"name": "set_title"}},
                stream=streams,
                **({"stream_options": {"include_usage": True}} if streams else {}),
            )
            if not streams:
                assert json.loads(made.choices[0].message.tool_calls[0].function.arguments)["title"]
                return
            chunks = list(made)
            calls = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or ()]
            assert json.loads("".join(call.function.arguments for call in calls))["title"]
            assert chunks[-1].usage.completion_tokens > 0
            return
        client: Any = anthropic.AnthropicVertex(
            base_url=f"{server.url}/v1", project_id="acme", region="europe-west1", access_token=BEARER, max_retries=0
        )
        version = "vertex-2023-10-16"
        if dialect != "vertex":
            keys = {"api_key": BEARER} if dialect == "bedrock" else {"aws_access_key": ACCESS, "aws_secret_key": SECRET}
            client = anthropic.AnthropicBedrock(base_url=server.url, aws_region=REGION, max_retries=0, **keys)
            version = "bedrock-2023-05-31"
        ask |= {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "set_title"}}
        ask["extra_body"] = {"anthropic_version": version}
        if streams:
            with client.messages.stream(**ask) as stream:
                reply = stream.get_final_message()
        else:
            reply = client.messages.create(**ask)
        assert reply.content[0].input["title"]
        assert reply.usage.output_tokens > 0


# -- what callers get --------------------------------------------------------------------------------------------------
@pytest.mark.req("P-037")
def test_a_reply_is_booked_at_what_the_provider_bills_for_its_own_name_of_the_model(tried: Tried) -> None:
    held = tried.attempt()
    reply = tried.ask(held=held)
    assert reply.text
    assert reply.stop is Stop.DONE
    [logged] = tried.logged()
    assert reply.usage == logged.usage
    assert logged.model == tried.name
    assert tried.bills() == (billed := tried.bills()[1], billed)
    [call] = tried.calls()
    assert (call.model, call.provider, call.attempt_id) == (tried.name, tried.dialect, held.attempt_id)
    assert (call.state, call.finish, call.status) == ("settled", "completed", 200)
    assert (call.input_tokens, call.output_tokens) == (reply.usage.input_tokens, reply.usage.output_tokens)
    assert logged.call == str(call.id)
    tried.check_books()


def test_tools_come_back_as_they_were_asked_for(tried: Tried) -> None:
    with tried.client(tried.attempt()) as client:
        forced = client.tool_call(["Set the title to 'Bread'"], model=HAIKU, max_tokens=200, tool=TOOL)
        assert "Bread" in str(forced.input["title"])
        assert not forced.is_cut
        both = client.create(["both"], model=HAIKU, max_tokens=400, tools=[TOOL])
        assert both.text == "Here are both."
        assert [use.input for use in both.tool_uses] == [{"title": "Grüße 🚂"}, {"title": "2"}]
        results = [ToolResult(both.tool_uses[0].id, "done"), ToolResult(both.tool_uses[1].id, "no", is_error=True)]
        last = client.create(["both", both, [*results, Text("go on")]], model=HAIKU, max_tokens=400, tools=[TOOL])
        assert last.text or last.tool_uses
    assert tried.bills(3) == (billed := tried.bills(3)[1], billed)


def test_a_conversation_is_translated_whole(ledger: Ledger, ledger_url: str, tmp_path: Path) -> None:
    with world_of("openai", ledger, ledger_url, tmp_path) as world, world.client(world.attempt()) as client:
        both = client.create(["both"], model=HAIKU, max_tokens=400, tools=[TOOL])
        results = [ToolResult(use.id, f"{use.id} is done", is_error=at == 1) for at, use in enumerate(both.tool_uses)]
        turns: list[Turn] = ["both", both, [*results, Text("and now?", ends_prefix=True)]]
        system = Text("You set titles.", ends_prefix=True)
        client.create(turns, model=HAIKU, max_tokens=400, system=system, tools=[TOOL])
    sent = world.server.bodies[-1]
    ids = [use.id for use in both.tool_uses]
    calls = sent["messages"][2].pop("tool_calls")
    assert sent["messages"] == [
        {"role": "system", "content": "You set titles."},
        {"role": "user", "content": "both"},
        {"role": "assistant", "content": "Here are both."},
        {"role": "tool", "tool_call_id": ids[0], "content": f"{ids[0]} is done"},
        {"role": "tool", "tool_call_id": ids[1], "content": f"Error: {ids[1]} is done"},
        {"role": "user", "content": "and now?"},
    ]
    assert [(call["id"], json.loads(call["function"]["arguments"])["title"]) for call in calls] == [
        (ids[0], "Grüße 🚂"),
        (ids[1], "2"),
    ]
    assert sent["tools"][0]["function"] == {"name": "set_title", "parameters": TOOL["input_schema"]}
    assert (sent["tool_choice"], "cache_control" in json.dumps(sent)) == ("auto", False)


def test_a_reply_that_is_cut_or_refused_says_so(tried: Tried) -> None:
    assert tried.ask("[rehearse:refusal] x").stop is Stop.REFUSED
    reply = tried.ask("[rehearse:wordy] write", max_tokens=64)
    assert reply.stop is Stop.MAX_TOKENS
    assert reply.usage.output_tokens == 64
    assert tried.bills(2) == (billed := tried.bills(2)[1], billed)


def test_the_sdk_gets_an_unstreamed_reply(tried: Tried) -> None:
    client = anthropic.Anthropic(base_url=tried.url, api_key=tried.attempt().token, max_retries=0)
    reply = client.messages.create(
        model=HAIKU,
        max_tokens=300,
        messages=[{"role": "user", "content": "both"}],
        tools=[TOOL],  # type: ignore[list-item]
    )
    assert [part.type for part in reply.content] == ["text", "tool_use", "tool_use"]
    assert reply.stop_reason == "tool_use"
    assert tried.bills() == (billed := tried.bills()[1], billed)


def test_a_picture_is_sent_and_booked(tried: Tried) -> None:
    data = base64.b64encode(png(560, 560)).decode()
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    body = message(stream=True) | {
        "messages": [{"role": "user", "content": [picture, {"type": "text", "text": "What is this?"}]}]
    }
    assert tried.post(tried.attempt(), body).status_code == 200
    assert tried.bills() == (billed := tried.bills()[1], billed)
    assert tried.logged()[0].input_tokens >= 400


def test_tokens_are_counted_where_the_provider_can(tried: Tried) -> None:
    held = tried.attempt()
    answer = tried.post(held, message("How long is this?"), to="count_tokens")
    assert tried.post(held, message(model="claude-opus-4-6"), to="count_tokens").status_code == 403
    assert tried.calls() == []
    if tried.dialect == "openai":
        assert answer.status_code == 502
        return
    assert answer.json()["input_tokens"] > 0


# -- what the provider does wrong --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("tag", "error", "trouble"),
    [
        ("rate-limit", ProviderBusyError, "rate_limited"),
        ("busy", ProviderBusyError, "overloaded"),
        ("down", ProviderDownError, None),
    ],
)
def test_a_provider_in_trouble_costs_nothing_and_opens_its_circuit(
    tried: Tried, tag: str, error: type[ProviderError], trouble: str | None
) -> None:
    held = tried.attempt()
    with pytest.raises(error) as caught:
        tried.ask(f"[rehearse:{tag}] x", held=held)
    assert getattr(caught.value, "retry_after", None) == (1.0 if trouble else None)
    wait_until(tried.is_settled, seconds=10, what="the call is booked")
    assert [(call.cost_nanousd, call.finish) for call in tried.calls()] == [(0, "refused")]
    assert len(tried.logged()) == 1, "the gateway must not try again"
    tried.check_books()
    if trouble is not None:
        with pytest.raises(ProviderBusyError, match=f"circuit of {tried.name} is open.*{trouble}"):
            tried.ask(held=held)
        assert len(tried.logged()) == 1, "nothing more was sent"


@pytest.mark.parametrize("tag", ["break", "cut", "malformed"])
def test_a_reply_that_breaks_off_is_an_error_and_never_booked_too_low(tried: Tried, tag: str) -> None:
    with pytest.raises((ProviderBusyError, ProviderError)):
        tried.ask(f"[rehearse:{tag}] write a long text about bread", held=tried.attempt())
    booked, billed = tried.bills()
    [call] = tried.calls()
    assert billed <= booked <= call.reserved_nanousd or call.state == "settled"
    tried.check_books()


def test_a_cancelled_job_stops_its_call(tried: Tried) -> None:
    held = tried.attempt()
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(tried.ask, "slowly", held=held, max_tokens=1000)
        wait_until(lambda: tried.calls(held.job_id), seconds=10, what="the call is open")
        time.sleep(0.3)
        tried.execute("UPDATE job SET cancel_requested_at = now() WHERE id = :id", id=held.job_id)
        with pytest.raises(CancelledCallError):
            asking.result(10)
    assert time.monotonic() - began < 3
    booked, billed = tried.bills()
    assert billed <= booked


def test_a_wrong_key_is_the_tenants_fault_and_stays_secret(
    ledger_url: str, tried: Tried, refusing_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = "canary-of-a-wrong-key-0123456789"
    key = f"{ACCESS}:{wrong}" if tried.dialect == "bedrock, signed" else wrong
    url = refusing_url if tried.dialect == "anthropic" else tried.server.url
    theirs = gateway_config({"theirs": account(tried.dialect, url, api_key=key)})
    with serve_gateway_in_thread(theirs, ledger_url, platform_policy()) as url:
        world = World(tried.ledger, url, tried.policy)
        world.tenant("other", provider="theirs")
        with world.client(world.attempt(tenant="other")) as client, pytest.raises(NoProviderKeyError) as caught:
            client.create(["x"], model=HAIKU, max_tokens=100)
    assert wrong not in str(caught.value) + caplog.text


# -- money -------------------------------------------------------------------------------------------------------------
def test_no_call_costs_more_than_was_reserved_for_it(tried: Tried) -> None:
    held = tried.attempt()
    prompts = [
        "x",
        "1234567890 " * 60,
        "日本語のページ " * 80,
        "🚂" * 200,
        "<p class='a'>\n" * 90,
        json.dumps([0] * 300),
    ]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda prompt: tried.ask(prompt, held=held, max_tokens=100), prompts))
    wait_until(tried.is_settled, seconds=10, what="every call is booked")
    calls = tried.calls()
    assert len(calls) == len(prompts)
    assert all(0 < call.cost_nanousd <= call.reserved_nanousd for call in calls)
    assert tried.bills(len(prompts)) == (billed := tried.bills(len(prompts))[1], billed)
    tried.check_books()


def test_a_budget_that_is_too_small_stops_the_call_before_it_is_sent(tried: Tried) -> None:
    with pytest.raises(BudgetExceededError):
        tried.ask(held=tried.attempt(cap_usd=0.0001))
    assert read_log(tried.log) == []


# -- settings ----------------------------------------------------------------------------------------------------------
def test_an_endpoint_that_costs_more_is_booked_at_more(ledger: Ledger, ledger_url: str, tmp_path: Path) -> None:
    with running_fake_provider(FakeProviderConfig(speed="max", log=tmp_path / "log")) as upstream:
        config = ProviderConfig(base_url=upstream.url, api_key=KEY, label="eu", price_factor=1.1)  # type: ignore[arg-type]
        with gateway_world(ledger, ledger_url, {"eu": config}) as world, world.client(world.attempt()) as client:
            client.create(["x"], model=HAIKU, max_tokens=100)
            wait_until(world.is_settled, seconds=10, what="the call is booked")
        [call], prices = read_log(tmp_path / "log"), world.policy.prices
        assert world.calls()[0].cost_nanousd == pytest.approx(1.1 * billed_nanousd(call, prices), rel=1e-9)
