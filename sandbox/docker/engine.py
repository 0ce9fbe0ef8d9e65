"""The Docker engine, limited to one installation's objects; turns its failures into errors with one reason code."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import docker
import docker.errors
import requests.exceptions
import urllib3.exceptions

from sandbox.docker import recipe
from sandbox.docker.recipe import INSTALL, KIND, PARTS, SLOT, Kind, Slot, check_given_outer
from sandbox.errors import BoxLostError, SandboxError, SandboxStartupError, SandboxUnavailableError
from sites.disk import locked_file

UNREACHABLE = (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, ConnectionError, TimeoutError)
_REASONS: tuple[tuple[str, str], ...] = (
    (r"pool overlaps|overlaps with other one", "subnet_taken"),
    (r"is ambiguous", "network_ambiguous"),
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

    @cached_property
    def uids(self) -> range:
        """The users that boxes may have.

        Raises:
            SandboxUnavailableError: the engine does not answer (the operator's fault).
        """
        with translating_start_errors():
            return recipe.MAPPED_UIDS if maps_users(self.client.info()) else recipe.UIDS

    def close(self) -> None:
        """Close the connection."""
        if "client" in self.__dict__:
            self.client.close()
            del self.__dict__["client"]

    def image_id(self, reference: str, *, hint: str = "run `pointsman image build`") -> str:
        """Return the id of an image; `hint` says what to do where it is missing.

        Raises:
            SandboxUnavailableError: there is no such image (the operator's fault).
        """
        with translating_start_errors():
            try:
                image_id: str = self.client.images.get(reference).id
            except docker.errors.ImageNotFound:
                raise SandboxUnavailableError("image_missing", f"there is no {reference}; {hint}") from None
            return image_id

    def volumes_of(self, reference: str) -> set[str] | None:
        """Return the directories that an image declares as volumes; None if the engine does not have it.

        Raises:
            SandboxUnavailableError: no engine.
        """
        with translating_start_errors():
            try:
                return set(self.client.api.inspect_image(reference)["Config"].get("Volumes") or ())
            except docker.errors.ImageNotFound:
                return None

    def check_project_image(self, image_id: str, *, parts: str) -> None:
        """Check that a project's own image is there and has this version's `parts`, as its label says.

        Raises:
            SandboxUnavailableError: `image_missing` or `image_outdated` (the operator's fault).
        """
        again = "`pointsman image build --project NAME ...` builds it on this engine"
        self.image_id(image_id, hint=f"{again}, `docker save` and `docker load` bring it from another")
        with translating_start_errors():
            labels = self.client.api.inspect_image(image_id)["Config"].get("Labels") or {}
        if labels.get(PARTS) != parts:
            raise SandboxUnavailableError("image_outdated", f"{image_id} was not built by this version: {again}")

    def outer(self, *, has_masquerade: bool) -> Outer:
        """Return the network between the forwarders and the gateway: the operator's, or our own.

        With `has_masquerade`, our own network leads further than the engine's host.

        Raises:
            SandboxUnavailableError: no engine.
            SandboxStartupError: the engine refused.
        """
        with translating_start_errors():
            return self._given_outer() if self._network else self._own_outer(has_masquerade)

    def _own_outer(self, has_masquerade: bool) -> Outer:
        """Return our own network, created if missing.

        It is found by its label. An engine may create two networks of one name if it is asked twice at once, and then
        starts nothing on either, so creation is for one process at a time, and a twin that came all the same goes.
        """
        wanted = recipe.outer_network(self.install, has_masquerade=has_masquerade)
        found = self.networks(wanted["name"], is_ours=True)
        if len(found) != 1:
            with self._alone():
                found = self._settle_outer(wanted)
        (network,) = found
        if network["Options"] != wanted["options"]:
            raise SandboxStartupError("posture", f"network {wanted['name']} is not ours; remove it or rename it")
        return Outer(wanted["name"], network["IPAM"]["Config"][0]["Gateway"])

    def _settle_outer(self, wanted: dict[str, Any]) -> list[dict[str, Any]]:
        """Create the network if there is none, and remove all but the oldest, or but the one that is in use."""
        name = wanted["name"]
        try:
            if not self.networks(name, is_ours=True):
                self.client.networks.create(**wanted)
        except docker.errors.APIError as error:
            if reason_of(error.status_code or 500, str(error.explanation)) != "name_taken":
                raise
        found = self.networks(name, is_ours=True)
        for twin in sorted(found, key=lambda network: (network["Created"], network["Id"]), reverse=True):
            if len(found) > 1 and self._remove_unused(twin["Id"]):
                found.remove(twin)
        if len(found) == 1:
            return found
        if found:
            raise SandboxStartupError("network_ambiguous", f"{len(found)} networks are named {name}, all in use")
        raise SandboxStartupError("posture", f"network {name} is not ours; remove it or rename it")

    def _remove_unused(self, network: str) -> bool:
        """Remove a network; False if a container uses it."""
        try:
            self.client.api.remove_network(network)
        except docker.errors.NotFound:
            return True
        except docker.errors.APIError:
            return False
        return True

    def networks(self, name: str, *, is_ours: bool = False) -> list[dict[str, Any]]:
        """Return the networks of exactly this name; `is_ours` leaves out those without this installation's labels."""
        labels = {"label": [f"{INSTALL}={self.install}", f"{KIND}={Kind.OUTER}"]} if is_ours else {}
        found = self.client.api.networks(filters={"name": [f"^{re.escape(name)}$"], **labels})
        return [network for network in found if network["Name"] == name]

    def _alone(self) -> AbstractContextManager[int]:
        """Keep this machine's other threads and processes of the same installation out meanwhile."""
        name = hashlib.sha256(f"{self.url} {self.install}".encode()).hexdigest()[:16]
        return locked_file(Path(tempfile.gettempdir(), f"pointsman-{os.getuid()}-{name}.lock"))

    def _given_outer(self) -> Outer:
        """Return the operator's network if the gateway is its only way out."""
        found = self.networks(self._network)
        if not found:
            raise SandboxUnavailableError(
                "network_missing", f"there is no network {self._network}, which POINTSMAN_BOX__NETWORK names"
            )
        if len(found) > 1:
            raise SandboxStartupError("network_ambiguous", f"{len(found)} networks are named {self._network}")
        if differences := check_given_outer(found[0]):
            raise SandboxStartupError("posture", f"network {self._network}: {'; '.join(differences)}")
        return Outer(self._network, "")

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

    def close_bridge(self, slot: Slot, image: str) -> None:
        """Let nothing from a slot's inner network reach the engine's host, not even what is sent to everybody.

        Raises:
            SandboxStartupError: `bridge_open`, or the engine refused.
        """
        api = self.client.api
        made = api.create_container(**recipe.bridge_container(slot, image))["Id"]
        api.start(made)
        code = api.wait(made, timeout=_TIMEOUT_SECONDS)["StatusCode"]
        api.remove_container(made, force=True)
        if code != 0:
            raise SandboxStartupError("bridge_open", "the engine's host cannot be closed to the box's network")

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


def maps_users(facts: Mapping[str, Any]) -> bool:
    """Return whether an engine's containers have users of their own kind: it is rootless, or has `userns-remap`."""
    return any(option in ("name=userns", "name=rootless") for option in facts.get("SecurityOptions") or [])


def is_outer_network(found: Leftover) -> bool:
    """Return whether an object belongs to the installation and not to a slot."""
    return found.labels.get(KIND) == Kind.OUTER
