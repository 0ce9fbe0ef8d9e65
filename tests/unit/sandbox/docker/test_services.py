"""Whether services still run, as an engine tells it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from docker.api import APIClient

from routing.policy.services import OfferedService, ProjectService, services_of
from sandbox.docker import services
from sandbox.docker.services import Part, check_running
from sandbox.errors import ServiceFailedError

SECONDS = 0.3


class Services:
    """An engine with services of which no port answers."""

    def __init__(self, *, end: Callable[[str, float], bool] = lambda part, seconds: False) -> None:
        """Set which have ended so many seconds after now."""
        self.end = end
        self.began = time.monotonic()

    def inspect_container(self, part: str) -> dict[str, Any]:
        has_ended = self.end(part, time.monotonic() - self.began)
        return {"State": {"Running": not has_ended, "ExitCode": 3 if has_ended else 0}}

    def exec_create(self, container: str, argv: Sequence[str], **_: Any) -> dict[str, str]:
        return {"Id": "probe"}

    def exec_start(self, made: str, *, detach: bool) -> None: ...

    def exec_inspect(self, made: str) -> dict[str, Any]:
        return {"Running": False, "ExitCode": 1}

    def logs(self, part: str, *, tail: int) -> bytes:
        return b"bye bye"


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    monkeypatch.setattr(services, "_ENDING_SECONDS", SECONDS)
    offers = {"redis": OfferedService(image="test-redis", port=6379)}
    asked = services_of({name: ProjectService(image="redis") for name in ("one", "two", "three")}, offers)
    return [Part(service, "image", f"10.0.0.{place}", service.name) for place, service in enumerate(asked)]


def check(engine: Services, parts: Sequence[Part], *, watch: Callable[[], None] = lambda: None) -> None:
    check_running(cast(APIClient, engine), parts, forwarder="forwarder", watch=watch)


def test_services_whose_ports_are_shut_are_waited_for_together(parts: list[Part]) -> None:
    began = time.monotonic()
    check(Services(), parts)
    assert SECONDS <= time.monotonic() - began < len(parts) * SECONDS


@pytest.mark.parametrize("name", ["one", "three"])
def test_a_service_that_ends_as_the_wait_does_has_ended(parts: list[Part], name: str) -> None:
    with pytest.raises(ServiceFailedError, match=f"service {name} .*ended with status 3"):
        check(Services(end=lambda part, seconds: part == name and seconds >= SECONDS), parts)


def test_a_wait_for_services_can_be_interrupted(parts: list[Part]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check(Services(), parts, watch=interrupt)
