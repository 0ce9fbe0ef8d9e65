"""A standby is promoted while calls are served: none is left unbooked, and who lost its claim has no effect."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from aiohttp import web

from ledger.attempts import lock_owned_job
from ledger.errors import FencedError
from ledger.store import Ledger, create_ledger_engine
from routing.policy.platform import platform_policy
from tests.cluster import Cluster, cluster, url_at
from tests.factories import Shop
from tests.integration.gateway.gateway_world import (
    Held,
    ScriptedProvider,
    World,
    closing,
    gateway_world,
    message,
    opening,
    provider,
    scripted_provider,
    stream,
    words,
)
from tests.services import wait_until

CALLERS = 6


@dataclass
class Load:
    """Callers that make one call after the other until they are told to stop."""

    world: World
    holders: list[Held]
    served: set[str] = field(default_factory=set)
    """Calls whose last byte their caller has."""
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self, held: Held) -> None:
        while not self.stopping.is_set():
            try:
                reply = self.world.post(held, message(stream=True, max_tokens=100))
            except httpx2.HTTPError:
                continue
            if reply.status_code == 200 and "message_stop" in reply.text:
                self.served.add(reply.text.partition("call-")[2][:36])
            elif reply.status_code != 200:
                self.stopping.wait(0.05)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        threads = [threading.Thread(target=self.run, args=(held,)) for held in self.holders]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join(30)

    def serve(self, more: int) -> None:
        goal = len(self.served) + more
        wait_until(lambda: len(self.served) >= goal, seconds=60, what=f"{goal} calls served")


@contextmanager
def loaded(server: Cluster, home: Path) -> Iterator[tuple[Load, Path]]:
    """A gateway under load, and the link that leads to its ledger."""
    address = server.data.with_name("ledger")
    address.symlink_to(server.sockets)

    async def script(played: ScriptedProvider, http: web.Request) -> web.StreamResponse:
        parts = opening().replace(b"msg_1", f"call-{http.headers['x-pointsman-call']}".encode()), words("ab"), closing()
        return await stream(played, http, *parts)

    ledger = Ledger(create_ledger_engine(url_at(address), pool_size=0))
    with (
        scripted_provider(script) as upstream,
        gateway_world(
            ledger,
            url_at(address),
            {"own": provider(upstream.url)},
            journal=home / "journal",
            reconcile_seconds=0.5,
        ) as world,
    ):
        world.execute("UPDATE tenant SET max_running = 100")
        load = Load(world, [world.attempt(cap_usd=5) for _ in range(CALLERS)])
        with load.under_way():
            yield load, address


def ids(server: Cluster, query: str) -> set[str]:
    return {str(call_id) for (call_id,) in server.execute(query)}


def booked(server: Cluster) -> set[str]:
    return ids(server, "SELECT id FROM call WHERE cost_nanousd > 0")


def point(address: Path, at: Cluster) -> None:
    new = address.with_name("ledger.new")
    new.symlink_to(at.sockets)
    new.replace(address)


@pytest.mark.slow
def test_a_promoted_synchronous_standby_has_every_served_call(tmp_path: Path) -> None:
    with cluster() as primary:
        standby = primary.standby()
        primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.execute("SELECT pg_reload_conf()")
        with loaded(primary, tmp_path) as (load, address):
            load.serve(100)
            primary.stop()
            standby.promote()
            point(address, standby)
            load.serve(100)
        assert load.served - booked(standby) == set()
        assert standby.execute("SELECT count(*) FROM event WHERE kind = 'call_restored'") == [(0,)]


def test_what_an_asynchronous_standby_lacks_is_booked_from_the_journal(tmp_path: Path) -> None:
    with cluster() as primary:
        standby = primary.standby()
        with loaded(primary, tmp_path) as (load, address):
            load.serve(50)
            of_primary = Shop(load.world.ledger, url_at(address))
            job_id = of_primary.accept()
            standby.execute("ALTER SYSTEM SET primary_conninfo = ''")
            standby.execute("SELECT pg_reload_conf()")
            wait_until(
                lambda: primary.execute("SELECT count(*) FROM pg_stat_replication") == [(0,)],
                seconds=20,
                what="the standby lags",
            )
            twin = of_primary.claim(job_id, worker="w1")
            load.serve(100)
            primary.stop()
            lost = load.served - ids(standby, "SELECT id FROM call")
            standby.promote()
            point(address, standby)
            load.serve(100)
            assert len(lost) >= 90
            wait_until(lambda: not load.served - booked(standby), seconds=30, what="all calls booked")
        holder = of_primary.claim(job_id, worker="w2")
        assert holder.attempt.fence == twin.attempt.fence
        with pytest.raises(FencedError), of_primary.ledger.begin() as session:
            lock_owned_job(session, twin.attempt)
        with of_primary.ledger.begin() as session:
            assert lock_owned_job(session, holder.attempt).id == job_id
        assert lost <= ids(standby, "SELECT data ->> 'call' FROM event WHERE kind = 'call_restored'")
        world = World(Ledger(create_ledger_engine(standby.url, pool_size=0)), "", platform_policy())
        wait_until(world.is_settled, seconds=60, what="no call is open")
        world.check_books()
