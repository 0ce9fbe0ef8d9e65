"""A tenant that has one of everything that routes name: what strangers and generated requests are let loose on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlmodel import SQLModel, col, select

from ledger.job_ends import cluster_name
from ledger.jobs import lock_job
from ledger.runs.run import open_gate
from ledger.runs.specs import NewGate
from ledger.runs.tables import Gate
from ledger.store import Ledger
from routing.jobs import Reason, State
from tests.integration.api.http_world import HOME, PAGES, World, open_world

EDIT = {"prompt": "Change the headline to 'Fresh bread'", "site": "bakery"}
PROJECT = "repo: {url: https://forge.example/acme/shop.git}\nstack: {language: typescript}\nkeys: {anthropic: acme}\n"
DEATH = "the provider refused the call"
CLUSTER = cluster_name(f"{Reason.PROVIDER_ERROR.value}: {DEATH}")
"""The short name of the cluster that the tenant's dead letter is of."""
TICKET = {"project": "shop", "title": "The cart forgets its items", "body": "Reload the page: it is empty."}


@dataclass(frozen=True)
class Belongings:
    """What a tenant has, by what routes call it."""

    offered: UUID
    """A job that waits for approval."""
    waiting: UUID
    asking: UUID
    answered: UUID
    run: UUID
    gate: UUID
    release: UUID
    earlier_release: UUID
    dead: UUID
    notice: UUID
    site: str = "bakery"
    project: str = "shop"

    @property
    def jobs(self) -> tuple[UUID, ...]:
        return (self.offered, self.waiting, self.asking, self.answered, self.run, self.dead)


def furnish(world: World, directory: Path) -> Belongings:
    """Give a world's tenant one of everything."""
    earlier = world.site("bakery", PAGES, directory)
    active = world.site("bakery", {**PAGES, "index.html": HOME + b"\n"}, directory)
    chosen = world.call("PUT", "/v1/notice-choice", json={"states": ["awaiting_approval"]})
    assert chosen.status_code == 200, chosen.text
    offered = world.submit(**EDIT, callback_url="https://hooks.example/acme")
    world.offer(offered, {**PAGES, "new.html": HOME})
    asking = world.submit(prompt="Change the headline to 'Fresh bread'")
    waiting = world.submit(prompt="What is a bakery?")
    answered = world.submit(prompt="What is bread?")
    world.finish(answered, State.ANSWERED, answer="Food.")
    dead = world.submit(prompt="What is a dead letter?")
    world.finish(dead, State.FAILED, reason=Reason.PROVIDER_ERROR, detail=DEATH)
    added = world.call("POST", "/v1/projects", json={"name": "shop", "file": PROJECT})
    assert added.status_code == 201, added.text
    ticket = world.call("POST", "/v1/runs", json=TICKET)
    assert ticket.status_code == 202, ticket.text
    run = UUID(ticket.json()["id"])
    with world.ledger.begin() as session:
        spec = NewGate(key="before-publish", kind="rule", reason="A person looks first.", after=())
        open_gate(session, lock_job(session, run), spec, hours=1)
        gate = session.scalars(select(col(Gate.id)).where(col(Gate.run_id) == run)).one()
    (notice,) = world.call("GET", "/v1/notices").json()["notices"]
    told = UUID(notice["id"])
    return Belongings(offered, waiting, asking, answered, run, gate, active.id, earlier.id, dead, told)


def dump_of(world: World) -> Iterator[tuple[str, int, str]]:
    """Yield name, row count and a digest of every table: two equal dumps mean that nothing was written."""
    row = "(to_jsonb(t) - 'last_used_at' - 'seen_at')::text"  # that a key or a session is used is noted
    with world.ledger.begin() as session:
        for name in sorted(SQLModel.metadata.tables):
            digests = f"md5(string_agg(md5({row}), '' ORDER BY md5({row})))"
            query = f"SELECT count(*), coalesce({digests}, '') FROM \"{name}\" t"
            count, digest = session.execute(text(query)).one()
            yield name, count, digest


@pytest.fixture(scope="module")
def furnished(shared_ledger: Ledger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Belongings]]:
    """The owner's world and what it has; an open stream of its events ends after what there is."""
    directory = tmp_path_factory.mktemp("furnished")
    with open_world(shared_ledger, directory / "content-store") as world:
        world.resources.streams.stop()
        yield world, furnish(world, directory)


def fill(path: str, values: Mapping[str, str]) -> str:
    """Put values in place of the parameters of a route's path."""
    return re.sub(r"\{(\w+)\}", lambda found: values[found[1]], path)
