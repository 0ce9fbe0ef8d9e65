"""Lanes through real gateways on a real ledger: what one call learns of a provider holds for the whole fleet."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from aiohttp import web

from ledger.provider_circuits import CircuitView, circuits
from ledger.store import Ledger
from routing.policy.platform import Policy, platform_policy
from routing.provider_circuit import Circuits, CircuitState
from tests.integration.gateway.gateway_world import (
    HAIKU,
    Held,
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
    scripted_provider,
    scripted_world,
    stream,
    words,
)
from tests.services import wait_until
from tests.threads import serve_gateway_in_thread

OPUS = "claude-opus-4-6"
REPLY = (opening(), block(), words("hello"), closing(output_tokens=5))


def lanes_policy(**rules: Any) -> Policy:
    """The platform's policy with other rules for circuits; questions may be asked to two models."""
    policy = platform_policy()
    calls = dict(policy.calls)
    calls["assist"] = calls["assist"].model_copy(update={"queue": "answer", "model": OPUS})
    return policy.model_copy(update={"circuits": Circuits.model_validate(rules), "calls": calls})


@dataclass
class Moody:
    """A provider that answers by model: an error for so long as one is set, else a short reply."""

    errors: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)
    """While it is clear, replies of a model in `held` do not begin."""
    held: set[str] = field(default_factory=set)

    async def play(self, played: ScriptedProvider, http: web.Request) -> web.StreamResponse:
        model = (await http.json())["model"]
        self.asked.append(model)
        if model in self.errors:
            status, headers = self.errors[model]
            kind = "rate_limit_error" if status == 429 else "overloaded_error"
            body = {"type": "error", "error": {"type": kind, "message": "busy"}}
            return web.json_response(body, status=status, headers=headers)
        while model in self.held and not self.hold.is_set():
            await asyncio.sleep(0.01)
        return await stream(played, http, *REPLY)


@pytest.fixture
def moody() -> Moody:
    return Moody()


@contextmanager
def moody_world(ledger: Ledger, ledger_url: str, moody: Moody, *, policy: Policy | None = None) -> Iterator[World]:
    with (
        scripted_provider(moody.play) as upstream,
        gateway_world(
            ledger,
            ledger_url,
            {"own": provider(upstream.url), "theirs": provider(upstream.url)},
            policy=policy or lanes_policy(),
        ) as world,
    ):
        yield world


@pytest.fixture
def world(ledger: Ledger, ledger_url: str, moody: Moody) -> Iterator[World]:
    with moody_world(ledger, ledger_url, moody) as made:
        yield made


def circuit(world: World, model: str = HAIKU) -> CircuitView:
    with world.ledger.begin() as session:
        return next(view for view in circuits(session) if view.model == model)


def ask(world: World, held: Held, model: str = HAIKU, **fields: Any) -> httpx2.Response:
    return world.post(held, message(model=model, stream=True, **fields))


def code_of(answer: httpx2.Response) -> str | None:
    error = answer.json()["error"] if answer.status_code != 200 else {}
    code = error.get("details", {}).get("error_code")
    return code if isinstance(code, str) else None


def test_a_circuit_is_open_for_as_long_as_its_provider_asks_and_all_others_stay_closed(
    world: World, moody: Moody
) -> None:
    held = world.attempt()
    moody.errors[HAIKU] = (429, {"retry-after": "40"})

    first = ask(world, held)
    assert (first.status_code, first.headers["retry-after"], code_of(first)) == (429, "40", None)
    assert first.headers["x-should-retry"] == "false", "whoever holds a slot or a box must not sleep that long"

    second = ask(world, held)
    assert (second.status_code, code_of(second)) == (429, "circuit_open")
    assert 35 <= int(second.headers["retry-after"]) <= 40
    assert "rate_limited" in second.text
    assert moody.asked == [HAIKU], "an open circuit's call is not forwarded"

    assert ask(world, held, OPUS).status_code == 200
    world.tenant("other", provider="theirs")
    moody.errors.clear()
    assert ask(world, world.attempt(tenant="other")).status_code == 200, "another account is another circuit"
    assert (circuit(world).state, circuit(world).reason, circuit(world).failures) == (
        CircuitState.OPEN,
        "rate_limited",
        1,
    )
    assert [call.status for call in world.calls(held.job_id)] == [429, 200], "what is refused opens no call"
    world.check_books()


def test_a_date_in_retry_after_is_read_by_the_provider_s_own_clock(world: World, moody: Moody) -> None:
    dates = {"date": "Wed, 21 Oct 2037 07:28:00 GMT", "retry-after": "Wed, 21 Oct 2037 07:28:30 GMT"}
    moody.errors[HAIKU] = (529, dates)
    ask(world, world.attempt())
    assert 25 <= circuit(world).open_seconds <= 30
    assert circuit(world).reason == "overloaded"


def test_of_any_number_of_gateways_one_call_tests_a_circuit_that_was_open(
    ledger: Ledger, ledger_url: str, moody: Moody
) -> None:
    with scripted_provider(moody.play) as upstream:
        providers = {"own": provider(upstream.url)}
        with (
            gateway_world(ledger, ledger_url, providers, policy=lanes_policy()) as world,
            serve_gateway_in_thread(gateway_config(providers), ledger_url, world.policy) as second_url,
        ):
            held = [world.attempt() for _ in range(12)]
            moody.errors[HAIKU] = (529, {})
            ask(world, held[0])
            moody.errors.clear()
            moody.asked.clear()
            moody.held.add(HAIKU)
            world.execute("UPDATE provider_circuit SET open_until = clock_timestamp() - interval '1 second'")
            assert circuit(world).state is CircuitState.HALF_OPEN
            second = World(ledger, second_url, world.policy)
            with ThreadPoolExecutor(12) as pool:
                answers = [pool.submit(ask, (world, second)[n % 2], held[n]) for n in range(12)]
                wait_until(lambda: sum(a.done() for a in answers) == 11, seconds=20, what="all but the test are told")
                refused = [answer.result() for answer in answers if answer.done()]
                moody.hold.set()
            assert {code_of(answer) for answer in refused} == {"circuit_open"}
            assert all(answer.headers["x-should-retry"] == "true" for answer in refused), "a short wait is worth it"
            assert moody.asked == [HAIKU]
            assert sorted(answer.result().status_code for answer in answers) == [200] + [429] * 11
            assert (circuit(world).state, circuit(world).failures) == (CircuitState.CLOSED, 0)
            assert [event["change"] for event in world.events("circuit")] == ["opened", "closed"]
            assert ask(second, held[3]).status_code == 200
            world.check_books()


def test_a_failed_test_parks_the_lane_for_twice_as_long(world: World, moody: Moody) -> None:
    held = world.attempt()
    moody.errors[HAIKU] = (529, {})
    seconds = []
    for _ in range(4):
        ask(world, held)
        seconds.append(round(circuit(world).open_seconds))
        world.execute("UPDATE provider_circuit SET open_until = clock_timestamp()")
    assert seconds == [2, 4, 8, 16]
    assert len(moody.asked) == 4


def test_a_test_whose_caller_leaves_is_given_to_the_next(world: World, moody: Moody) -> None:
    held = world.attempt()
    moody.errors[HAIKU] = (529, {})
    ask(world, held)
    moody.errors.clear()
    moody.held.add(HAIKU)
    world.execute("UPDATE provider_circuit SET open_until = clock_timestamp()")
    host, port = world.url.removeprefix("http://").split(":")
    body = json.dumps(message()).encode()
    with socket.create_connection((host, int(port))) as connection:
        head = (
            f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {held.token}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        wait_until(lambda: len(moody.asked) == 2, seconds=10, what="the test is out")
        assert code_of(ask(world, held)) == "circuit_open"
    moody.hold.set()
    wait_until(lambda: ask(world, held).status_code == 200, seconds=10, what="another call may test the circuit")
    assert circuit(world).state is CircuitState.CLOSED


def test_calls_that_fail_in_a_row_park_a_lane_and_one_that_goes_well_ends_the_row(
    ledger: Ledger, ledger_url: str, moody: Moody
) -> None:
    with moody_world(ledger, ledger_url, moody, policy=lanes_policy(failures=3)) as world:
        held = world.attempt()
        moody.errors[HAIKU] = (500, {})
        for _ in range(2):
            assert ask(world, held).status_code == 500
        assert (circuit(world).state, circuit(world).failures) == (CircuitState.CLOSED, 2)
        moody.errors.clear()
        assert ask(world, held).status_code == 200
        assert circuit(world).failures == 0
        moody.errors[HAIKU] = (502, {})
        assert [ask(world, held).status_code for _ in range(4)] == [502, 502, 502, 429]
        assert (circuit(world).reason, circuit(world).failures) == ("failing", 3)


def test_a_provider_that_refuses_connections_is_not_called_again_and_again(ledger: Ledger, ledger_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with gateway_world(ledger, ledger_url, {"own": provider(f"http://127.0.0.1:{port}")}) as world:
        held = world.attempt()
        answers = [ask(world, held) for _ in range(6)]
        assert [code_of(answer) for answer in answers] == ["provider_unreachable"] * 5 + ["circuit_open"]
        assert "retry-after" in answers[4].headers
        assert {(call.cost_nanousd, call.finish) for call in world.calls()} == {(0, "provider_gone")}


@pytest.mark.parametrize("kind", ["overloaded_error", "rate_limit_error"])
def test_an_error_inside_a_stream_parks_the_lane_too(ledger: Ledger, ledger_url: str, kind: str) -> None:
    parts = (opening(), block(), words("hel"), event("error", error={"type": kind, "message": "x"}))
    with scripted_world(ledger, ledger_url, *parts) as (_, world):
        ask(world, world.attempt())
        assert circuit(world).state is CircuitState.OPEN


def test_the_fleet_draws_its_calls_from_one_bucket(ledger: Ledger, ledger_url: str, moody: Moody) -> None:
    policy = lanes_policy(own={f"own/{HAIKU}": {"requests_per_minute": 3}})
    with moody_world(ledger, ledger_url, moody, policy=policy) as world:
        held = [world.attempt() for _ in range(8)]
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda one: ask(world, one), held))
        assert sorted(answer.status_code for answer in answers) == [200] * 3 + [429] * 5
        empty = next(answer for answer in answers if answer.status_code == 429)
        assert code_of(empty) == "rate_limited"
        assert 1 <= int(empty.headers["retry-after"]) <= 20, "one of three a minute comes back within twenty seconds"
        assert len(moody.asked) == 3
        assert ask(world, held[0], OPUS).status_code == 200
        world.execute("UPDATE provider_circuit SET filled_at = filled_at - interval '20 seconds'")
        assert [ask(world, one).status_code for one in held[:2]] == [200, 429]
        world.check_books()


def test_a_bucket_of_tokens_gets_back_what_a_call_did_not_use(ledger: Ledger, ledger_url: str, moody: Moody) -> None:
    with moody_world(ledger, ledger_url, moody, policy=lanes_policy(tokens_per_minute=3000)) as world:
        held = world.attempt()
        assert [ask(world, held, max_tokens=1100).status_code for _ in range(4)] == [200] * 4, "100 + 5 tokens each"
        moody.held.add(HAIKU)
        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(ask, world, world.attempt(), HAIKU, max_tokens=1100) for _ in range(4)]
            wait_until(lambda: sum(a.done() for a in answers) == 2, seconds=20, what="the bucket has room for two")
            moody.hold.set()
        assert sorted(answer.result().status_code for answer in answers) == [200, 200, 429, 429]


def test_a_call_that_is_larger_than_its_bucket_waits_for_a_full_one(
    ledger: Ledger, ledger_url: str, moody: Moody
) -> None:
    with moody_world(ledger, ledger_url, moody, policy=lanes_policy(tokens_per_minute=1000)) as world:
        held = world.attempt()
        assert ask(world, held, max_tokens=1500).status_code == 200
        world.execute("UPDATE provider_circuit SET tokens = 0")
        assert code_of(ask(world, held, max_tokens=1500)) == "rate_limited"


def test_a_call_without_trouble_or_buckets_leaves_no_row(world: World) -> None:
    assert ask(world, world.attempt()).status_code == 200
    with world.ledger.begin() as session:
        assert circuits(session) == []
