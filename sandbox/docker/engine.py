"""The engine as this product uses it: one connection, one installation's objects, nothing of anybody else's."""

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

# One reason code for each way in which an engine can fail (one place reads its words, and nobody else does).

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
    """Return the one reason code of an engine's refusal."""
    lowered = message.lower()
    for pattern, reason in _REASONS:
        if re.search(pattern, lowered):
            return reason
    return "option_refused" if 400 <= status < 500 else "engine_failed"


@contextmanager
def starting() -> Iterator[None]:
    """Name what fails while a box is made.

    Raises:
        SandboxUnavailableError: the engine cannot be reached, or lacks the image (the operator's fault).
        SandboxStartupError: it refused (its fault, or ours); nothing is tried again without the refused option (A15).
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
def using() -> Iterator[None]:
    """Name what fails while a box is used.

    Raises:
        BoxLostError: it, or its engine, is gone.
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
    """The network between forwarders and gateway."""

    name: str
    host: str
    """The engine's host, as seen from there: where a gateway on that host has to listen. Empty on a network of the
    operator's, where the host has no address."""


class Leftover(NamedTuple):
    """A labelled object that an engine holds."""

    sort: str
    """`container`, `network` or `volume`."""
    id: str
    labels: dict[str, str]


class Engine:
    """One engine, for one installation. Opened where it is used: connections do not cross a fork."""

    def __init__(self, url: str, *, install: str, subnets: ipaddress.IPv4Network, network: str = "") -> None:
        """Take where it is; `network` names one that the gateway's container is on, for forwarders to join."""
        self.url = url or DEFAULT_ENGINE
        self.install = install
        self._subnets = subnets
        self._network = network
        self._outer: dict[bool, Outer] = {}
        self.given_up: set[str] = set()
        """Slots whose owner is done with them, and which could not be removed: the reaper's, though the owner lives."""

    @cached_property
    def client(self) -> docker.DockerClient:
        """The SDK's client; made at first use.

        Raises:
            SandboxUnavailableError: nobody answers (the operator's fault).
        """
        check_reachable(self.url)
        with starting():
            return docker.DockerClient(base_url=self.url, timeout=_TIMEOUT_SECONDS, version="auto")

    def close(self) -> None:
        """Let go of the connection."""
        if "client" in self.__dict__:
            self.client.close()
            del self.__dict__["client"]

    def image_id(self, reference: str) -> str:
        """Return the id of an image that is there.

        Raises:
            SandboxUnavailableError: it is not (the operator's fault).
        """
        with starting():
            try:
                found: str = self.client.images.get(reference).id
            except docker.errors.ImageNotFound:
                raise SandboxUnavailableError(
                    "image_missing", f"there is no {reference}; run `pointsman image build`"
                ) from None
            return found

    def outer(self, *, has_masquerade: bool) -> Outer:
        """Return the network between forwarders and gateway: the operator's, or one made when it is not there.

        Args:
            has_masquerade: whether one of our own leads further than the engine's host.

        Raises:
            SandboxUnavailableError: no engine.
            SandboxStartupError: the engine refused.
        """
        if has_masquerade not in self._outer:
            with starting():
                self._outer[has_masquerade] = self._given_outer() if self._network else self._find_outer(has_masquerade)
        return self._outer[has_masquerade]

    def forget_outer(self) -> None:
        """Look for the outer network again next time: somebody removed it."""
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
        """Take the operator's network, if it has no other way out than the gateway."""
        try:
            found = self.client.networks.get(self._network).attrs
        except docker.errors.NotFound:
            raise SandboxUnavailableError(
                "network_missing", f"there is no network {self._network}, which POINTSMAN_BOX__NETWORK names"
            ) from None
        if differences := check_given_outer(found):
            raise SandboxStartupError("posture", f"network {self._network}: {'; '.join(differences)}")
        return Outer(self._network, "")

    @staticmethod
    def _check_outer(network: Network, wanted: dict[str, Any]) -> None:
        """Refuse a network that only bears the name."""
        if network.attrs["Labels"] != wanted["labels"] or network.attrs["Options"] != wanted["options"]:
            raise SandboxStartupError("posture", f"network {wanted['name']} is not ours; remove it or rename it")

    def create_inner(self, slot: Slot) -> recipe.Addresses:
        """Make a slot's own network, in a subnet that is free.

        Raises:
            SandboxStartupError: none is, or the engine refused.
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
        """Yield what this installation has on the engine, or what one slot has: containers, then networks, volumes.

        An engine that was killed while it removed a container may list that for ever, and know nothing else of it.
        """
        labels = [f"{INSTALL}={self.install}"] + ([f"{SLOT}={slot}"] if slot else [])
        filters = {"label": labels}
        api = self.client.api
        for found in api.containers(all=True, filters=filters):
            if self._knows(found["Id"]):
                yield Leftover("container", found["Id"], found["Labels"])
        for found in api.networks(filters=filters):
            yield Leftover("network", found["Id"], found["Labels"])
        for found in (api.volumes(filters=filters) or {}).get("Volumes") or []:
            yield Leftover("volume", found["Name"], found["Labels"])

    def _knows(self, container: str) -> bool:
        try:
            self.client.api.inspect_container(container)
        except docker.errors.NotFound:
            return False
        return True

    @contextmanager
    def archive(self, container: str, path: str) -> Iterator[Iterator[bytes]]:
        """Give the tar stream of a directory in a container. Whoever stops reading leaves nothing open.

        The SDK's own call keeps the connection while anybody, such as a traceback, holds its generator; the engine
        would then wait with everything else that it is asked about this container.
        """
        api = self.client.api
        url = f"{api.base_url}/v{api.api_version}/containers/{container}/archive"
        with closing(api.get(url, params={"path": path}, stream=True, timeout=_TIMEOUT_SECONDS)) as response:
            response.raise_for_status()
            yield response.iter_content(_CHUNK_BYTES)

    def remove(self, found: Leftover) -> bool:
        """Remove an object; False when something still holds it or it is being removed already."""
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
        """A forwarder that is just ending still holds its network."""
        for container in self.client.api.inspect_network(network).get("Containers") or {}:
            with suppress(docker.errors.APIError):
                self.client.api.disconnect_container_from_network(container, network, force=True)

    def remove_slot(self, slot: str) -> bool:
        """Remove all that belongs to a slot; False when something is left for the reaper."""
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
    """Look whether anybody answers at a local engine's socket; the SDK would hide the reason.

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


def is_outer(found: Leftover) -> bool:
    """Return whether an object is the installation's own, not a slot's."""
    return found.labels.get(KIND) == Kind.OUTER
