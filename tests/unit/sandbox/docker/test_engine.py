"""What an engine says it has, where it does not have it."""

from ipaddress import IPv4Network
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from sandbox.docker.engine import Engine, maps_users
from sandbox.docker.recipe import SLOT


class KilledWhileRemoving:
    """The API of an engine that still lists a container of which it knows nothing else."""

    def containers(self, **_: Any) -> list[dict[str, Any]]:
        return [{"Id": name, "Labels": {SLOT: name}} for name in ("stands", "ghost")]

    def networks(self, **_: Any) -> list[dict[str, Any]]:
        return []

    def volumes(self, **_: Any) -> dict[str, Any]:
        return {"Volumes": None}

    def inspect_container(self, container: str) -> dict[str, Any]:
        if container == "ghost":
            raise docker.errors.NotFound("No such container: ghost")
        return {}


def test_a_container_that_is_only_listed_is_no_leftover(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine("unix:///nowhere.sock", install="i", subnets=IPv4Network("10.0.0.0/8"))
    monkeypatch.setitem(engine.__dict__, "client", SimpleNamespace(api=KilledWhileRemoving()))
    assert [found.id for found in engine.leftovers()] == ["stands"]


@pytest.mark.parametrize(
    ("options", "is_so"),
    [
        (["name=seccomp,profile=default"], False),
        (["name=seccomp,profile=default", "name=rootless"], True),
        (["name=userns"], True),
        (None, False),
    ],
)
def test_an_engine_that_maps_users_says_so(options: list[str] | None, is_so: bool) -> None:
    assert maps_users({"SecurityOptions": options}) is is_so
