"""The Docker engine that boxes run on: one of the benchmarks' own, whose image is kept from run to run."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import closing, contextmanager

import docker

from benchmarks.environments import CACHE
from benchmarks.question import UnavailableError, say
from tests.engine import TestEngine, missing


@contextmanager
def box_engine() -> Iterator[TestEngine]:
    """Run a Docker engine that has the image of boxes: it is built once, and one run after another uses it.

    Raises:
        UnavailableError: no engine can be had here.
    """
    if why := missing():
        raise UnavailableError(why)
    data = CACHE / "engine"
    data.mkdir(parents=True, exist_ok=True)
    with (CACHE / "engine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with TestEngine(data) as engine:
            say("the image of boxes (built once)")
            _tidy(engine.url, keep=engine.build_image().reference)
            yield engine


def _tidy(url: str, *, keep: str) -> None:
    """Remove what runs that were killed left, and images of former versions."""
    with closing(docker.DockerClient(base_url=url, timeout=120, version="auto")) as client:
        for container in client.containers.list(all=True):
            container.remove(force=True)
        client.volumes.prune()
        for image in client.images.list():
            if keep not in image.tags:
                client.images.remove(image.id, force=True)
