"""The gateway as a box meets it through its source: whose token, from where, on whose key, under which budget."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from aiohttp import web

from gateway.config import ProviderConfig
from ledger.attempts import bind_egress, new_token
from ledger.errors import FencedError
from ledger.store import Ledger
from ledger.tables import Attempt
from routing.policy.platform import Policy, platform_policy
from routing.policy.prices import NANOUSD_PER_USD, BudgetExceeded
from routing.queues import QueueName, Tier
from tests.integration.gateway.gateway_world import (
    HAIKU,
    TOOL,
    Held,
    ScriptedProvider,
    World,
    block,
    closing,
    gateway_world,
    message,
    opening,
    provider,
    scripted_provider,
    stream,
    words,
)

REPLY = (opening(), block(), words("yes"), closing(output_tokens=5))
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.9"


def boxed_policy(**budgets: float) -> Policy:
    """The platform's policy, with a model that work in a box may call."""
    shipped = platform_policy()
    calls = shipped.calls | {"patch_edit": shipped.calls["patch_edit"].model_copy(update={"queue": QueueName.AGENT})}
    return shipped.model_copy(update={"calls": calls, "budgets": shipped.budgets.model_copy(update=budgets)})


@contextmanager
def boxed_world(
    ledger: Ledger, ledger_url: str, *, pause: float = 0.0, day_usd: float | None = 5.0, policy: Policy | None = None
) -> Iterator[tuple[ScriptedProvider, World]]:
    def reply(played: ScriptedProvider, http: web.Request) -> Any:
        return stream(played, http, *REPLY, pause=pause)

    with scripted_provider(reply) as up:
        own = provider(up.url, label="own").model_copy(update={"day_usd": day_usd})
        with gateway_world(ledger, ledger_url, {"own": own}, policy=policy or boxed_policy()) as world:
            yield up, world


def agent_attempt(world: World, *, tenant: str = "acme") -> Held:
    """Let a worker claim a job for a box."""
    site = world.site(f"site-{uuid4()}", tenant=tenant)
    claimed = world.running(tier=Tier.AGENT, tenant=tenant, site_id=site, cap_nanousd=NANOUSD_PER_USD)
    return Held(claimed.job.id, claimed.attempt.id, claimed.token)


def bind(world: World, held: Held, address: str | None, *, token: str | None = None) -> None:
    with world.ledger.begin() as session:
        bind_egress(session, session.get_one(Attempt, held.attempt_id), address=address, token=token)


def post_from(address: str, world: World, held: Held, body: dict[str, Any]) -> httpx2.Response:
    transport = httpx2.HTTPTransport(local_address=address, verify=False)
    with httpx2.Client(transport=transport, trust_env=False, verify=False, timeout=20) as client:
        headers = {"authorization": f"Bearer {held.token}", "x-forwarded-for": HERE, "forwarded": f"for={HERE}"}
        return client.post(f"{world.url}/v1/messages", json=body, headers=headers)


# -- the source ----------------------------------------------------------------------------------------------------


@pytest.mark.threat("B9", "C2")
@pytest.mark.req("H-093")
def test_a_boxs_token_is_taken_from_its_own_egress_address_alone(ledger: Ledger, ledger_url: str) -> None:
    with boxed_world(ledger, ledger_url) as (up, world):
        held = agent_attempt(world)
        assert post_from(HERE, world, held, message(stream=True)).status_code == 401
        bind(world, held, HERE)
        assert post_from(HERE, world, held, message(stream=True)).status_code == 200
        stolen = post_from(ELSEWHERE, world, held, message(stream=True))
        assert (stolen.status_code, stolen.json()["error"]["details"]["error_code"]) == (401, "wrong_address")
        assert len(up.requests) == len(world.calls()) == 1
        bind(world, held, None)
        assert post_from(HERE, world, held, message(stream=True)).status_code == 401


@pytest.mark.threat("B9", "C2")
def test_the_token_of_a_session_that_stood_by_opens_nothing_before_an_attempt_takes_it_nor_after_that(
    ledger: Ledger, ledger_url: str
) -> None:
    def said(held: Held, address: str = HERE) -> tuple[int, str | None]:
        answer = post_from(address, world, held, message(stream=True))
        return answer.status_code, answer.json()["error"]["details"]["error_code"] if answer.is_error else None

    with boxed_world(ledger, ledger_url) as (up, world):
        held, other = agent_attempt(world), agent_attempt(world)
        waiting = replace(held, token=new_token())
        assert said(waiting) == (401, "unknown_token")
        bind(world, held, HERE)
        bind(world, other, HERE)
        assert said(waiting) == (401, "unknown_token")

        bind(world, held, HERE, token=waiting.token)
        assert said(waiting) == (200, None)
        assert said(waiting, ELSEWHERE) == (401, "wrong_address")
        assert said(held) == (401, "unknown_token")
        assert said(other) == (200, None)
        assert {call.attempt_id for call in world.calls()} == {held.attempt_id, other.attempt_id}

        bind(world, held, None)
        bind(world, held, HERE)
        assert said(waiting) == (401, "unknown_token")
        assert len(up.requests) == 2


@pytest.mark.threat("B9", "C2")
def test_a_token_that_was_just_used_is_taken_from_its_new_address_and_no_longer_from_the_old(
    ledger: Ledger, ledger_url: str
) -> None:
    with boxed_world(ledger, ledger_url) as (up, world):
        held = agent_attempt(world)
        for number, (bound, other) in enumerate([(HERE, ELSEWHERE), (ELSEWHERE, HERE), (HERE, ELSEWHERE)], 1):
            bind(world, held, bound)
            assert post_from(bound, world, held, message(stream=True)).status_code == 200
            assert post_from(other, world, held, message(stream=True)).status_code == 401
            assert len(up.requests) == len(world.calls()) == number
        bind(world, held, ELSEWHERE)
        assert post_from(HERE, world, held, message(stream=True)).status_code == 401
        assert len(up.requests) == 3


def test_an_egress_address_is_bound_only_by_an_attempt_that_holds_its_job(ledger: Ledger, ledger_url: str) -> None:
    with boxed_world(ledger, ledger_url) as (_, world):
        held = agent_attempt(world)
        with pytest.raises(ValueError, match="does not appear to be an IPv4 or IPv6 address"):
            bind(world, held, "source")
        world.execute("UPDATE job SET fence = fence + 1")
        with pytest.raises(FencedError):
            bind(world, held, HERE)


@pytest.mark.threat("B11")
def test_where_the_gateway_is_gone_a_box_has_no_other_way(ledger: Ledger, ledger_url: str) -> None:
    with boxed_world(ledger, ledger_url) as (up, world):
        held = agent_attempt(world)
        bind(world, held, HERE)
    with pytest.raises(httpx2.ConnectError):
        post_from(HERE, world, held, message())
    assert up.requests == []


_WAYS_OUT = [
    b"CONNECT example.org:443 HTTP/1.1\r\nhost: example.org:443\r\n\r\n",
    b"GET http://example.org/ HTTP/1.1\r\nhost: example.org\r\n\r\n",
    b"POST http://example.org/v1/files HTTP/1.1\r\nhost: example.org\r\ncontent-length: 0\r\n\r\n",
    b"CONNECT registry.example.evil.tld:443 HTTP/1.1\r\nhost: x\r\n\r\n",
    b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nhost: x\r\n\r\n",
    b"CONNECT [::ffff:127.0.0.1]:80 HTTP/1.1\r\nhost: x\r\n\r\n",
]


@pytest.mark.threat("B4", "B5", "B7")
def test_the_egress_forwarder_is_no_proxy(ledger: Ledger, ledger_url: str, subtests: pytest.Subtests) -> None:
    with boxed_world(ledger, ledger_url) as (up, world):
        host, port = world.url.removeprefix("http://").split(":")
        for way in _WAYS_OUT:
            with subtests.test(way=way[:40]), socket.create_connection((host, int(port)), timeout=5) as connection:
                connection.sendall(way)
                assert int(connection.recv(4096).split()[1]) in (400, 404)
        assert up.requests == []


# -- what a box's token may ask ----------------------------------------------------------------------------------------

_REFUSED = [
    message(model="claude-sonnet-4-5-20250929"),
    message(tools=[{"type": "web_search_20250305", "name": "web_search"}]),
    message(tools=[{"type": "web_fetch_20250910", "name": "web_fetch"}]),
    message(tools=[TOOL, {"type": "code_execution_20250825", "name": "code_execution"}]),
    message(tools=[{"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}]),
    message(mcp_servers=[{"type": "url", "url": "https://example.org", "name": "x"}]),
    message(container={"id": "c", "skills": []}),
    message(
        messages=[
            {
                "role": "user",
                "content": [{"type": "image", "source": {"type": "url", "url": "https://evil.example/?secret"}}],
            }
        ]
    ),
    message(
        messages=[
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t",
                        "content": [{"type": "document", "source": {"type": "file", "file_id": "f"}}],
                    }
                ],
            }
        ]
    ),
]


@pytest.mark.threat("C6", "B4")
def test_a_box_reaches_nothing_through_the_provider(ledger: Ledger, ledger_url: str, subtests: pytest.Subtests) -> None:
    with boxed_world(ledger, ledger_url) as (up, world):
        held = agent_attempt(world)
        bind(world, held, HERE)
        for body in _REFUSED:
            with subtests.test(body=json.dumps(body)[:90]):
                assert post_from(HERE, world, held, body).status_code == 403
        assert up.requests == []
        assert post_from(HERE, world, held, message(tools=[TOOL], stream=True)).status_code == 200


@pytest.mark.threat("C6")
def test_a_model_of_another_queue_is_refused(ledger: Ledger, ledger_url: str) -> None:
    only_box = boxed_policy()
    others = {name: call for name, call in only_box.calls.items() if call.queue != QueueName.ANSWER}
    policy = only_box.model_copy(update={"calls": others})
    with boxed_world(ledger, ledger_url, policy=policy) as (up, world):
        boxed = agent_attempt(world)
        bind(world, boxed, HERE)
        assert post_from(HERE, world, boxed, message(stream=True)).status_code == 200
        answer = world.post(world.attempt(), message(stream=True))
        assert (answer.status_code, answer.json()["error"]["details"]["error_code"]) == (403, "model_refused")
        assert [body["model"] for _, body in up.requests] == [HAIKU]


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.req("H-115")
def test_a_key_without_a_spending_limit_pays_for_no_box(ledger: Ledger, ledger_url: str) -> None:
    with boxed_world(ledger, ledger_url, day_usd=None) as (up, world):
        held = agent_attempt(world)
        bind(world, held, HERE)
        answer = post_from(HERE, world, held, message())
        assert answer.json()["error"]["details"]["error_code"] == "no_provider"
        assert world.post(world.attempt(), message(stream=True)).status_code == 200
        assert len(up.requests) == 1


@pytest.mark.req("H-115")
def test_what_a_keys_owner_allows_it_in_a_day_is_enforced_over_all_tenants(ledger: Ledger, ledger_url: str) -> None:
    with boxed_world(ledger, ledger_url, day_usd=0.012) as (_, world):
        world.tenant("rival", provider="own")
        world.execute(
            "INSERT INTO cap VALUES ('key_day', 'own/' || to_char(timezone('UTC', now()), 'YYYY-MM-DD'),"
            " 12000000, 11000000, 0)"
        )
        for tenant in ("acme", "rival"):
            answer = world.post(world.attempt(tenant=tenant), message(stream=True))
            assert answer.status_code == 429
            assert "provider key's daily budget" in answer.json()["error"]["message"]


@pytest.mark.req("S-065", "S-066", "S-068")
def test_a_tenant_that_names_anothers_provider_gets_nothing_on_its_key(ledger: Ledger, ledger_url: str) -> None:
    def reply(played: ScriptedProvider, http: web.Request) -> Any:
        return stream(played, http, *REPLY)

    with scripted_provider(reply) as up:
        theirs = ProviderConfig.model_validate(
            {"base_url": up.url, "api_key": "key-of-acme", "label": "acme", "tenants": ["acme"]}
        )
        with gateway_world(ledger, ledger_url, {"acmes": theirs}) as world:
            world.tenant("rival", provider="acmes")
            refused = world.post(world.attempt(tenant="rival"), message(stream=True))
            assert refused.json()["error"]["details"]["error_code"] == "no_provider"
            assert world.post(world.attempt(), message(stream=True)).status_code == 200
            assert [headers["x-api-key"] for headers, _ in up.requests] == ["key-of-acme"]
            assert "key-of-acme" not in refused.text


# -- budgets -----------------------------------------------------------------------------------------------------------


@pytest.mark.threat("C3")
@pytest.mark.parametrize(
    ("scope", "budgets"),
    [("tenant_day", {"tenant_day_usd": 0.009}), ("fleet_day", {"fleet_day_usd": 0.009}), ("key_day", {})],
)
def test_of_ten_parallel_calls_on_a_days_budget_for_one_exactly_one_is_admitted(
    ledger: Ledger, ledger_url: str, scope: str, budgets: dict[str, float]
) -> None:
    day_usd = 0.009 if scope == "key_day" else None
    with boxed_world(ledger, ledger_url, pause=0.3, day_usd=day_usd, policy=boxed_policy(**budgets)) as (up, world):
        world.tenant("rival", provider="own")
        tenants = ("acme", "acme") if scope == "tenant_day" else ("acme", "rival")
        attempts = [world.attempt(tenant=tenants[number % 2]) for number in range(10)]
        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda held: world.post(held, message(stream=True)), attempts))
        assert sorted(answer.status_code for answer in answers) == [200] + [429] * 9
        refusals = [answer.json()["error"] for answer in answers if answer.status_code == 429]
        assert {refusal["type"] for refusal in refusals} == {"billing_error"}
        assert all(str(BudgetExceeded(scope)).partition(" has ")[0] in refusal["message"] for refusal in refusals)
        assert len(up.requests) == 1
        world.check_books()
