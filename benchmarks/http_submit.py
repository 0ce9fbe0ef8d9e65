"""What does a submit cost over HTTP? One API process, four connections that stay open."""

from __future__ import annotations

from functools import partial

from benchmarks.callers import calling
from benchmarks.environments import python_with
from benchmarks.fleet import Fleet, environment, home, run, with_room_on_disk
from benchmarks.race import Peer, Race, Turn, module
from benchmarks.servers import TENANT, shared
from producers.local.supervisor import Program, python_module
from producers.use_cases.tenants import Scope, create_key

FASTAPI = partial(
    python_with,
    [
        "celery==5.7.0",
        "redis==8.1.0",
        "packaging==25.0",
        "fastapi==0.165.0",
        "uvicorn==0.54.0",
        "uvloop==0.23.0",
        "httptools==0.9.0",
    ],
)


def turn() -> Turn:
    """Return what submits so many edits; before each turn the queue is emptied."""
    fleet, directory = Fleet(), home()
    fleet.add_sites()
    with fleet.ledger.begin() as session:
        key = create_key(session, TENANT, name="bench", scopes=tuple(Scope))
    settings = environment(directory) | {"POINTSMAN_POLICY__PATH": str(with_room_on_disk(directory))}
    url = settings["POINTSMAN_API__PUBLIC_URL"]
    run([Program("api", python_module("producers.cli", "api"), ready_url=f"{url}/readyz")], settings, directory)
    call = calling(int(settings["POINTSMAN_API__PORT"]), "/v1/jobs", {"Authorization": f"Bearer {key}"})

    def take(times: int) -> float:
        fleet.rest()
        return call(times)

    return take


QUESTION = Race(
    name="http",
    asks="One job submitted over HTTP, one API process, four connections",
    ours=module(__name__),
    peers=(
        Peer(
            "a bare FastAPI endpoint that only calls send_task", module("benchmarks.peers.fastapi_submit", FASTAPI), 0.7
        ),
    ),
    pairs=9,
    turn_seconds=0.5,
    beside=shared,
)
