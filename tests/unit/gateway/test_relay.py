import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.config import GatewayConfig
from gateway.ledger_client import Ledger
from gateway.open_calls import OpenCall, OpenCalls
from gateway.providers.openai import OpenAIProvider
from gateway.providers.provider import UpstreamRequest
from gateway.relay import Relay
from gateway.upstream import open_session

CONFIG = GatewayConfig.model_validate({"pepper": "p" * 20, "watch_seconds": 0.005, "renew_seconds": 60})


class Faulty:
    """A ledger that answers with nonsense, then as it should."""

    def __init__(self, *, faults: int) -> None:
        self.faults = faults
        self.looks = 0

    async def query(self, _statement: Any) -> list[Any]:
        self.looks += 1
        return [()] if self.looks <= self.faults else []


def a_call() -> OpenCall:
    bearer = SimpleNamespace(attempt_id=uuid4(), job_id=uuid4())
    admitted = SimpleNamespace(id=uuid4(), caller=SimpleNamespace(bearer=bearer))
    call = OpenCall.__new__(OpenCall)
    call.admitted, call.stop, call.reader, call.is_over = cast(Any, admitted), None, None, False
    return call


def test_calls_are_watched_on_after_a_look_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    ledger = Faulty(faults=2)

    async def watch() -> None:
        calls = OpenCalls(cast(Ledger, ledger), CONFIG)
        calls.add(a_call())
        calls.open()
        async with asyncio.timeout(5):
            while ledger.looks < 5:
                await asyncio.sleep(0.005)
        await calls.close()
        await asyncio.sleep(0)
        looks = ledger.looks
        await asyncio.sleep(0.03)
        assert ledger.looks == looks, "it must end with the gateway"

    with caplog.at_level(logging.ERROR):
        asyncio.run(watch())
    failed = [record for record in caplog.records if record.message == "gateway_look_failed"]
    assert len(failed) == 2
    assert all(record.exc_info for record in failed)


def test_a_call_whose_booking_breaks_is_not_kept_alive_for_ever() -> None:
    class Broken(Relay):
        def _settlement(self) -> Any:
            raise RuntimeError("a defect")

    async def carry() -> None:
        calls = OpenCalls(cast(Ledger, Faulty(faults=0)), CONFIG)
        call = a_call()
        call.stop = cast(Any, "stopped")
        relay = Broken(call, cast(Any, None), session=cast(Any, None), circuit=cast(Any, None))
        with pytest.raises(RuntimeError, match="a defect"):
            await relay.run(cast(Ledger, None), calls)
        assert not calls._calls

    asyncio.run(carry())


def test_an_account_without_credit_does_not_open_its_circuit() -> None:
    async def refuse(_: web.Request) -> web.Response:
        error = {"message": "You exceeded your current quota", "type": "insufficient_quota"}
        return web.json_response({"error": error}, status=429, headers={"retry-after": "1"})

    async def carry() -> tuple[int | None, bytes]:
        app = web.Application()
        app.router.add_post("/chat/completions", refuse)
        async with TestServer(app) as server, aiohttp.ClientSession() as session:
            url, call = str(server.make_url("")), a_call()
            admitted: Any = call.admitted
            admitted.caller.provider = OpenAIProvider(url, "a-key")
            admitted.sent = UpstreamRequest(f"{url}/chat/completions", {}, b"{}")
            relay = Relay(call, cast(Any, None), session=session, circuit=cast(Any, None))
            await relay._pump()
            return relay._status, relay._rest

    status, shown = asyncio.run(carry())
    assert status == 402
    assert b"billing_error" in shown


def test_an_idle_connection_is_given_up_before_the_servers_that_close_theirs_soonest() -> None:
    async def keeps_seconds() -> float | None:
        async with open_session(CONFIG) as session:
            return cast(aiohttp.TCPConnector, session.connector)._keepalive_timeout

    assert 0 < (asyncio.run(keeps_seconds()) or 0) < 5, "uvicorn and Node close theirs then"
