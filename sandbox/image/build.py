"""`pointsman image build`: makes the image where it is missing, and says which it is."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import docker
import docker.errors

from sandbox.box import WORKSPACE
from sandbox.docker.engine import check_reachable
from sandbox.docker.failures import starting
from sandbox.errors import SandboxUnavailableError
from sandbox.image.base import Progress, open_base
from sandbox.image.fetch import fetch_claude, fetch_node
from sandbox.image.parts import CLAUDE_VERSION, NODE_VERSION, image_reference, own_files, recipe_digest, this_platform
from sandbox.image.rootfs import assemble

_ENGINE_SECONDS = 900
_PATH = "/usr/local/bin:/usr/bin:/bin"


class Built(NamedTuple):
    """The image that this version's boxes are made from."""

    reference: str
    id: str
    base: str
    claude: str
    node: str
    bytes: int
    is_new: bool
    seconds: float


def build(url: str, *, base_image: str, cache: Path, say: Progress, force: bool = False) -> Built:
    """Build the image, unless the engine has it already.

    Args:
        url: the engine.
        base_image: what is tried to be pulled first.
        cache: where downloads and a base of our own are kept.
        say: takes one line per step.
        force: whether to build it anyway.

    Raises:
        SandboxUnavailableError: the operator's fault; the hint says what to do.
        SandboxStartupError: the engine refused.
    """
    began = time.monotonic()
    reference = image_reference(base_image)
    check_reachable(url)
    with starting():
        client = docker.DockerClient(base_url=url, timeout=_ENGINE_SECONDS, version="auto")
        try:
            is_new = force or not _has(client, reference)
            if is_new:
                _build(client, reference, base_image=base_image, cache=cache, say=say)
            image = client.images.get(reference)
            return Built(
                reference, image.id, image.labels.get("pointsman.base", ""), CLAUDE_VERSION, NODE_VERSION,
                image.attrs["Size"], is_new, round(time.monotonic() - began, 1),
            )  # fmt: skip
        finally:
            client.close()


def _has(client: docker.DockerClient, reference: str) -> bool:
    try:
        client.images.get(reference)
    except docker.errors.ImageNotFound:
        return False
    return True


def _build(client: docker.DockerClient, reference: str, *, base_image: str, cache: Path, say: Progress) -> None:
    pins = this_platform()
    if pins is None:
        raise SandboxUnavailableError("platform_unknown", "boxes are built for x86_64 and aarch64")
    cache.mkdir(parents=True, exist_ok=True)
    say(f"fetching Node {NODE_VERSION}")
    wheel = fetch_node(cache, pins)
    say(f"fetching Claude Code {CLAUDE_VERSION}")
    claude = fetch_claude(cache, pins, node_wheel=wheel)
    with open_base(client, base_image, cache=cache, say=say) as base, tempfile.TemporaryFile(dir=cache) as layer:
        say("assembling")
        assemble(base.stream, layer, node_wheel=wheel, claude=claude, files=own_files())
        layer.seek(0)
        say(f"handing it to the engine as {reference}")
        repository, _, tag = reference.partition(":")
        client.api.import_image(
            src=layer, repository=repository, tag=tag,
            changes=_changes(recipe_digest(base_image), base.origin),
        )  # fmt: skip


def _changes(recipe: str, origin: str) -> list[str]:
    return [
        f"ENV PATH={_PATH}", "USER 1000:1000", f"WORKDIR {WORKSPACE}", 'CMD ["true"]',
        f"LABEL pointsman.recipe={recipe} pointsman.base={origin}",
    ]  # fmt: skip
