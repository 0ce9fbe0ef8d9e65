"""Replays a job's session offline from its recorded model calls, and compares what comes out bit for bit."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml
from pydantic import BaseModel
from sqlmodel import Session

from ledger.attempts import effective_policy
from ledger.jobs import find_job
from ledger.operations.served_calls import recordings_of
from ledger.releases import rounds_of, verb_of
from ledger.tables import Job, Release, Site
from producers.bootstrap import Installation
from producers.errors import InstallationError
from producers.evaluation.cases import Case, Reply, Round, digest_of
from producers.evaluation.run import Plan, StepResult, installed_for
from routing.jobs import ANSWERS
from routing.policy.platform import load_policy
from sites.archives import SPEC_FILE
from sites.content_store import ContentStore
from sites.directories import write_directory
from sites.releases import manifest_of
from sites.spec.model import parse_site
from sites.spec.render import render

_OPTIONS = ("tier", "pin", "advanced_edit", "preference")
"""Fields of a request that say how it is done."""
_ROUTES = ("tools", "answer", "spec", "patch", "agent")
"""Queues of work that is replayed."""


class ReplayedStep(BaseModel, frozen=True):
    """One job of a replayed session."""

    job: UUID
    """As it was recorded."""
    differences: tuple[str, ...]
    """What came out otherwise; empty where everything is the same."""


class Replayed(BaseModel, frozen=True):
    """What came of a replay."""

    calls: int
    steps: tuple[ReplayedStep, ...]
    is_same: bool


class _Recorded(BaseModel):
    """A job as it came out."""

    job: UUID
    state: str
    said: str
    digest: str


def replay_recorded(
    installation: Installation, job_id: UUID, *, tenant: str, environment: Mapping[str, str]
) -> Replayed:
    """Run a job's session again on an installation of its own, with the replies that were recorded.

    Raises:
        JobNotFoundError: the caller's fault.
        InstallationError: nothing was recorded, not all that happened can be done again, or the machine's fault.
    """
    with tempfile.TemporaryDirectory(prefix="pointsman-replay-") as folder:
        calls, cases = Path(folder) / "calls.jsonl", Path(folder) / "cases"
        with installation.ledger.begin() as session:
            jobs = rounds_of(session, find_job(session, job_id, tenant=tenant).root_id)
            found = recordings_of(session, jobs[0].root_id)
            if not found:
                raise InstallationError("recorded: no model call of it was recorded: `pointsman tenant record`")
            lines = [f'{{"request": {call.request}, "reply": {call.reply}}}\n' for call in found]
            calls.write_text("".join(lines), encoding="utf-8")
            recorded = [_came_out(session, job, installation.content_store) for job in jobs]
            case = _case_of(session, jobs, installation.content_store, cases)
            policy = effective_policy(session, tenant, load_policy(installation.settings.policy.path))
            rules = Path(folder) / "policy.yaml"
            rules.write_text(yaml.safe_dump(policy.model_dump(mode="json")), encoding="utf-8")
        plan = Plan(recorded=calls, jobs=1, policy=rules, sites=cases)
        with installed_for(plan, home=Path(folder) / "home", environment=environment) as runner:
            (result,) = runner.run([case], lambda result: None)
        if result.skipped:
            raise InstallationError(f"recorded: {result.skipped}")
    ended = list({step.job: step for step in result.steps}.values())
    steps = tuple(
        ReplayedStep(job=was.job, differences=_differences(was, now))
        for was, now in zip(recorded, [*ended, *[None] * len(recorded)], strict=False)
    )
    return Replayed(calls=len(found), steps=steps, is_same=not any(step.differences for step in steps))


def _differences(was: _Recorded, now: StepResult | None) -> tuple[str, ...]:
    if now is None:
        return ("it was not reached",)
    if now.state != was.state:
        return (f"came to {now.state}, not {was.state}: {now.detail or ''}",)
    same_files, same_words = now.digest == was.digest, now.said == was.said
    return (*(() if same_files else ("its files differ",)), *(() if same_words else ("it says something else",)))


def _came_out(session: Session, job: Job, content_store: ContentStore) -> _Recorded:
    """Return how a job came out before anybody decided about it."""
    release = session.get(Release, job.release_id) if job.release_id is not None else None
    files = content_store.read_tree(manifest_of(release)) if release is not None else {}
    said = str(job.result.get("answer") or job.result.get("summary") or "")
    state = "awaiting_approval" if release is not None else job.state
    return _Recorded(job=job.id, state=state, said=said, digest=digest_of(files))


def _case_of(session: Session, jobs: Sequence[Job], content_store: ContentStore, sites: Path) -> Case:
    """Return a session as a case, and write the site that it started from below `sites`.

    Raises:
        InstallationError: it holds something that no case does.
    """
    first = jobs[0]
    base = session.get(Release, first.base_release_id) if first.base_release_id is not None else None
    name = str(first.request.get("new_site") or first.request.get("site") or "none")
    if base is not None:
        write_directory(_imported(base, content_store), sites / name)
    opening, *rounds = _steps_of(jobs)
    return Case.model_construct(
        **dict(opening),
        id=name,
        kind="edit",
        lang="en",
        site=name if base is not None else None,
        new_site=first.request.get("new_site") is not None,
        profile=site.profile if (site := session.get(Site, first.site_id)) else "default",
        rounds=tuple(rounds),
    )


def _steps_of(jobs: Sequence[Job]) -> Iterator[Round | Reply]:
    told = 0
    for job in jobs:
        if verb_of(job) not in (None, "revise") or job.queue not in _ROUTES:
            raise InstallationError(f"recorded: job {job.id} is a run's, or was continued otherwise than by revise")
        answers = [str(each["answer"]) for each in job.result.get(ANSWERS, ())][told:]
        told += len(answers)
        options = {name: job.request[name] for name in _OPTIONS if job.request.get(name)}
        routes: list[Any] = ["clarify"] * len(answers) + [job.queue]
        yield Round(request=job.prompt, route=routes[0], options=options)
        yield from (Reply(answer=text, route=route) for text, route in zip(answers, routes[1:], strict=True))


def _imported(base: Release, content_store: ContentStore) -> Mapping[str, bytes]:
    """Return the files from which an import makes this release."""
    files = content_store.read_tree(manifest_of(base))
    if base.spec_sha256 is None:
        return files
    spec = content_store.get(base.spec_sha256)
    rendered = render(parse_site(spec))
    if any(files.get(path) != data for path, data in rendered.items()):
        raise InstallationError("recorded: its site had pages that differ from its spec")
    return {path: data for path, data in files.items() if path not in rendered} | {SPEC_FILE: spec}
