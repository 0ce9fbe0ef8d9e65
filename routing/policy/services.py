"""Services beside a box, such as the database of a project's tests: the operator offers them, a project takes them.

Only the operator chooses images. A project names an offer and may set how it is used; a plan, a ticket and an agent
can do neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from routing.config import Section

MAX_SERVICES = 3
"""Of one box: so many addresses are left in its inner network."""
_TAKEN_NAMES = frozenset({"box", "egress", "localhost"})
_MEBIBYTE = 1 << 20

Command = Annotated[str, StringConstraints(strip_whitespace=True, pattern=r"^[^\x00-\x1f\x7f]{1,500}$")]
"""One line for a shell in a box, or in a service."""


def _check_name(name: str) -> str:
    if name in _TAKEN_NAMES:
        raise ValueError("is a name that every box has already")
    return name


ServiceName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,30}$"), AfterValidator(_check_name)]
"""Also its host name, as boxes know it."""
OfferName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9.-]{0,62}$")]
Variables = Annotated[
    dict[
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")],
        Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{0,500}$")],
    ],
    Field(max_length=30),
]
"""Environment variables. They are shown to whoever may see the project, so none of them is a secret."""
Port = Annotated[int, Field(ge=1, le=65_535)]
DataDirectory = Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,100}){1,8}$")]


class OfferedService(Section):
    """What the operator offers under a name."""

    image: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._/:@-]{0,254}$")]
    """An image that is on the boxes' engine; nothing is pulled. It must work as any user, on a read-only system."""
    port: Port
    """On which it listens."""
    data: Annotated[tuple[DataDirectory, ...], Field(max_length=8)] = ()
    """Directories that it writes to, besides /tmp; they are in memory, and gone with the box."""
    env: Variables = Field(default_factory=dict)
    ready: Command | None = None
    """A line for the shell in the service; it is ready when that succeeds and its port answers."""
    ready_seconds: Annotated[float, Field(gt=0, le=300)] = 60
    """How long it may take to be ready."""
    memory_mib: Annotated[int, Field(ge=16)] = 256
    """Its data included. Memory, CPUs and processes of a box's services are taken out of the box's own."""
    cpus: Annotated[float, Field(gt=0)] = 0.5
    processes: Annotated[int, Field(ge=4)] = 64


class ProjectService(Section):
    """What a project takes under a host name; what it leaves out is as offered."""

    image: OfferName
    """The name of an offer, never an image's own."""
    env: Variables = Field(default_factory=dict)
    """Besides the offer's; the project's value counts where both have one."""
    port: Port | None = None
    ready: Command | None = None


@dataclass(frozen=True)
class Service:
    """A service as a box gets it."""

    name: str
    offer: str
    image: str
    port: int
    env: Mapping[str, str]
    data: tuple[str, ...]
    ready: str | None
    ready_seconds: float
    memory_bytes: int
    cpus: float
    processes: int

    @property
    def title(self) -> str:
        """How people know it."""
        return f"service {self.name} ({self.offer})"


def unoffered(asked: Mapping[str, ProjectService], offered: Mapping[str, OfferedService]) -> Iterator[tuple[str, str]]:
    """Yield the names under which a project takes what is not offered, each with the rule."""
    for name, service in asked.items():
        if service.image not in offered:
            offer = f"offers {', '.join(sorted(offered))}" if offered else "offers no services"
            yield name, f"must be the name of an offer: this installation {offer} (`runs.services` of its policy)"


def services_of(asked: Mapping[str, ProjectService], offered: Mapping[str, OfferedService]) -> tuple[Service, ...]:
    """Return a project's services; all of them must be offered (`unoffered`)."""
    return tuple(_service(name, service, offered[service.image]) for name, service in sorted(asked.items()))


def _service(name: str, asked: ProjectService, offered: OfferedService) -> Service:
    return Service(
        name=name,
        offer=asked.image,
        image=offered.image,
        port=asked.port or offered.port,
        env={**offered.env, **asked.env},
        data=offered.data,
        ready=asked.ready or offered.ready,
        ready_seconds=offered.ready_seconds,
        memory_bytes=offered.memory_mib * _MEBIBYTE,
        cpus=offered.cpus,
        processes=offered.processes,
    )
