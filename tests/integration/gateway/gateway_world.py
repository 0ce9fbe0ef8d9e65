"""A real gateway between real attempts in a real ledger and a provider that plays what a test wants."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
from aiohttp import web
from sqlalchemy import text
from sqlmodel import select

from gateway.client import ModelClient
from gateway.config import GatewayConfig, ProviderConfig
from gateway.fake_provider.config import LoggedCall, billed_nanousd, read_log
from gateway.network import authorities
from gateway.server import ALONE
from ledger.store import Ledger
from ledger.tables import Call, Cap
from monitoring.config import CellsConfig
from routing.policy.platform import Policy, platform_policy
from routing.policy.prices import NANOUSD_PER_USD
from tests.factories import Shop
from tests.services import wait_until
from tests.threads import serve_app_in_thread, serve_gateway_in_thread

HAIKU = "claude-haiku-4-5-20251001"
KEY = "sk-ant-canary-0123456789abcdef0123456789"
"""The provider's key: must be found nowhere but at the provider."""
TOOL: dict[str, Any] = {
    "name": "set_title",
    "input_schema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
}


@dataclass(frozen=True)
class Held:
    """An attempt that holds a job."""

    job_id: UUID
    attempt_id: UUID
    token: str


@dataclass
class World(Shop):
    """One installation around one gateway, whose URL this is."""

    def attempt(self, *, tenant: str = "acme", cap_usd: float = 0.65) -> Held:
        """Accept a question and let a worker claim it."""
        cap = round(cap_usd * NANOUSD_PER_USD)
        claimed = self.running(tier=None, tenant=tenant, prompt="what is on the page?", cap_nanousd=cap)
        return Held(claimed.job.id, claimed.attempt.id, claimed.token)

    def client(self, held: Held) -> ModelClient:
        return ModelClient(self.url, held.token, timeout_seconds=20)

    def post(self, held: Held | str, body: dict[str, Any] | bytes, *, to: str = "", **headers: str) -> httpx2.Response:
        """Send a body as it is, to a path below that of messages."""
        token = held if isinstance(held, str) else held.token
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        url = f"{self.url}/v1/messages/{to}".rstrip("/")
        return httpx2.post(
            url,
            content=content,
            headers={"authorization": f"Bearer {token}", **headers},
            timeout=20,
            trust_env=False,
            verify=authorities(),
        )

    def calls(self, job_id: UUID | None = None) -> list[Call]:
        with self.ledger.begin() as session:
            calls = session.exec(select(Call).order_by(text("started_at"))).all()
            return [call for call in calls if job_id in (None, call.job_id)]

    def caps(self) -> dict[str, Cap]:
        """The caps by scope, for a world with one job."""
        with self.ledger.begin() as session:
            return {cap.scope: cap for cap in session.exec(select(Cap)).all()}

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [data for (data,) in self.rows("SELECT data FROM event WHERE kind = :kind", kind=kind)]

    def is_settled(self) -> bool:
        return all(call.state != "reserved" for call in self.calls())

    def check_books(self) -> None:
        """Every cap holds exactly what its calls cost, and nothing is reserved when nothing is open."""
        spent: dict[tuple[str, str], int] = {}
        reserved: dict[tuple[str, str], int] = {}
        for call in self.calls():
            for scope, key in call.caps:
                spent[scope, key] = spent.get((scope, key), 0) + call.cost_nanousd
                is_open = call.state == "reserved"
                reserved[scope, key] = reserved.get((scope, key), 0) + (call.reserved_nanousd if is_open else 0)
        with self.ledger.begin() as session:
            for cap in session.exec(select(Cap)).all():
                assert cap.spent_nanousd == spent.get((cap.scope, cap.key), 0)
                assert cap.reserved_nanousd == reserved.get((cap.scope, cap.key), 0)


@dataclass(kw_only=True)
class Rehearsed(World):
    """A world whose provider is the fake provider, and says what it bills."""

    log: Path

    def logged(self, calls: int = 1) -> list[LoggedCall]:
        """The provider's own log, once it has so many lines."""
        return wait_until(
            lambda: found if len(found := read_log(self.log)) >= calls else [], seconds=10, what="the provider's log"
        )

    def provider_bill(self, calls: int) -> int:
        return sum(billed_nanousd(call, self.policy.prices) for call in self.logged(calls))

    def own_bill(self) -> int:
        wait_until(self.is_settled, seconds=10, what="every call is booked")
        return sum(call.cost_nanousd for call in self.calls())


def provider(url: str, *, label: str = "fake", key: str = KEY) -> ProviderConfig:
    return ProviderConfig.model_validate({"base_url": url, "api_key": key, "label": label})


def gateway_config(providers: dict[str, ProviderConfig], **fields: Any) -> GatewayConfig:
    base = {"pepper": "pepper-pepper-pepper", "watch_seconds": 0.1, "start_seconds": 2, "grace_seconds": 2}
    return GatewayConfig.model_validate({**base, "providers": providers, **fields})


@contextmanager
def gateway_world(
    ledger: Ledger,
    ledger_url: str,
    providers: dict[str, ProviderConfig],
    *,
    policy: Policy | None = None,
    cells: CellsConfig = ALONE,
    **fields: Any,
) -> Iterator[World]:
    """A gateway with these providers; tenant `acme` has the first of them."""
    chosen = policy or platform_policy()
    with serve_gateway_in_thread(gateway_config(providers, **fields), ledger_url, chosen, cells) as url:
        world = World(ledger, url, chosen)
        world.tenant(provider=next(iter(providers)))
        yield world


def message(prompt: str = "hello", **fields: Any) -> dict[str, Any]:
    base = {"model": HAIKU, "max_tokens": 1500, "messages": [{"role": "user", "content": prompt}]}
    return base | fields


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def opening(**usage: Any) -> bytes:
    body: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": HAIKU,
        "content": [],
        "stop_reason": None,
    }
    return event("message_start", message=body | {"usage": {"input_tokens": 100, "output_tokens": 1} | usage})


def block(kind: str = "text") -> bytes:
    return event("content_block_start", index=0, content_block={"type": kind, "text": ""})


def words(characters: str) -> bytes:
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": characters})


def closing(**usage: Any) -> bytes:
    return (
        event("content_block_stop", index=0)
        + event("message_delta", delta={"stop_reason": "end_turn"}, usage=usage)
        + event("message_stop")
    )


Script = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class ScriptedProvider:
    """A provider that does whatever a test wants, wrong things above all."""

    url: str = ""
    requests: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
    """Headers and body of every request."""
    counts: list[dict[str, Any]] = field(default_factory=list)
    count_answer: Any = None
    """What counting answers, or a function of the body that says so; None for 404."""
    gone: threading.Event = field(default_factory=threading.Event)
    """Set when a stream's reader left before its end."""
    sent: list[bytes] = field(default_factory=list)


@contextmanager
def scripted_provider(script: Callable[[ScriptedProvider, web.Request], Awaitable[Any]]) -> Iterator[ScriptedProvider]:
    """Serve a script in a thread."""
    played = ScriptedProvider()

    async def messages(request: web.Request) -> web.StreamResponse:
        played.requests.append((dict(request.headers), await request.json()))
        try:
            answer = await script(played, request)
        except (ConnectionResetError, asyncio.CancelledError):
            played.gone.set()
            raise
        assert isinstance(answer, web.StreamResponse)
        return answer

    async def count(request: web.Request) -> web.Response:
        body = await request.json()
        played.counts.append(body)
        answer = played.count_answer(body) if callable(played.count_answer) else played.count_answer
        return web.json_response(answer, status=200 if answer else 404)

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/messages", messages)
    app.router.add_post("/v1/messages/count_tokens", count)
    with serve_app_in_thread(app) as played.url:
        yield played


async def stream(
    played: ScriptedProvider, request: web.Request, *parts: bytes, pause: float = 0.0
) -> web.StreamResponse:
    """Write a stream part by part."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for part in parts:
        await response.write(part)
        played.sent.append(part)
        if pause:
            await asyncio.sleep(pause)
    await response.write_eof()
    return response


@contextmanager
def scripted_world(
    ledger: Ledger, ledger_url: str, *parts: bytes, pause: float = 0.0, **fields: Any
) -> Iterator[tuple[ScriptedProvider, World]]:
    """A world whose provider answers every call with the same stream."""
    with (
        scripted_provider(lambda played, http: stream(played, http, *parts, pause=pause)) as upstream,
        gateway_world(ledger, ledger_url, {"own": provider(upstream.url)}, **fields) as world,
    ):
        yield upstream, world


def scenario(directory: Path, rules: str) -> Path:
    path = directory / "rules.yaml"
    path.write_text(rules)
    return path
