"""After a real session neither the provider's key nor the attempt's token is anywhere that it could be read.

Every place is also searched for something that has to be there: a search that finds nothing at all shows nothing.
"""

import gzip
import json
import logging
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from sqlmodel import SQLModel

from ledger.dispatch_window import Push
from producers.dispatch.broker import Publisher
from routing.broker import create_app
from routing.queues import QueueName
from sandbox.docker.box import DockerBox
from tests.box.ground import CANARY, Ground, Watch, ground
from tests.engine import TestEngine
from tests.services import Postgres

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

IN_IMAGE = "guard: %s is not a command"
SCENARIO = """
rules:
  - name: looks-around
    when: {tag: look, turn: 1, tools: [Bash]}
    say:
      - text: I look around.
      - tool: Bash
        input:
          command: >-
            env; cat /proc/*/environ; grep -c . /proc/self/status; printf '<p>By hand' >found.html;
            for _ in $(seq 150); do [ -e /tmp/looked ] && break; sleep 0.1; done
  - name: has-looked
    when: {tag: look, tool_result: true}
    say:
      - text: I have looked around.
"""


@pytest.fixture(scope="module")
def place(daemon: TestEngine, postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with ground(daemon, postgres, tmp_path_factory.mktemp("ground"), scenario=SCENARIO) as made:
        yield made


def dumped(value: Any) -> bytes:
    return json.dumps(value, default=str).encode()


def of_processes(place: Ground, container: str, file: str) -> bytes:
    """What a file of /proc says of every process of a container that is still there, seen from the engine's host."""
    said = []
    for row in place.engine.client.api.top(container, "-eo pid,comm")["Processes"]:
        with suppress(ProcessLookupError, FileNotFoundError):
            said.append(Path(f"/proc/{row[0]}/{file}").read_bytes())
    return b"\n".join(said)


def while_it_runs(place: Ground, box: DockerBox) -> Iterator[tuple[str, bytes]]:
    api = place.engine.client.api
    forwarder = f"pointsman-test-{box.id}-forwarder"
    for name, container in (("box", box.container), ("forwarder", forwarder)):
        found = api.inspect_container(container)
        yield f"inspect of the {name}", dumped(found)
        yield f"commands of the {name}", dumped([api.exec_inspect(run) for run in found["ExecIDs"] or []])
        yield f"command lines in the {name}", of_processes(place, container, "cmdline")
        yield f"environment in the {name}", of_processes(place, container, "environ")
        yield f"log of the {name}", api.logs(container)
    yield "networks", dumped(api.networks())
    yield "volumes", dumped(api.volumes())
    listing = "find /home/agent /tmp /run/box /dev/shm -type f -print -exec cat {} +; touch /tmp/looked"
    yield "files in memory", api.exec_start(api.exec_create(box.container, ["bash", "-c", listing])["Id"])


def in_the_ledger(place: Ground) -> bytes:
    tables = [table.name for table in SQLModel.metadata.sorted_tables]
    return b"\n".join(
        row.encode() for table in tables for (row,) in place.shop.rows(f'SELECT to_jsonb(t)::text FROM "{table}" t')
    )


def in_the_den(place: Ground) -> bytes:
    parts = []
    for path in sorted(place.resources.content_store.root.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            with suppress(OSError):
                data += gzip.decompress(data)
            parts.append(f"{path}\n".encode() + data)
    return b"\n".join(parts)


def in_the_broker(url: str) -> bytes:
    with Redis.from_url(url) as client:
        keys = sorted(client.scan_iter())
        return b"\n".join(key + b" " + client.dump(key) + dumped(held(client, key)) for key in keys)


def held(client: Any, key: bytes) -> Any:
    match client.type(key):
        case b"list":
            return client.lrange(key, 0, -1)
        case b"hash":
            return client.hgetall(key)
        case b"set":
            return list(client.smembers(key))
        case b"zset":
            return client.zrange(key, 0, -1, withscores=True)
    return client.get(key)


def in_the_image(place: Ground, *words: str) -> set[str]:
    """Which words stand in the image's layers, read as the engine would hand them out."""
    found, before = set(), b""
    for chunk in place.engine.client.images.get(place.image).save(chunk_size=8 << 20):
        text = before + chunk
        found |= {word for word in words if word.encode() in text}
        before = chunk[-max(map(len, words)) :]
    return found


def on_the_engine_s_disk(place: Ground, *words: str) -> set[str]:
    """Which words stand in the engine's files."""
    every = [part for word in words for part in ("-e", word)]
    done = subprocess.run(["grep", "-rshoaF", *every, str(place.daemon.home)], capture_output=True, check=False)
    return {line.decode() for line in done.stdout.splitlines()}


@pytest.mark.threat("C1", "C9")
@pytest.mark.req("H-116", "S-080", "S-081", "S-085")
def test_neither_the_key_nor_the_token_is_anywhere(
    place: Ground, broker_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    place.begin()
    site = place.site("cafe", tmp_path / "cafe")
    job_id = place.accept(site, "Look around [rehearse:look]")
    push = Push(job_id, place.shop.job(job_id).fence, QueueName.AGENT, "acme")
    Publisher(create_app(broker_url)).push_all([(push, place.shop.policy.queues[QueueName.AGENT])])
    places: dict[str, bytes] = {}

    def after(box: DockerBox) -> None:
        places["workspace"] = b"".join(place.engine.client.api.get_archive(box.container, "/workspace")[0])
        places["the queue"] = in_the_broker(broker_url)

    watch = Watch(place.pool, during=lambda box: places.update(while_it_runs(place, box)), after=after)
    job = place.work(job_id, watch)
    assert (job.state, job.detail) == ("awaiting_approval", None)
    token = watch.environment["ANTHROPIC_AUTH_TOKEN"]
    api = place.engine.client.api
    places |= {
        "the ledger": in_the_ledger(place),
        "the content store": in_the_den(place),
        "inspect of the image": dumped(api.inspect_image(place.image)),
        "history of the image": dumped(api.history(place.image)),
        "the worker's log": "\n".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records).encode(),
        **{f"log of {name}": text.encode() for name, text in place.logs().items()},
        "what the owner is told": dumped([job.result, job.detail]),
    }
    there = {
        "inspect of the box": b"no-new-privileges",
        "inspect of the forwarder": b"forward.mjs",
        "networks": b"inhibit_ipv4",
        "commands of the box": b"claude",
        "command lines in the box": b"claude",
        "volumes": b"workspace",
        "command lines in the forwarder": b"forward.mjs",
        "environment in the box": token.encode(),
        "environment in the forwarder": b"PATH=",
        "files in memory": b".claude",
        "workspace": b"By hand",
        "the queue": str(job_id).encode(),
        "the ledger": str(job_id).encode(),
        "the content store": b"I have looked around",
        "inspect of the image": b"pointsman.recipe",
        "history of the image": b"Imported",
        "log of model.log": b"port",
        "the worker's log": b"attempt_started",
        "log of gateway.log": b"call_settled",
        "what the owner is told": b"I have looked around",
        **dict.fromkeys(("commands of the forwarder", "log of the box"), b""),
        **dict.fromkeys(("log of the forwarder", "log of mirror.log"), b""),
    }
    assert set(places) == set(there)
    assert [name for name, word in there.items() if word not in places[name]] == []
    assert [name for name, data in places.items() if CANARY.encode() in data] == []
    holders = {name for name, data in places.items() if token.encode() in data}
    # at times the CLI's shell has its environment in a temporary file, too; the box is frozen and gone after it
    assert holders - {"files in memory"} == {"environment in the box"}
    assert in_the_image(place, CANARY, IN_IMAGE) == {IN_IMAGE}
    assert on_the_engine_s_disk(place, CANARY, token, IN_IMAGE) == {IN_IMAGE}
