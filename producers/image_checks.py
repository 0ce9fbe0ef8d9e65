"""What `pointsman doctor` says of images that steps need beside the one of all boxes: projects' own, and services'."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy.exc import ArgumentError, DBAPIError

from ledger.runs.run import all_projects
from ledger.runs.tables import Project
from producers.bootstrap import Installation
from producers.diagnosis import Finding, ok, warn
from routing.config import read_settings
from routing.errors import PolicyError
from routing.policy.services import OfferedService
from sandbox.config import BoxSettings
from sandbox.docker.engine import Engine
from sandbox.errors import SandboxError, SandboxUnavailableError
from sandbox.image.rootfs import parts_digest
from sandbox.pool import open_engine

_SHOWN = 5


def check_images(installation: Installation, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check the images of projects and services; an engine or ledger that is away is another check's finding."""
    try:
        with installation.ledger.begin() as session:
            projects = all_projects(session)
        config = read_settings(BoxSettings, environment).box
    except (ArgumentError, DBAPIError, PolicyError):
        return
    engine = open_engine(config)
    try:
        for project in projects:
            if project.image is not None:
                yield _project_image(engine, project)
        users = _users(projects)
        for name, offer in installation.policy.runs.services.items():
            yield _service_image(engine, name, offer, users=users.get(name, ()))
    except SandboxError:
        return
    finally:
        engine.close()


def _users(projects: Sequence[Project]) -> dict[str, list[str]]:
    """Return who takes which offer."""
    users: dict[str, list[str]] = defaultdict(list)
    for project in projects:
        for service in project.config.get("services", {}).values():
            users[service["image"]].append(f"{project.tenant}/{project.name}")
    return users


def _project_image(engine: Engine, project: Project) -> Finding:
    assert project.image is not None
    name = f"image of {project.tenant}/{project.name}"
    try:
        engine.check_project_image(project.image["id"], parts=parts_digest())
    except SandboxUnavailableError as error:
        return warn(name, error.reason, error.hint)
    return ok(name, project.image["reference"])


def _service_image(engine: Engine, name: str, offer: OfferedService, *, users: Sequence[str]) -> Finding:
    title = f"service {name}"
    volumes = engine.volumes_of(offer.image)
    if volumes is None:
        if not users:
            return ok(title, f"{offer.image} is not on the engine; no project takes it")
        needed = f"{', '.join(sorted(set(users))[:_SHOWN])} {'need' if len(set(users)) > 1 else 'needs'} it"
        return warn(title, f"{offer.image} is not on the engine; {needed}", f"`docker pull {offer.image}`")
    if more := sorted(volumes - set(offer.data)):
        hint = f"add them to `runs.services.{name}.data` of the policy"
        return warn(title, f"{offer.image} writes to {', '.join(more)}, so no box with it is made", hint)
    return ok(title, offer.image)
