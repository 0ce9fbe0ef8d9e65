"""The Docker engine, limited to one installation's objects; turns its failures into errors with one reason code."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cached_property
from typing import Any, NamedTuple

import docker
import docker.errors
import requests.exceptions
import urllib3.exceptions
from docker.models.networks import Network

from sandbox.docker import recipe
from sandbox.docker.recipe import INSTALL, KIND, SLOT, Kind, Slot, check_given_outer
from sandbox.errors import BoxLostError, SandboxError, SandboxStartupError, SandboxUnavailableError

UNREACHABLE = (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, ConnectionError, TimeoutError)
_REASONS: tuple[tuple[str, str], ...] = (
    (r"pool overlaps|overlaps with other one", "subnet_taken"),
    (r"no such image", "image_missing"),
    (r"no space left|disk quota", "disk_full"),
    (r"unknown (or invalid )?runtime|runtime .* not found|invalid runtime", "runtime_missing"),
    (r"(is|already) in use|already exists", "name_taken"),
    (r"could not find an available.*address pool|all predefined address pools", "no_subnet_left"),
    (r"cgroup", "cgroups_missing"),
    (r"executable file not found|no such file or directory", "program_missing"),
    (r"seccomp|capabilit|no-new-privileges", "confinement_refused"),
    (r"iptables|bridge", "network_refused"),
    (r"cannot allocate memory|resource temporarily unavailable", "no_room"),
)


def reason_of(status: int, message: str) -> str:
    """Return the reason code of an engine's refusal."""
    lowered = message.lower()
    for pattern, reason in _REASONS:
        if re.search(pattern, lowered):
            return reason
    return "option_refused" if 400 <= status < 500 else "engine_failed"


@contextmanager
def translating_start_errors() -> Iterator[None]:
    """Translate failures while a box is created.

    Raises:
        SandboxUnavailableError: the engine cannot be reached, or lacks the image (the operator's fault).
        SandboxStartupError: it refused (its fault, or ours); nothing is retried without the refused option (A15).
    """
    try:
        yield
    except SandboxError:
        raise
    except docker.errors.APIError as error:
        message = str(error.explanation or error)
        reason = reason_of(error.status_code or 500, message)
        if reason == "image_missing":
            raise SandboxUnavailableError(reason, "run `pointsman image build`") from None
        raise SandboxStartupError(reason, message[:500]) from None
    except docker.errors.DockerException as error:
        raise SandboxUnavailableError("engine_unreachable", str(error)[:300]) from None
    except UNREACHABLE as error:
        raise SandboxUnavailableError("engine_unreachable", type(error).__name__) from None


@contextmanager
def translating_use_errors() -> Iterator[None]:
    """Translate failures while a box is used.

    Raises:
        BoxLostError: the box or its engine is gone.
    """
    try:
        yield
    except SandboxError:
        raise
    except (docker.errors.DockerException, *UNREACHABLE) as error:
        raise BoxLostError(f"the box is gone: {type(error).__name__}: {str(error)[:300]}") from None


DEFAULT_ENGINE = "unix:///var/run/docker.sock"
_TIMEOUT_SECONDS = 30
_SUBNET_TRIES = 16
_CHUNK_BYTES = 1_048_576


class Outer(NamedTuple):
    """The network between the forwarders and the gateway."""

    name: str
    host: str
    """The engine's host as seen from there, on which a gateway on that host must listen. Empty on the operator's own
    network, in which the host has no address."""


class Leftover(NamedTuple):
    """A labelled object on an engine."""

    sort: str
    """`container`, `network` or `volume`."""
    id: str
    labels: dict[str, str]


class Engine:
    """One engine, for one installation. It connects at first use, so that connections do not cross a fork."""

    def __init__(self, url: str, *, install: str, subnets: ipaddress.IPv4Network, network: str = "") -> None:
        """Set the engine's URL; `network` is one on which the gateway's container listens, for forwarders to join."""
        self.url = url or DEFAULT_ENGINE
        self.install = install
        self._subnets = subnets
        self._network = network
        self._outer: dict[bool, Outer] = {}
        self.given_up: set[str] = set()
        """Slots that their living owner could not remove, left to the reaper."""

    @cached_property
    def client(self) -> docker.DockerClient:
        """The SDK's client, created at first use.

        Raises:
            SandboxUnavailableError: the engine does not answer (the operator's fault).
        """
        check_reachable(self.url)
        with translating_start_errors():
            return docker.DockerClient(base_url=self.url, timeout=_TIMEOUT_SECONDS, version="auto")

    def close(self) -> None:
        """Close the connection."""
        if "client" in self.__dict__:
            self.client.close()
            del self.__dict__["client"]

    def image_id(self, reference: str) -> str:
        """Return the id of an image.

        Raises:
            SandboxUnavailableError: there is no such image (the operator's fault).
        """
        with translating_start_errors():
            try:
                image_id: str = self.client.images.get(reference).id
            except docker.errors.ImageNotFound:
                raise SandboxUnavailableError(
                    "image_missing", f"there is no {reference}; run `pointsman image build`"
                ) from None
            return image_id

    def outer(self, *, has_masquerade: bool) -> Outer:
        """Return the network between the forwarders and the gateway: the operator's, or our own.

        Args:
            has_masquerade: whether our own network leads further than the engine's host.

        Raises:
            SandboxUnavailableError: no engine.
            SandboxStartupError: the engine refused.
        """
        if has_masquerade not in self._outer:
            with translating_start_errors():
                self._outer[has_masquerade] = self._given_outer() if self._network else self._find_outer(has_masquerade)
        return self._outer[has_masquerade]

    def forget_outer(self) -> None:
        """Look the outer network up again next time, as somebody may have removed it."""
        self._outer.clear()

    def _find_outer(self, has_masquerade: bool) -> Outer:
        wanted = recipe.outer_network(self.install, has_masquerade=has_masquerade)
        try:
            network = self.client.networks.create(**wanted)
        except docker.errors.APIError as error:
            if reason_of(error.status_code or 500, str(error.explanation)) != "name_taken":
                raise
            network = self.client.networks.get(wanted["name"])
        network.reload()
        self._check_outer(network, wanted)
        return Outer(wanted["name"], network.attrs["IPAM"]["Config"][0]["Gateway"])

    def _given_outer(self) -> Outer:
        """Return the operator's network if the gateway is its only way out."""
        try:
            network = self.client.networks.get(self._network).attrs
        except docker.errors.NotFound:
            raise SandboxUnavailableError(
                "network_missing", f"there is no network {self._network}, which POINTSMAN_BOX__NETWORK names"
            ) from None
        if differences := check_given_outer(network):
            raise SandboxStartupError("posture", f"network {self._network}: {'; '.join(differences)}")
        return Outer(self._network, "")

    @staticmethod
    def _check_outer(network: Network, wanted: dict[str, Any]) -> None:
        """Refuse a foreign network of the same name."""
        if network.attrs["Labels"] != wanted["labels"] or network.attrs["Options"] != wanted["options"]:
            raise SandboxStartupError("posture", f"network {wanted['name']} is not ours; remove it or rename it")

    def create_inner(self, slot: Slot) -> recipe.Addresses:
        """Create a slot's inner network in a free subnet.

        Raises:
            SandboxStartupError: no subnet is free, or the engine refused.
        """
        for _ in range(_SUBNET_TRIES):
            chosen = recipe.addresses(recipe.pick_subnet(self._subnets))
            try:
                self.client.networks.create(**recipe.inner_network(slot, chosen.subnet))
            except docker.errors.APIError as error:
                if reason_of(error.status_code or 500, str(error.explanation)) != "subnet_taken":
                    raise
            else:
                return chosen
        raise SandboxStartupError(
            "no_subnet_left", f"{_SUBNET_TRIES} tries in {self._subnets}: set POINTSMAN_BOX__SUBNETS"
        )

    def leftovers(self, slot: str | None = None) -> Iterator[Leftover]:
        """Yield the objects of this installation or of one slot: containers, then networks, then volumes.

        An engine that was killed while removing a container may list it forever, so listed containers are inspected.
        """
        labels = [f"{INSTALL}={self.install}"] + ([f"{SLOT}={slot}"] if slot else [])
        filters = {"label": labels}
        api = self.client.api
        for found in api.containers(all=True, filters=filters):
            if self._exists(found["Id"]):
                yield Leftover("container", found["Id"], found["Labels"])
        for found in api.networks(filters=filters):
            yield Leftover("network", found["Id"], found["Labels"])
        for found in (api.volumes(filters=filters) or {}).get("Volumes") or []:
            yield Leftover("volume", found["Name"], found["Labels"])

    def _exists(self, container: str) -> bool:
        try:
            self.client.api.inspect_container(container)
        except docker.errors.NotFound:
            return False
        return True

    @contextmanager
    def archive(self, container: str, path: str) -> Iterator[Iterator[bytes]]:
        """Yield the tar stream of a directory in a container, and close it whatever happens.

        The SDK's own call keeps the connection open while anything, such as a traceback, holds its generator; until
        then the engine would block every other request about this container.
        """
        api = self.client.api
        url = f"{api.base_url}/v{api.api_version}/containers/{container}/archive"
        with closing(api.get(url, params={"path": path}, stream=True, timeout=_TIMEOUT_SECONDS)) as response:
            response.raise_for_status()
            yield response.iter_content(_CHUNK_BYTES)

    def remove(self, found: Leftover) -> bool:
        """Remove an object; False if it is still in use or being removed already."""
        api = self.client.api
        try:
            if found.sort == "container":
                api.remove_container(found.id, force=True, v=True)
            elif found.sort == "network":
                self._disconnect_all(found.id)
                api.remove_network(found.id)
            else:
                api.remove_volume(found.id, force=True)
        except docker.errors.NotFound:
            return True
        except docker.errors.APIError:
            return False
        return True

    def _disconnect_all(self, network: str) -> None:
        """Disconnect all containers: a forwarder that is just ending still holds its network."""
        for container in self.client.api.inspect_network(network).get("Containers") or {}:
            with suppress(docker.errors.APIError):
                self.client.api.disconnect_container_from_network(container, network, force=True)

    def remove_slot(self, slot: str) -> bool:
        """Remove everything of a slot; False if something is left to the reaper."""
        is_gone = False
        try:
            is_gone = all([self.remove(found) for found in list(self.leftovers(slot))])
        except (docker.errors.DockerException, SandboxUnavailableError, *UNREACHABLE):
            pass
        finally:  # a time limit may strike meanwhile
            if not is_gone:
                self.given_up.add(slot)
        return is_gone


def check_reachable(url: str) -> None:
    """Check that a local engine's socket answers; the SDK would hide the reason.

    Raises:
        SandboxUnavailableError: `engine_missing`, `engine_forbidden` or `engine_unreachable` (the operator's fault).
    """
    path = url.removeprefix("unix://")
    if path == url:
        return
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_TIMEOUT_SECONDS)
            probe.connect(path)
    except FileNotFoundError:
        raise SandboxUnavailableError("engine_missing", f"there is no socket {path}") from None
    except PermissionError:
        raise SandboxUnavailableError("engine_forbidden", f"this account may not use {path}") from None
    except OSError as error:
        raise SandboxUnavailableError("engine_unreachable", f"{path}: {error.strerror or error}") from None


def is_outer_network(found: Leftover) -> bool:
    """Return whether an object belongs to the installation and not to a slot."""
    return found.labels.get(KIND) == Kind.OUTER
