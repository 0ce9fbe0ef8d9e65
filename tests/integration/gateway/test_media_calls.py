"""Images and PDFs through the gateway, at a provider that prices them by its published rules, whatever callers do."""

import asyncio
import base64
import hashlib
import json
import math
import os
import random
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from sqlmodel import select

from ledger.store import Ledger
from ledger.tables import Cap
from routing.policy.platform import Policy, platform_policy
from routing.policy.prices import Usage, cost_nanousd
from routing.queues import QueueName
from tests.integration.gateway.gateway_world import (
    HAIKU,
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
    words,
)
from tests.media_files import IMAGES, pdf
from tests.services import wait_until

CALLS = int(os.environ.get("MEDIA_CALLS", "60"))
PRICE = platform_policy().prices[HAIKU]


def image_tokens(width: int, height: int) -> int:
    """The provider's rule: 28-pixel patches of what is left when 1568 pixels and 1568 patches are kept to."""
    scale = min(1.0, 1568 / max(width, height))
    while (tokens := math.ceil(width * scale / 28) * math.ceil(height * scale / 28)) > 1568:
        scale *= 0.995
    return tokens


def image(data: bytes, kind: str = "png") -> dict[str, Any]:
    source = {"type": "base64", "media_type": f"image/{kind}", "data": base64.b64encode(data).decode()}
    return {"type": "image", "source": source}


def document(data: bytes) -> dict[str, Any]:
    source = {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(data).decode()}
    return {"type": "document", "source": source}


@dataclass
class PricedProvider:
    """Knows what each file costs, and what it has served under each call."""

    tokens: dict[str, int] = field(default_factory=dict)
    """Of each file, by digest."""
    served: Counter[str] = field(default_factory=Counter)
    dice: random.Random = field(default_factory=lambda: random.Random(18))

    def price(self, part: dict[str, Any], tokens: int) -> dict[str, Any]:
        """Remember what a file costs."""
        self.tokens[_digest(part["source"]["data"])] = tokens
        return part

    def count(self, body: dict[str, Any]) -> dict[str, int]:
        files = list(_files(body))
        letters = len(json.dumps(body)) - sum(map(len, files))
        return {"input_tokens": letters // 4 + sum(self.tokens[_digest(data)] for data in files)}

    async def play(self, _played: ScriptedProvider, http: web.Request) -> web.StreamResponse:
        """Serve to the end, whether anybody listens or not."""
        body = await http.json()
        call, counted = http.headers["x-pointsman-call"], self.count(body)["input_tokens"]
        pieces = [self.dice.randrange(1, 60) for _ in range(self.dice.randrange(12))]
        pieces = pieces if sum(pieces) <= body["max_tokens"] else []
        usage = Usage(input_tokens=counted, output_tokens=sum(pieces) or 1)
        await asyncio.sleep(self.dice.choice([0, 0.02]))
        self.served[call] = cost_nanousd(PRICE, usage)
        if not body.get("stream"):
            reply = {"input_tokens": counted, "output_tokens": usage.output_tokens}
            return web.json_response({"type": "message", "content": [], "usage": reply})
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(http)
        said = [words("x" * self.dice.randrange(1, 5 * piece)) for piece in pieces]
        try:
            for part in (opening(input_tokens=counted), block(), *said, closing(output_tokens=usage.output_tokens)):
                await response.write(part)
                await asyncio.sleep(self.dice.choice([0, 0.01]))
        except ConnectionError:
            pass
        return response


def _digest(data: str) -> str:
    return hashlib.sha256(data.encode()).hexdigest()


def _files(part: Any) -> Iterator[str]:
    if isinstance(part, list):
        for each in part:
            yield from _files(each)
    elif isinstance(part, dict):
        if part.get("type") == "base64":
            yield part["data"]
        for each in part.values():
            yield from _files(each)


def policy_for_media() -> Policy:
    """The platform's policy, with room for documents on the queue that the test's jobs stand on."""
    shipped = platform_policy()
    queues = shipped.queues | {QueueName.ANSWER: shipped.queues[QueueName.ANSWER].model_copy(update={"llm_usd": 5.0})}
    return shipped.model_copy(update={"queues": queues})


@contextmanager
def priced_world(ledger: Ledger, ledger_url: str) -> Iterator[tuple[PricedProvider, ScriptedProvider, World]]:
    upstream = PricedProvider()
    with scripted_provider(upstream.play) as up:
        up.count_answer = upstream.count
        with gateway_world(ledger, ledger_url, {"own": provider(up.url)}, policy=policy_for_media()) as world:
            yield upstream, up, world


def check(world: World, upstream: PricedProvider) -> None:
    """No call is billed below what was served for it, and no cap is passed."""
    wait_until(world.is_settled, seconds=20, what="every call is booked")
    billed = {str(call.id): call.cost_nanousd for call in world.calls()}
    short = {call: (served, billed.get(call)) for call, served in upstream.served.items() if served > billed[call]}
    assert not short, f"{len(short)} of {len(upstream.served)} calls were billed below what was served: {short}"
    world.check_books()
    with world.ledger.begin() as session:
        passed = [cap for cap in session.exec(select(Cap)).all() if cap.spent_nanousd > cap.limit_nanousd]
        assert passed == []


def send_and_leave(world: World, held: Held, body: dict[str, Any], *, after: int | None) -> None:
    """Call, read so many bytes of the reply, and be gone; None reads it to its end."""
    content = json.dumps(body).encode()
    host, port = world.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-api-key: {held.token}\r\n"
        connection.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        left = math.inf if after is None else after
        while left > 0 and (part := connection.recv(min(65536, int(min(left, 65536))))):
            left -= len(part)


# -- what media cost ---------------------------------------------------------------------------------------------------


@pytest.mark.threat("C3")
def test_a_small_pdf_of_many_pages_is_reserved_at_what_its_pages_cost(ledger: Ledger, ledger_url: str) -> None:
    part = document(pdf(100))
    assert len(part["source"]["data"]) < 7000
    with priced_world(ledger, ledger_url) as (upstream, _, world):
        upstream.price(part, 100 * 1600)
        held = world.attempt(cap_usd=0.65)
        body = message(messages=[{"role": "user", "content": [part]}], stream=True, max_tokens=100)
        with ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(lambda _: world.post(held, body).status_code, range(8)))
        assert set(statuses) <= {200, 429}
        assert 200 in statuses
        check(world, upstream)
        assert all(call.reserved_nanousd >= 160_000_000 for call in world.calls())


def test_random_media_and_hang_ups_are_never_billed_below_what_was_served(ledger: Ledger, ledger_url: str) -> None:
    dice = random.Random(2026)
    with priced_world(ledger, ledger_url) as (upstream, _, world):
        helds = [world.attempt(cap_usd=dice.choice([0.05, 0.2, 0.65, 3])) for _ in range(20)]

        def machine_made() -> dict[str, Any]:
            if dice.random() < 0.5:
                kind = dice.choice(sorted(IMAGES))
                size = dice.choice([dice.randrange(1, 200), dice.randrange(1, 9000)]), dice.randrange(1, 3000)
                part = image(IMAGES[kind](*size), kind)
                tokens = image_tokens(*size)
            else:
                pages = dice.choice([1, 2, 5, dice.randrange(1, 100)])
                part = document(pdf(pages, is_packed=dice.random() < 0.5, content=b"%d" % dice.getrandbits(4000)))
                tokens = pages * (dice.randrange(1500, 3001) + 1568)
            return upstream.price(part, tokens)

        def one() -> tuple[Held, dict[str, Any], int | None]:
            parts = [machine_made() for _ in range(dice.choice([1, 1, 2, 3]))]
            result = {"type": "tool_result", "tool_use_id": "t", "content": parts}
            content = dice.choice([[{"type": "text", "text": "look"}, *parts], [result]])
            fields: dict[str, Any] = {"messages": [{"role": "user", "content": content}]}
            if dice.random() < 0.2:
                fields = {"system": parts, "messages": [{"role": "user", "content": "look"}]}
            after = dice.choice([None, 0, dice.randrange(4000)])
            return dice.choice(helds), message(**fields, stream=dice.random() < 0.8), after

        with ThreadPoolExecutor(8) as pool:
            made = [one() for _ in range(CALLS)]
            list(pool.map(lambda call: send_and_leave(world, call[0], call[1], after=call[2]), made))
        check(world, upstream)
        assert len(upstream.served) > CALLS / 4, "most must get through, or nothing was shown"
        assert {call.finish for call in world.calls()} >= {"completed", "client_gone"}


# -- what cannot be read -----------------------------------------------------------------------------------------------


def test_a_pdf_that_hides_its_pages_is_counted_by_the_provider_or_refused(ledger: Ledger, ledger_url: str) -> None:
    part = document(pdf(40, is_packed=True))
    body = message(messages=[{"role": "user", "content": [part]}], max_tokens=10)
    with priced_world(ledger, ledger_url) as (upstream, up, world):
        upstream.price(part, 40 * 3000)
        held = world.attempt()
        assert world.post(held, body).status_code == 200
        assert [call.reserved_nanousd > 40 * 3_000_000 for call in world.calls()] == [True]
        up.count_answer = None
        refused = world.post(held, body)
        assert refused.status_code == 403
        assert "a document whose pages cannot be counted" in refused.json()["error"]["message"]
        assert len(world.calls()) == len(up.requests) == 1
        check(world, upstream)


@pytest.mark.threat("C2")
def test_no_provider_counts_for_a_token_that_was_just_revoked(ledger: Ledger, ledger_url: str) -> None:
    part = document(pdf(40, is_packed=True))
    body = message(messages=[{"role": "user", "content": [part]}], max_tokens=10)
    with priced_world(ledger, ledger_url) as (upstream, up, world):
        upstream.price(part, 40 * 3000)
        held = world.attempt()
        assert world.post(held, body).status_code == 200
        counted = len(up.counts)
        assert counted > 0
        world.execute("UPDATE attempt SET token_hash = 'another'")
        assert world.post(held, body).status_code == 401
        assert (len(up.counts), len(up.requests)) == (counted, 1)


@pytest.mark.threat("C6")
def test_counting_tokens_is_metered(ledger: Ledger, ledger_url: str) -> None:
    shipped = policy_for_media()
    rules = shipped.gateway.model_copy(update={"counts_per_minute": 3})
    hidden = document(pdf(2, is_packed=True))
    with scripted_provider(PricedProvider().play) as up:
        up.count_answer = {"input_tokens": 5}
        own, policy = provider(up.url), shipped.model_copy(update={"gateway": rules})
        with gateway_world(ledger, ledger_url, {"own": own}, policy=policy) as world:
            held = world.attempt()
            answers = [world.post(held, message(), to="count_tokens") for _ in range(5)]
            assert [answer.status_code for answer in answers] == [200] * 3 + [429] * 2
            assert answers[-1].json()["error"]["details"]["error_code"] == "rate_limited"
            assert 1 <= int(answers[-1].headers["retry-after"]) <= 20
            refused = world.post(held, message(messages=[{"role": "user", "content": [hidden]}]))
            assert refused.json()["error"]["details"]["error_code"] == "rate_limited"
            assert len(up.counts) == 3
