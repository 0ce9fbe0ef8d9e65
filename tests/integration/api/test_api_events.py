"""A job's events over HTTP: as a list, as a stream that follows the job to its end, and resumed after a cut."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import UUID

import httpx2
import pytest
import uvicorn
from sqlalchemy import event, select
from sqlmodel import col

from ledger.events import EventKind, record
from ledger.jobs import find_job
from ledger.record_tables import ApiKey
from producers.api.app import create_server
from producers.api.event_streams import HOLDER_SECONDS, EventStreams
from producers.config import ApiConfig
from producers.local.supervisor import free_port
from producers.use_cases.tenants import hash_secret, revoke
from routing.jobs import State
from routing.policy.platform import Streams
from tests.integration.api.http_world import World, shared_ledger, world
from tests.services import wait_until

__all__ = ["shared_ledger", "world"]


class Server:
    """The real server on a free port, in a thread."""

    def __init__(self, server: uvicorn.Server, port: int) -> None:
        self.server = server
        self.url = f"http://127.0.0.1:{port}"
        self.thread = threading.Thread(target=server.run)

    def stop(self) -> float:
        """Stop it and return how many seconds that took."""
        started = time.monotonic()
        self.server.should_exit = True
        self.thread.join(15)
        assert not self.thread.is_alive()
        return time.monotonic() - started


@pytest.fixture
def server(world: World) -> Iterator[Server]:
    port = free_port()
    running = Server(create_server(world.app, config=ApiConfig(port=port)), port)
    running.thread.start()
    wait_until(lambda: running.server.started, seconds=10, what="the server started")
    yield running
    running.stop()


def read_stream(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """Read server-sent events as a browser does."""
    event: dict[str, str] = {}
    for line in lines:
        if not line and event:
            yield event
            event = {}
        elif ":" in line and not line.startswith(":"):
            name, _, value = line.partition(":")
            event[name] = value.strip()


def follow(server: Server, world: World, job_id: UUID, **headers: str) -> list[dict[str, str]]:
    """Follow a job to the end of its stream."""
    url = f"{server.url}/v1/jobs/{job_id}/events"
    with httpx2.stream("GET", url, headers={**world.headers(), **headers}, timeout=20, verify=False) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        return list(read_stream(answer.iter_lines()))


def as_list(world: World, job_id: UUID, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = world.call("GET", f"/v1/jobs/{job_id}/events?format=json{query}").json()
    return found


def test_the_events_so_far_come_as_a_list(world: World) -> None:
    job_id = world.submit(prompt="What is a bakery?")
    events = as_list(world, job_id)
    assert [event["kind"] for event in events] == ["accepted", "waiting"]
    assert as_list(world, job_id, f"&after={events[0]['id']}") == events[1:]


def test_the_stream_follows_a_job_and_ends_after_its_final_state(world: World, server: Server) -> None:
    job_id = world.submit(prompt="What is a bakery?")
    worker = threading.Timer(0.3, world.finish, (job_id, State.ANSWERED), {"answer": "A shop."})
    worker.start()
    events = follow(server, world, job_id)
    worker.join()
    assert [event["event"] for event in events][-1] == "ended"
    assert json.loads(events[-1]["data"])["data"]["state"] == "answered"
    listed = as_list(world, job_id)
    assert [int(event["id"]) for event in events] == [event["id"] for event in listed]
    assert [json.loads(event["data"]) for event in events] == listed


def test_a_stream_resumes_after_the_last_event_that_was_seen(world: World, server: Server) -> None:
    job_id = world.submit(prompt="What is a bakery?")
    world.finish(job_id, State.ANSWERED, answer="A shop.")
    whole = follow(server, world, job_id)
    for seen in range(1, len(whole)):
        assert follow(server, world, job_id, **{"Last-Event-ID": whole[seen - 1]["id"]}) == whole[seen:]


def test_a_reader_that_has_it_all_is_told_not_to_come_back(world: World) -> None:
    job_id = world.submit(prompt="What is a bakery?")
    world.finish(job_id, State.ANSWERED, answer="A shop.")
    last = as_list(world, job_id)[-1]["id"]
    answer = world.call("GET", f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": str(last)})
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("value", ["x", "-1", "1e3", str(2**63), ""])
def test_a_last_event_id_that_is_no_id_is_refused_by_name(world: World, value: str) -> None:
    job_id = world.submit(prompt="What is a bakery?")
    answer = world.call("GET", f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": value})
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["last-event-id"]


@pytest.fixture
def crossed(world: World) -> Iterator[tuple[UUID, Callable[[], None]]]:
    """A job with an event that is committed, above one whose transaction runs on, and what commits that one."""
    job_id = world.submit(prompt="What is a bakery?")
    early_written, may_commit = threading.Event(), threading.Event()

    def write_late() -> None:
        with world.ledger.begin() as session:
            record(session, EventKind.PROGRESS, job=find_job(session, job_id), text="early")
            early_written.set()
            may_commit.wait(10)

    writer = threading.Thread(target=write_late)
    writer.start()
    assert early_written.wait(10)
    with world.ledger.begin() as session:
        record(session, EventKind.PROGRESS, job=find_job(session, job_id), text="later")

    def commit() -> None:
        may_commit.set()
        writer.join()

    yield job_id, commit
    commit()


def texts(events: list[dict[str, Any]]) -> list[str]:
    return [event["data"]["text"] for event in events if event["kind"] == "progress"]


def test_a_reader_that_goes_on_from_the_last_id_misses_no_event_that_commits_late(
    world: World, crossed: tuple[UUID, Callable[[], None]]
) -> None:
    job_id, commit = crossed
    before = as_list(world, job_id)
    commit()
    after = as_list(world, job_id, f"&after={before[-1]['id'] if before else 0}")
    assert texts(before + after) == ["early", "later"]


def test_a_stream_tells_events_in_the_order_of_their_ids_however_they_commit(
    world: World, server: Server, crossed: tuple[UUID, Callable[[], None]]
) -> None:
    job_id, commit = crossed
    events: list[dict[str, str]] = []
    reader = threading.Thread(target=lambda: events.extend(follow(server, world, job_id)))
    reader.start()
    time.sleep(0.3)  # the reader sees "later" while "early" is not committed
    commit()
    world.finish(job_id, State.ANSWERED, answer="A shop.")
    reader.join(15)
    assert texts([json.loads(event["data"]) for event in events]) == ["early", "later"]
    assert [event["event"] for event in events][-1] == "ended"


@contextmanager
def opened(server: Server, world: World, job_id: UUID, key: str) -> Iterator[Any]:
    """An event stream that somebody keeps open."""
    url, headers = f"{server.url}/v1/jobs/{job_id}/events", {"Authorization": f"Bearer {key}"}
    with httpx2.stream("GET", url, headers=headers, timeout=10, verify=False) as answer:
        yield answer


def test_a_key_has_a_limit_of_open_streams_and_so_has_the_process(world: World, server: Server) -> None:
    rules = Streams(per_key=2, per_process=3, retry_seconds=7)
    vars(world.resources)["streams"] = EventStreams(world.ledger, rules, poll_seconds=0.02)
    job_id, one, other = world.submit(prompt="What is a bakery?"), world.key("read"), world.key("read")
    with ExitStack() as stack:
        kept = stack.enter_context(ExitStack())
        statuses = [kept.enter_context(opened(server, world, job_id, one)).status_code for _ in range(2)]
        refused = stack.enter_context(opened(server, world, job_id, one))
        statuses.append(stack.enter_context(opened(server, world, job_id, other)).status_code)
        full = stack.enter_context(opened(server, world, job_id, other))
        assert statuses == [200, 200, 200]
        for answer, status in ((refused, 429), (full, 503)):
            assert (answer.status_code, answer.headers["retry-after"]) == (status, "7")
            assert json.loads(answer.read())["type"] == "urn:pointsman:problem:too_many_streams"
        assert (
            httpx2.get(f"{server.url}/v1/jobs", headers={"Authorization": f"Bearer {one}"}, verify=False).status_code
            == 200
        )
        kept.close()  # who goes makes room at once

        def has_room() -> bool:
            with opened(server, world, job_id, one) as answer:
                return bool(answer.status_code == 200)

        wait_until(has_room, seconds=5, what="there is room again")


def test_an_open_stream_ends_soon_after_its_key_is_revoked_and_those_of_others_go_on(
    world: World, server: Server
) -> None:
    job_id, doomed, other = world.submit(prompt="What is a bakery?"), world.key("read"), world.key("read")
    with opened(server, world, job_id, other) as kept, opened(server, world, job_id, doomed) as cut:
        with world.ledger.begin() as session:
            (name,) = session.scalars(select(col(ApiKey.name)).where(col(ApiKey.key_hash) == hash_secret(doomed)))
            revoke(session, world.tenant, name=name)
        began = time.monotonic()
        assert "event: ended" not in "".join(cut.iter_text())  # returns when the stream ends
        assert time.monotonic() - began < HOLDER_SECONDS + 3
        world.finish(job_id, State.ANSWERED, answer="A shop.")
        assert "event: ended" in "".join(kept.iter_text())


def test_all_streams_of_a_process_share_one_look_at_the_ledger(world: World, server: Server) -> None:
    jobs = [world.submit(prompt="What is a bakery?") for _ in range(12)]
    key, looks = world.key("read"), []
    event.listen(world.ledger.engine, "before_cursor_execute", lambda *_: looks.append(time.monotonic()))

    def looks_of(streams: int) -> int:
        with ExitStack() as stack:
            answers = [stack.enter_context(opened(server, world, job_id, key)) for job_id in jobs[:streams]]
            lines = [answer.iter_lines() for answer in answers]  # one that is dropped ends its stream
            assert {next(each) for each in lines} != {""}
            began = len(looks)
            wait_until(lambda: looks and looks[-1] > looks[began - 1] + 0.5, seconds=10, what="half a second of looks")
            return len(looks) - began

    assert looks_of(12) < 2 * looks_of(1)


def test_a_stop_of_the_server_closes_open_streams_at_once(world: World, server: Server) -> None:
    job_id = world.submit(prompt="What is a bakery?")
    opened = threading.Event()

    def read() -> None:
        url = f"{server.url}/v1/jobs/{job_id}/events"
        with httpx2.stream("GET", url, headers=world.headers(), timeout=20, verify=False) as answer:
            for _ in read_stream(answer.iter_lines()):
                opened.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert opened.wait(10)
    assert server.stop() < 5
    reader.join(5)
    assert not reader.is_alive()


def test_the_real_server_names_no_software_and_serves_head(world: World, server: Server) -> None:
    answer = httpx2.get(f"{server.url}/healthz", verify=False)
    assert answer.status_code == 200
    assert "server" not in answer.headers
    assert answer.headers["x-content-type-options"] == "nosniff"
