"""One reason code for each way in which an engine can fail (one place reads its words, and nobody else does)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import docker.errors
import requests.exceptions
import urllib3.exceptions

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
