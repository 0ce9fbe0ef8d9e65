"""The pages of sites with their releases, and of runs with their steps and gates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Query, Request
from markupsafe import Markup
from sqlalchemy import func, select
from sqlmodel import Session, col
from starlette.datastructures import FormData, UploadFile
from starlette.responses import Response

from ledger.errors import ReleaseNotFoundError
from ledger.releases import find_site, published_release
from ledger.runs.run import Verdict, decide_gate, open_gates
from ledger.runs.tables import Run, RunStep
from ledger.tables import Job, Release, Site
from producers.api.requests import Resources
from producers.api.site_routes import bundle_response, stated_bytes
from producers.console.charts import Node, graph
from producers.console.job_page import frame_of
from producers.console.presentation import tone, words
from producers.console.run_timeline import news_of, timeline_of
from producers.console.web import (
    Approver,
    ConsoleDep,
    Viewer,
    ViewerDep,
    refusals_on,
    refuse_foreign,
)
from producers.errors import BodyTooLargeError, ForgedFormError, InvalidInputError, UploadTooSlowError
from producers.intake.submit import Submitted
from producers.use_cases.imports import Order
from producers.use_cases.jobs import JobSummary, prompts_of, summarise
from producers.use_cases.runs import GateView, RunView, StepTreeView, describe_run
from producers.use_cases.sites import release_view, site_view
from producers.use_cases.tenants import Scope
from routing.jobs import SiteName, check_site_name
from routing.rounds import Verb, can_go_on
from sites.errors import WorkspaceMissingError
from sites.object_blobs import LARGEST_BLOB_BYTES

router = APIRouter(prefix="/sites")
_FORM_BYTES = 4096
"""Of an import's form, besides the archive."""
_CHUNK_BYTES = 262_144
_FRAMED = 24
"""Sites without a picture whose page stands in a frame; further ones are only listed."""
_DAY_SECONDS = 86_400
"""How long a browser keeps a picture."""


@router.get("")
def show_sites(viewer: ViewerDep) -> Response:
    """List the tenant's sites as they look now: by the picture of their live release, or by its page in a frame."""
    sites = viewer.resources.sites.all(viewer.caller.tenant)
    views = [site_view(site, pages_url=viewer.resources.pages_url) for site in sites]
    live = _live(viewer.resources, sites)
    unpictured = [site for site in sites if not _is_pictured(live.get(site.name))][:_FRAMED]
    shown: dict[str, Any] = {
        "pictured": {name for name, release in live.items() if _is_pictured(release)},
        "frames": _frames(viewer.resources, {site.name: live[site.name] for site in unpictured if site.name in live}),
        "most": viewer.resources.policy.uploads.archive_bytes,
    }
    return viewer.render("sites.html", sites=views, **shown)


@router.post("/import", max_body_size=LARGEST_BLOB_BYTES)
async def import_site(
    console: ConsoleDep,
    viewer: ViewerDep,
    _: Annotated[None, Depends(refuse_foreign)],
) -> Response:
    """Import a site from an archive; who sends it is known before any of it is read."""
    viewer.caller.require(Scope.SUBMIT)
    most = viewer.resources.policy.uploads.archive_bytes
    with refusals_on("/sites"):
        stated = stated_bytes(viewer.request)
        if stated is None or stated > most + _FORM_BYTES:
            raise InvalidInputError("archive", f"must not be longer than {most >> 20} MiB")
        async with AsyncExitStack() as stack:  # the form is spooled to disk: not before there is a place for it
            stack.enter_context(viewer.resources.imports.one_more(viewer.caller.tenant))
            form = await stack.enter_async_context(
                _form(viewer.request, seconds=viewer.resources.policy.uploads.seconds)
            )
            if not console.sessions.is_own_form(viewer.session, str(form.get("form_token", ""))):
                raise ForgedFormError
            submitted = await _import(viewer, form.get("archive"), str(form.get("name", "")).strip())
    return viewer.redirect(f"/jobs/{submitted.job.id}")


@asynccontextmanager
async def _form(request: Request, *, seconds: float) -> AsyncIterator[FormData]:
    form = request.form(max_files=1, max_fields=2, max_part_size=_FORM_BYTES)
    try:
        async with asyncio.timeout(seconds):
            read = await form
    except TimeoutError:
        raise UploadTooSlowError(seconds) from None
    try:
        yield read
    finally:
        await read.close()


async def _import(viewer: Viewer, archive: object, name: str) -> Submitted:
    if not isinstance(archive, UploadFile) or not archive.filename:
        raise InvalidInputError("archive", "must be a file")
    try:
        site = check_site_name(name)
    except ValueError as error:
        raise InvalidInputError("site", str(error)) from None
    try:
        return await viewer.resources.imports.take(Order(viewer.caller, site, None, archive.size), _chunks(archive))
    except BodyTooLargeError as error:
        raise InvalidInputError("archive", f"must not be longer than {error.max_bytes >> 20} MiB") from None


async def _chunks(archive: UploadFile) -> AsyncIterator[bytes]:
    while chunk := await archive.read(_CHUNK_BYTES):
        yield chunk


@router.get("/{name}")
def show_site(viewer: ViewerDep, name: SiteName) -> Response:
    """Show a site's releases, newest first."""
    site, releases = viewer.resources.sites.releases(viewer.caller.tenant, name)
    views = [release_view(release, is_active=release.id == site.active_release_id) for release in releases]
    shown = site_view(site, pages_url=viewer.resources.pages_url)
    frame = _frames(viewer.resources, _live(viewer.resources, [site])).get(site.name)
    pictured = {release.id for release in releases if _is_pictured(release)}
    made_by = {release.job_id for release in releases if release.job_id}
    with viewer.resources.ledger.begin() as session:
        prompts = prompts_of(session, made_by, tenant=viewer.caller.tenant)
    facts: dict[str, Any] = {"site": shown, "releases": views, "frame": frame, "pictured": pictured}
    return viewer.render("site.html", prompts=prompts, **facts)


@router.get("/{name}/thumbnails/{release_id}")
def show_thumbnail(viewer: ViewerDep, name: SiteName, release_id: UUID) -> Response:
    """Show the picture of a published release, which never changes."""
    with viewer.resources.ledger.begin() as session:
        site = find_site(session, viewer.caller.tenant, name)
        sha256 = published_release(session, site, release_id).thumbnail_sha256
    if sha256 is None:
        raise ReleaseNotFoundError
    headers = {
        "Cache-Control": f"private, max-age={_DAY_SECONDS}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cross-Origin-Resource-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(viewer.resources.content_store.get(sha256), media_type="image/png", headers=headers)


@router.get("/{name}/diff/{release_id}")
def show_diff(
    viewer: ViewerDep,
    name: SiteName,
    release_id: UUID,
    since: Annotated[UUID | None, Query()] = None,
) -> Response:
    """Show what a release changed; with `since`, what lies between that release and this one."""
    with refusals_on(f"/sites/{name}"):
        changes = viewer.resources.sites.diff(viewer.caller.tenant, name, since, release_id)
    shown: dict[str, Any] = {"name": name, "release_id": release_id, "since": since, "changes": changes}
    return viewer.render("diff.html", **shown)


@router.post("/{name}/rollback")
def roll_back(viewer: Approver, name: SiteName, release_id: Annotated[UUID, Form()]) -> Response:
    """Make an earlier release the active one again."""
    with refusals_on(f"/sites/{name}"):
        viewer.resources.sites.rollback(viewer.caller.tenant, name, to=release_id, actor=viewer.caller.actor)
    return viewer.redirect(f"/sites/{name}", notice="That release is live again.")


def _live(resources: Resources, sites: Sequence[Site]) -> Mapping[str, Release]:
    """Return the active releases by site name."""
    active = {site.active_release_id: site.name for site in sites if site.active_release_id is not None}
    with resources.ledger.begin() as session:
        releases = session.scalars(select(Release).where(col(Release.id).in_(active))).all()
    return {active[release.id]: release for release in releases}


def _is_pictured(release: Release | None) -> bool:
    return release is not None and release.thumbnail_sha256 is not None and release.swept_at is None


def _frames(resources: Resources, releases: Mapping[str, Release]) -> Mapping[str, str]:
    """Return preview links for frames, by site name."""
    links = {name: frame_of(resources, release) for name, release in releases.items()}
    return {name: link for name, link in links.items() if link is not None}


runs_router = APIRouter()
_SHOWN = 50
_PLANNING = ("classify", "plan")
"""Phases whose steps create the others."""


class RunLine(NamedTuple):
    """A run in the list."""

    job: JobSummary
    now: str
    """What it does or waits for; empty once it has ended."""
    steps: int
    done: int
    failed: int


@runs_router.get("/runs")
def show_runs(viewer: ViewerDep) -> Response:
    """List the newest runs, with how far they are, and the open gates."""
    tenant = viewer.caller.tenant
    with viewer.resources.ledger.begin() as session:
        runs = _newest_runs(session, tenant)
        gates = [*map(GateView.of, open_gates(session, tenant))]
    return viewer.render("runs.html", runs=runs, gates=gates, most=_SHOWN)


def _newest_runs(session: Session, tenant: str) -> list[RunLine]:
    newest = select(Job, col(Run.explanation)).join(Run, col(Run.job_id) == col(Job.id))
    newest = newest.where(col(Job.tenant) == tenant).order_by(col(Job.created_at).desc()).limit(_SHOWN)
    rows = session.execute(newest).all()
    state, ids = col(RunStep.state), [job.id for job, _ in rows]
    done = func.count().filter(state.in_(("completed", "skipped")))
    counts = select(col(RunStep.run_id), func.count(), done, func.count().filter(state == "failed"))
    counted = {
        run_id: numbers
        for run_id, *numbers in session.execute(
            counts.where(col(RunStep.run_id).in_(ids)).group_by(col(RunStep.run_id))
        )
    }
    views = summarise(session, [job for job, _ in rows])
    return [
        RunLine(view, "" if job.ended_at else now, *counted.get(job.id, (0, 0, 0)))
        for view, (job, now) in zip(views, rows, strict=True)
    ]


@runs_router.get("/runs/{run_id}")
def show_run(viewer: ViewerDep, run_id: UUID) -> Response:
    """Show a run; the page refreshes until it ends."""
    with viewer.resources.ledger.begin() as session:
        run = describe_run(session, run_id, tenant=viewer.caller.tenant)
        until = run.ended_at or datetime.now(UTC)
        live: dict[str, Any] = {
            "until": until,
            "timeline": timeline_of(run, until=until),
            "news": news_of(session, run_id),
        }
    can_revise = run.continued_as is None and can_go_on(Verb.REVISE, run.state, run.reason, is_run=True)
    pictures = _pictures(run)
    return viewer.render("run.html", run=run, pictures=pictures, can_revise=can_revise, **live)


@runs_router.get("/runs/{run_id}/changes")
def show_run_changes(viewer: ViewerDep, run_id: UUID, since_last: bool = False) -> Response:
    """Show what a run has changed, or only what is new since the last decided gate."""
    try:
        files = viewer.resources.run_work.diff(run_id, tenant=viewer.caller.tenant, since_last=since_last)
    except WorkspaceMissingError:
        files = None
    return viewer.render("run_changes.html", run_id=run_id, since_last=since_last, files=files)


@runs_router.get("/runs/{run_id}/bundle")
def get_run_bundle(viewer: ViewerDep, run_id: UUID) -> Response:
    """Return the work of a run as a git bundle, to be saved."""
    with refusals_on(f"/runs/{run_id}"):
        return bundle_response(viewer.resources, run_id, viewer.caller)


def _pictures(run: RunView) -> tuple[Markup, Markup]:
    """Return a run's graph for wide windows and for phones."""
    done = sum(step.state == "completed" for step in run.steps)
    shown = [gate for gate in run.gates if gate.state != "skipped"]
    nodes = [_behind(_node(step), shown) for step in _in_order(run.steps)]
    last = _ends(nodes)
    nodes += [_gate_node(gate, last) for gate in shown]
    title = f"{done} of {len(run.steps)} steps are done"
    return graph(nodes, title=title), graph(nodes, title=title, is_tall=True)


def _in_order(steps: Sequence[StepTreeView]) -> list[StepTreeView]:
    """Return the steps with edges from the planning steps of a round to the steps they planned."""
    ordered = []
    for step in steps:
        plans = tuple(one.key for one in steps if one.phase in _PLANNING and one.round == step.round)
        is_first = not step.depends_on and step.phase not in _PLANNING
        ordered.append(step.model_copy(update={"depends_on": plans}) if is_first else step)
    return ordered


def _node(step: StepTreeView) -> Node:
    note = words(step.state) if step.tries <= 1 else f"{words(step.state)}, try {step.tries}"
    return Node(step.key, step.key, note, tone(step.state), step.depends_on)


def _gate_node(gate: GateView, last: tuple[str, ...]) -> Node:
    """Return a gate after its steps; one without any comes last, before the run is published."""
    name = gate.reason or "Before publishing"
    return Node(f"gate:{gate.key}", name, f"gate {words(gate.state)}", tone(gate.state), gate.after or last, True)


def _behind(node: Node, gates: Sequence[GateView]) -> Node:
    """Return a step with the gates of its dependencies in between."""
    held = [gate for gate in gates if gate.after and set(gate.after) <= set(node.depends_on)]
    freed = {key for gate in held for key in gate.after}
    kept = [key for key in node.depends_on if key not in freed]
    return node._replace(depends_on=(*kept, *(f"gate:{gate.key}" for gate in held)))


def _ends(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Return the steps that no other depends on."""
    inner = {key for node in nodes for key in node.depends_on}
    return tuple(node.key for node in nodes if node.key not in inner)


_DECIDED: Mapping[Verdict, str] = {
    "passed": "The gate has passed.",
    "rework": "The work is sent back; its agents are told why.",
    "failed": "The gate has failed.",
}


@runs_router.post("/gates/{gate_id}")
def decide(
    viewer: Approver,
    gate_id: UUID,
    run_id: Annotated[UUID, Form()],
    verdict: Annotated[Verdict, Form()],
    head: Annotated[str, Form(max_length=64)] = "",
    reason: Annotated[str, Form(max_length=2000)] = "",
) -> Response:
    """Pass a gate at exactly the work that the page showed, send it back, or fail it."""
    who, policy, note = viewer.caller, viewer.resources.policy, reason.strip()
    with refusals_on(f"/runs/{run_id}"), viewer.resources.ledger.begin() as session:
        decide_gate(
            session, gate_id, verdict, actor=who.actor, policy=policy, note=note, tenant=who.tenant, seen=head or None
        )
    return viewer.redirect(f"/runs/{run_id}", notice=_DECIDED[verdict])
