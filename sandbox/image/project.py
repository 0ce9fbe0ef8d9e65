"""Builds a project's own image: what the operator chose, with our parts on it in place of its own.

The choice is the base, as Debian is for the image of all boxes: users, entry point, environment and set-user-id bits of
what was chosen do not get into a box, nor anything that could stand in for the CLI or for the programs that hold it. So
a Dockerfile decides which tools a project's boxes have, and no wall. The box's forwarder and bridge keep the image of
all boxes, since one reaches the gateway's network and the other runs as root.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import docker
import docker.errors

from sandbox.box_spec import BoxSpec, Target
from sandbox.claude_code import CLI_VERSION
from sandbox.config import BoxConfig
from sandbox.docker import recipe
from sandbox.docker.engine import UNREACHABLE, Engine, check_reachable, translating_start_errors
from sandbox.docker.recipe import HOME, PARTS, RUN, Kind, Slot
from sandbox.errors import SandboxError, SandboxUnavailableError
from sandbox.image.build import ENGINE_SECONDS, PATH, Base, Progress, bootstrap, exported, import_onto, pull
from sandbox.image.rootfs import parts_digest
from sandbox.image.source import ImageSource
from sandbox.owner import current_owner

REPOSITORY = "pointsman-project"
_PROBE_SECONDS = 60
_MAX_DIRECTORIES = 20
_DIRECTORY = re.compile(r"/[A-Za-z0-9/._+-]{1,200}")
_COMMANDS = "bash cat chmod cp env find grep head kill ls mkdir mv rm sed seq sh sleep sort tail timeout tr wc"
_PROBE = f"""
for name in {_COMMANDS}; do type "$name" >/dev/null 2>&1 || echo "the command $name"; done
[ ! -r "$(type -P timeout)" ] || echo "a timeout that is a program of its own: its programs could end its clock"
said=$(claude --version 2>&1)
[ "$said" = "{CLI_VERSION} (Claude Code)" ] || echo "what Claude Code needs: ${{said:0:200}}"
said=$(node --version 2>&1) || echo "what Node needs: ${{said:0:200}}"
"""


class BuiltProject(NamedTuple):
    """A project's own image."""

    id: str
    """`sha256:...`: what the project's record names, so that no tag changes what its boxes are made of."""
    reference: str
    """A tag for people."""
    source: str
    bytes: int
    dropped: tuple[str, ...]
    """Variables of the chosen image, which no box has."""
    seconds: float


def build_for_project(
    config: BoxConfig, source: ImageSource, *, name: str, say: Progress, network: str | None = None
) -> BuiltProject:
    """Build a project's image and check, in a locked container, that it has what a box needs.

    `name` is of the project and its tenant, for the tag; `network` is the engine's for a Dockerfile's own commands.

    Raises:
        SandboxUnavailableError: the operator's fault: `base_missing`, `build_failed`, `image_unfit`, or no engine.
        SandboxStartupError: the engine refused.
    """
    began = time.monotonic()
    engine = Engine(config.engine, install=config.install, subnets=config.subnets)
    check_reachable(engine.url)
    reference = f"{REPOSITORY}:{f'{config.install}.{name}'[:128]}"
    with translating_start_errors():
        client = docker.DockerClient(base_url=engine.url, timeout=ENGINE_SECONDS, version="auto")
    try:
        with translating_start_errors():
            with _opened(client, source, cache=config.cache.absolute(), network=network, say=say) as (base, env):
                path, dropped = _environment(env)
                labels = {PARTS: parts_digest(), "pointsman.project": name}
                import_onto(
                    client, base, reference, labels=labels, cache=config.cache, say=say, is_project=True, path=path
                )
            image = client.images.get(reference)
            say("checking what it lacks")
            if lacking := _probe(engine, image.id):
                client.images.remove(image.id, force=True)
                raise SandboxUnavailableError("image_unfit", f"{source} lacks {'; '.join(lacking)}")
        return BuiltProject(
            image.id, reference, str(source), image.attrs["Size"], dropped, round(time.monotonic() - began, 1)
        )
    finally:
        client.close()
        engine.close()


def remove_image(config: BoxConfig, image_id: str) -> bool:
    """Remove a project's image from the engine; False if it is in use there, is not there, or no engine answers."""
    with closing(Engine(config.engine, install=config.install, subnets=config.subnets)) as engine:
        try:
            with translating_start_errors():
                engine.client.api.remove_image(image_id)
        except SandboxError:
            return False
    return True


@contextmanager
def _opened(
    client: docker.DockerClient, source: ImageSource, *, cache: Path, network: str | None, say: Progress
) -> Iterator[tuple[Base, list[str]]]:
    """Yield the files of what was chosen, and its variables."""
    origin = str(source).replace(" ", "_")
    if source.packages:
        with bootstrap(cache, say, packages=source.packages).open("rb") as stream:
            yield Base(stream, origin), []
        return
    built = None
    if source.base is not None:
        if not pull(client, source.base, say):
            raise SandboxUnavailableError("base_missing", f"there is no image {source.base}, and it cannot be pulled")
        reference = source.base
    else:
        reference = built = _run_dockerfile(client, source, network=network, say=say)
    try:
        env = client.api.inspect_image(reference)["Config"].get("Env") or []
        with exported(client, reference) as stream:
            yield Base(stream, origin), env
    finally:
        if built is not None:
            with suppress(docker.errors.APIError):  # its layers stay, as the builder's cache
                client.api.remove_image(built, noprune=True)


def _run_dockerfile(client: docker.DockerClient, source: ImageSource, *, network: str | None, say: Progress) -> str:
    assert source.dockerfile is not None
    assert source.context is not None
    lines: list[str] = []
    built = ""
    try:
        for part in client.api.build(
            path=str(source.context),
            dockerfile=str(source.dockerfile.relative_to(source.context)),
            buildargs=dict(source.args),
            network_mode=network,
            rm=True,
            forcerm=True,
            decode=True,
        ):
            built = part.get("aux", {}).get("ID", built)
            if line := str(part.get("stream") or part.get("error") or "").strip():
                lines = [*lines[-9:], line]
                say(line)
            if "error" in part:
                raise SandboxUnavailableError("build_failed", f"{source}: {' / '.join(lines)[-800:]}")
    except docker.errors.APIError as error:
        raise SandboxUnavailableError("build_failed", f"{source}: {str(error.explanation or error)[:500]}") from None
    if not built:
        raise SandboxUnavailableError("build_failed", f"{source}: the engine named no image")
    return built


def _environment(env: list[str]) -> tuple[str, tuple[str, ...]]:
    """Return the PATH of boxes, ours first, and the names of the variables that they do not have."""
    values = dict(entry.partition("=")[::2] for entry in env)
    found = [place for place in values.pop("PATH", "").split(":") if _DIRECTORY.fullmatch(place)]
    more = [place for place in dict.fromkeys(found) if place not in PATH.split(":")]
    return ":".join((PATH, *more[:_MAX_DIRECTORIES])), tuple(sorted(values))


def _probe(engine: Engine, image_id: str) -> list[str]:
    """Return what an image lacks, as it says itself in a container with all of a box's walls and no network."""
    api = engine.client.api
    slot = Slot.new(engine.install, current_owner(), lifetime_seconds=_PROBE_SECONDS, uids=engine.uids)
    spec = BoxSpec(image=image_id, gateway=Target("", 1))
    wanted: dict[str, Any] = recipe.confined(slot, spec, Kind.BOX) | {
        "command": ["bash", "-c", _PROBE],
        "environment": {"HOME": HOME},
        "auto_remove": False,
        "network_mode": "none",
        "tmpfs": {place: f"rw,nosuid,nodev,uid={slot.uid},mode=0700" for place in (HOME, "/tmp", RUN)},
        "mem_limit": spec.limits.memory_bytes // 4,
        "pids_limit": 64,
    }
    try:
        made = engine.client.containers.create(**wanted).id
        try:
            api.start(made)
        except docker.errors.APIError as error:
            if "bash" in str(error.explanation):
                return ["the command bash"]
            raise
        try:
            api.wait(made, timeout=_PROBE_SECONDS)
        except UNREACHABLE:
            return [f"programs that answer within {_PROBE_SECONDS} s"]
        return [line for line in api.logs(made).decode("utf-8", "replace").splitlines() if line.strip()][:20]
    finally:
        engine.remove_slot(slot.id)
