"""The router before two real cells: who is led where, what passes through, and what does not."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest
from sqlalchemy import text
from starlette.types import Receive, Scope, Send

from ledger.cells import tenant_rows
from ledger.cells.directory import CellRecord, Directory
from ledger.store import Ledger, create_ledger_engine
from monitoring.asgi import uvicorn_config
from producers.cells.move import Timing, move_tenant
from producers.cells.router import MAX_BODY_BYTES, Places, Router
from producers.use_cases.tenants import hash_secret
from routing.cells import CellRefusal, Clue
from sites.config import ContentStoreConfig
from sites.content_store import ContentStore
from sites.ownership import adopt
from tests.directories import new_directory
from tests.integration.api.http_world import PAGES, World, open_world
from tests.services import Postgres, wait_until
from tests.threads import serve_in_thread

LEASE = 0.05


@dataclass
class Fleet:
    directory: Directory
    east: World
    west: World
    api: httpx2.Client
    pages: httpx2.Client
    urls: dict[str, str]
    places: Places


def serve(app: object, stack: ExitStack, name: str) -> str:
    config = uvicorn_config(
        app, host="127.0.0.1", port=0, grace_seconds=1, lifespan="on" if isinstance(app, Router) else "off"
    )
    return stack.enter_context(serve_in_thread(config, name=name))


@pytest.fixture(scope="module")
def shared_fleet(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    tmp_path = tmp_path_factory.mktemp("cells")
    with ExitStack() as stack:
        _, directory = stack.enter_context(new_directory(postgres))
        worlds, urls = [], {}
        for name in ("east", "west"):
            url = stack.enter_context(postgres.database())
            ledger = Ledger(create_ledger_engine(url, pool_size=4))
            stack.callback(ledger.close)
            store = ContentStoreConfig(root=tmp_path / name / "content-store")
            world = stack.enter_context(open_world(ledger, store.root, tenant=f"of-{name}"))
            adopt(ledger, ContentStore(store.root))
            urls[name] = serve(world.app, stack, name)
            pages = serve(world.pages_app, stack, f"{name} pages")
            directory.add_cell(CellRecord(name, urls[name], pages, "redis://x", url, store.model_dump_json()))
            world.headers()
            hashes = [hash_secret(key) for key in world.keys.values()]
            directory.claim(world.tenant, cell=name, key_hashes=hashes)
            worlds.append(world)
        places = Places(directory, lease_seconds=LEASE)
        clients = []
        for kind, url_of in (("api", lambda cell: cell.api_url), ("pages", lambda cell: cell.pages_url)):
            router = serve(Router(places, url_of=url_of), stack, f"router of {kind}")
            clients.append(stack.enter_context(httpx2.Client(base_url=router, trust_env=False, timeout=10)))
        yield Fleet(directory, *worlds, *clients, urls, places)


@pytest.fixture
def fleet(shared_fleet: Fleet) -> Iterator[Fleet]:
    """The two cells, each with its own tenant, as the directory first said."""
    record = shared_fleet.directory.cell("east")
    yield shared_fleet
    shared_fleet.api.cookies.clear()
    shared_fleet.directory.add_cell(record)
    move_tenant(shared_fleet.directory, shared_fleet.east.tenant, "east", timing=Timing(0, 5, LEASE))
    shared_fleet.places._known.clear()


def test_each_key_finds_its_own_cell_and_a_stranger_is_refused_by_any(fleet: Fleet) -> None:
    for world in (fleet.east, fleet.west):
        made = fleet.api.post("/v1/jobs", headers=world.headers(), json={"prompt": f"What is {world.tenant}?"})
        assert made.status_code == 202, made.text
        assert world.job(made.json()["id"]).tenant == world.tenant
    stranger = {"Authorization": "Bearer pmk_" + "x" * 43}
    assert fleet.api.get("/v1/jobs", headers=stranger).status_code == 401
    assert fleet.api.get("/v1/jobs").status_code == 401
    assert fleet.api.get("/healthz").status_code == 200


def test_a_tenant_that_has_moved_is_found_where_it_is_and_a_stale_way_leads_to_nothing_written(fleet: Fleet) -> None:
    headers, ask = fleet.east.headers(), {"prompt": "What are your opening hours?"}
    first = fleet.api.post("/v1/jobs", headers=headers, json=ask).json()["id"]
    tenant_rows.close(fleet.east.ledger, fleet.east.tenant)
    for refused in (fleet.api.post("/v1/jobs", headers=headers, json=ask) for _ in range(2)):
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
        assert refused.json()["type"] == "urn:pointsman:problem:tenant_moving"
    assert fleet.api.get("/v1/jobs", headers=headers).status_code == 200
    tenant_rows.open_again(fleet.east.ledger, fleet.east.tenant)
    move_tenant(fleet.directory, fleet.east.tenant, "west", timing=Timing(0, 5, LEASE))
    told = httpx2.get(f"{fleet.urls['east']}/v1/jobs", headers=headers, trust_env=False)
    assert (told.status_code, "another cell" in told.json()["detail"]) == (401, True)
    assert fleet.directory.place_of(fleet.east.tenant) == (fleet.east.tenant, "west", 2, None)
    assert fleet.east.counts()["job"] == 0
    second = wait_until(
        lambda: (answer := fleet.api.post("/v1/jobs", headers=headers, json=ask)).is_success and answer.json()["id"],
        seconds=5,
        what="the router knows the new cell",
    )
    listed = fleet.api.get("/v1/jobs", headers=headers).json()["jobs"]
    assert {first, second} <= {job["id"] for job in listed}
    assert fleet.west.job(second).tenant == fleet.east.tenant


def test_what_is_submitted_while_a_tenant_moves_there_and_back_is_there_once(fleet: Fleet) -> None:
    """`make chaos ONLY=cells` shows the same of whole installations, one of which dies meanwhile."""
    stopping, taken = threading.Event(), Counter[str]()

    def submit(world: World) -> None:
        while not stopping.is_set():
            key, answer = uuid4().hex, None
            while answer is None or answer.status_code != 202:
                headers = world.headers() | {"Idempotency-Key": key}
                answer = fleet.api.post("/v1/jobs", headers=headers, json={"prompt": "What is a proxy?"})
                assert answer.status_code in (202, 401, 503), answer.text
                assert answer.status_code != 401 or "another cell" in answer.text
            taken[answer.json()["id"]] += 1

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(submit, world) for world in (fleet.east, fleet.west) for _ in range(2)]
        for target in ("west", "east"):
            wanted = len(taken) + 20
            move_tenant(fleet.directory, fleet.east.tenant, target, timing=Timing(0, 5, 2 * LEASE))
            wait_until(lambda least=wanted: len(taken) > least, seconds=20, what="jobs are taken")
        stopping.set()
        for each in running:
            each.result(20)
    found = Counter[str]()
    for world in (fleet.east, fleet.west):
        with world.ledger.begin() as session:
            found.update(map(str, session.execute(text("SELECT id FROM job")).scalars()))
    assert taken.keys() <= found.keys()
    assert set(found.values()) == set(taken.values()) == {1}


def test_the_console_keeps_to_the_cell_of_its_login(fleet: Fleet) -> None:
    key = fleet.west.headers()["Authorization"].removeprefix("Bearer ")
    refused = fleet.api.post("/console/login", content=b"key=" + b"x" * 5_000)
    assert refused.status_code == 413
    entered = fleet.api.post("/console/login", data={"key": key})
    assert entered.status_code == 303, entered.text
    assert fleet.api.cookies["pointsman_tenant"] == fleet.west.tenant
    assert fleet.west.tenant in fleet.api.get("/console/").text
    hint = fleet.api.get(f"/console/login?tenant={fleet.east.tenant}")
    assert f"pointsman_tenant={fleet.east.tenant}; Path=/console; HttpOnly; SameSite=Lax" in hint.headers["set-cookie"]


def test_live_pages_and_previews_come_from_the_cell_that_has_them(fleet: Fleet, tmp_path: Path) -> None:
    fleet.west.site("bakery", PAGES, tmp_path)
    page = fleet.pages.get(f"/live/{fleet.west.tenant}/bakery/")
    assert (page.status_code, b"Bread" in page.content) == (200, True)
    assert "content-security-policy" in page.headers
    job_id = fleet.west.submit(prompt="Change the headline to 'Fresh bread'", site="bakery")
    fleet.west.offer(job_id, {**PAGES, "new.html": b"<!doctype html><html lang=en><title>t</title></html>"})
    link = fleet.west.call("GET", f"/v1/jobs/{job_id}").json()["preview_url"]
    preview = fleet.pages.get(httpx2.URL(link).path + "new.html")
    assert preview.status_code == 200, preview.text


def test_events_stream_through_as_they_happen_and_end_with_their_reader(fleet: Fleet) -> None:
    made = fleet.api.post("/v1/jobs", headers=fleet.east.headers(), json={"prompt": "What are your opening hours?"})
    path, seen = f"/v1/jobs/{made.json()['id']}/events", b""
    streams = fleet.east.app.state.resources.streams
    with fleet.api.stream("GET", path, headers=fleet.east.headers() | {"Accept": "text/event-stream"}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for part in answer.iter_raw():
            seen += part
            if b"accepted" in seen:
                assert streams._open.total() == 1
                break  # which ends the reader, and closes the answer
    assert b"accepted" in seen
    wait_until(lambda: streams._open.total() == 0, seconds=5, what="the cell's stream ends")


def test_a_dead_cell_costs_its_own_tenants_alone(fleet: Fleet) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{silent.getsockname()[1]}"
        record = fleet.directory.cell("east")
        fleet.directory.add_cell(record._replace(api_url=dead))
        gone = fleet.api.get("/v1/jobs", headers=fleet.east.headers())
        assert gone.json()["type"] == "urn:pointsman:problem:cell_unreachable"
        assert (gone.status_code, gone.headers["retry-after"]) == (503, "2")
        assert fleet.api.get("/v1/jobs", headers=fleet.west.headers()).status_code == 200


def test_while_the_directory_is_away_a_router_goes_by_what_it_was_told(postgres: Postgres) -> None:
    now = [0.0]
    with postgres.database(template="template1") as url:
        directory = Directory(url)
        directory.prepare()
        directory.add_cell(CellRecord("east", "http://east", "http://p", "redis://x", "x", "{}"))
        directory.claim("acme", cell="east")
        places = Places(directory, lease_seconds=2, clock=lambda: now[0])
        known = asyncio.run(places.find(Clue(tenant="acme")))
        assert not isinstance(known, CellRefusal)
        directory.close()
    now[0] = 100.0
    with asyncio.Runner() as runner:
        places._looking = asyncio.Semaphore(1)
        assert runner.run(places.find(Clue(tenant="acme"))) == known
        assert runner.run(places.find(Clue(tenant="other"))) is CellRefusal.DIRECTORY_UNREACHABLE
    directory.close()


@dataclass
class Echo:
    """A cell that keeps the head of its last request, and counts what it gets of its body."""

    headers: list[tuple[bytes, bytes]]
    size: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers, self.size = list(scope["headers"]), 0
        while (message := await receive())["type"] == "http.request":
            self.size += len(message.get("body", b""))
            if not message.get("more_body"):
                break
        headers = [(b"x-own", b"1"), (b"connection", b"x-hop"), (b"x-hop", b"1"), (b"set-cookie", b"a=1")]
        await send({"type": "http.response.start", "status": 200, "headers": [*headers, (b"set-cookie", b"b=2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def echo(fleet: Fleet) -> Iterator[Echo]:
    with ExitStack() as stack:
        cell = Echo([])
        fleet.directory.add_cell(fleet.directory.cell("east")._replace(api_url=serve(cell, stack, "echo")))
        yield cell


def test_heads_are_of_one_hop_and_nothing_said_about_other_hops_is_passed_on(fleet: Fleet, echo: Echo) -> None:
    sent = {
        "Connection": "X-Secret, keep-alive",
        "X-Secret": "1",
        "X-Forwarded-For": "10.0.0.1",
        "Forwarded": "for=10.0.0.1",
        "X-Real-IP": "10.0.0.1",
        "Proxy-Authorization": "x",
        "TE": "trailers",
        "X-Kept": "yes",
    }
    answer = fleet.api.post("/v1/x?a=%2F&b", headers=sent, content=b"12345")
    names = {name for name, _ in echo.headers}
    assert names.isdisjoint(
        {b"x-secret", b"x-forwarded-for", b"forwarded", b"x-real-ip", b"proxy-authorization", b"te"}
    )
    told = dict(echo.headers)
    assert (told[b"x-kept"], told[b"content-length"], echo.size) == (b"yes", b"5", 5)
    assert told[b"host"] == fleet.api.base_url.netloc
    assert "x-hop" not in answer.headers
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert answer.headers.get_list("date").__len__() == 1


def raw(fleet: Fleet, request: bytes) -> bytes:
    with socket.create_connection((fleet.api.base_url.host, fleet.api.base_url.port or 80), timeout=5) as client:
        client.sendall(request)
        found = b""
        while part := client.recv(65_536):
            found += part
        return found


def test_a_request_with_two_ideas_of_its_length_smuggles_nothing(fleet: Fleet, echo: Echo) -> None:
    inner = b"GET /v1/hidden HTTP/1.1\r\nHost: x\r\n\r\n"
    both = (
        b"POST /v1/a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n"
        b"Connection: close\r\n\r\n0\r\n\r\n" % (len(inner) + 5)
    )
    said = raw(fleet, both + inner)
    assert said.startswith(b"HTTP/1.1 400") or (said.count(b"HTTP/1.1 ") == 1 and echo.size == 0)
    head = b"POST /v1/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    chunked = head + b"3\r\nabc\r\n0\r\n\r\n"
    assert raw(fleet, chunked).startswith(b"HTTP/1.1 200")
    assert (echo.size, b"content-length" in dict(echo.headers)) == (3, False)


def test_a_body_without_end_is_cut_off(fleet: Fleet, echo: Echo) -> None:
    part = b"x" * 2**20
    answer = fleet.api.post("/v1/x", content=(part for _ in range(MAX_BODY_BYTES // len(part) + 2)))
    assert answer.status_code == 413
    assert fleet.api.post("/v1/x", content=b"1").status_code == 200
