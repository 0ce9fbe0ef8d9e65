"""The pages of operators: fleet, queues, dead letters, limits and the audit trail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from fastapi import APIRouter, Form, Path, Query
from markupsafe import Markup
from pydantic import BaseModel, Field
from sqlalchemy import func, select
from sqlmodel import Session, col
from starlette.responses import Response

from ledger import audit
from ledger.attempts import effective_policy
from ledger.errors import ClusterNotFoundError
from ledger.record_tables import AuditRow, AuditSeal
from producers.api.requests import requester_of
from producers.console.charts import Bar, bars, spark
from producers.console.presentation import cents, duration, plural
from producers.console.web import ConsoleDep, Operator, Submitter, Viewer, ViewerDep, refusals_on
from producers.use_cases.dead_letters import DeadLetterOrder, ReplayOrder
from producers.use_cases.fleet import budgets_today, fleet_view, recently_ended, spent_by_day
from producers.use_cases.fleet_history import MOST_ATTEMPTS, SPANS, QueueHistory, SpanName, fleet_history
from producers.use_cases.job_search import id_span
from producers.use_cases.jobs import prompts_of
from producers.use_cases.tenants import Scope, pause_queue
from routing.jobs import parse_as
from routing.queues import QUEUES, QueueName

router = APIRouter()


@router.get("/")
def show_fleet(viewer: ViewerDep, span: Annotated[SpanName, Query()] = "day") -> Response:
    """Show the fleet; the page refreshes every two seconds."""
    tenant, is_operator = viewer.caller.tenant, viewer.caller.may(Scope.OPERATE)
    with viewer.resources.ledger.begin() as session:
        policy = effective_policy(session, tenant, viewer.resources.policy)
        facts: dict[str, Any] = {
            "fleet": fleet_view(session, tenant, policy=policy, is_operator=is_operator),
            "budgets": budgets_today(session, tenant, policy=policy, is_operator=is_operator),
        }
    return viewer.render("fleet.html", is_operator=is_operator, span=span, **facts)


@router.get("/charts")
def show_charts(viewer: ViewerDep, span: Annotated[SpanName, Query()] = "day") -> Response:
    """Show what happened over time: on the fleet page, which it keeps quick, or alone."""
    with viewer.resources.ledger.begin() as session:
        charts = charts_of(session, viewer, span)
    return viewer.render("charts.html", **charts)


def charts_of(session: Session, viewer: Viewer, span: SpanName) -> dict[str, Any]:
    """Return the charts of recently ended jobs, of a span of the past, and of recent spending."""
    whose = None if viewer.caller.may(Scope.OPERATE) else viewer.caller.tenant
    history = fleet_history(session, whose, span=span)
    return {
        "ended_chart": _ended(session, whose),
        "spend_chart": spend_chart(session, whose),
        "history": history,
        "sparks": {one.queue: _sparks(one) for one in history.queues},
        "spans": SPANS,
        "most_attempts": MOST_ATTEMPTS,
    }


def _sparks(queue: QueueHistory) -> tuple[Markup, Markup]:
    """Return a queue's throughput and its latency over time."""
    times = [f"{one.began:%d %b %H:%M}" for one in queue.bins]
    counts = [plural(one.attempts, "attempt") for one in queue.bins]
    took = [f"median {duration(one.median_seconds)}" for one in queue.bins]
    return (
        spark(
            [one.attempts for one in queue.bins],
            [f"{time}: {said}" for time, said in zip(times, counts, strict=True)],
            title=f"Attempts on {queue.queue} over time, {queue.attempts} in all",
            kind="money",
        ),
        spark(
            [one.median_seconds for one in queue.bins],
            [f"{time}: {said}" for time, said in zip(times, took, strict=True)],
            title=f"Median duration on {queue.queue} over time, {duration(queue.median_seconds)} in all",
            kind="model",
        ),
    )


def _ended(session: Session, tenant: str | None) -> Markup:
    found = recently_ended(session, tenant)
    total = sum(one.good + one.bad + one.other for one in found)
    pieces = []
    for one in found:
        counts = ((one.good, "done"), (one.bad, "failed"), (one.other, "rejected, expired or cancelled"))
        words = ", ".join(f"{count} {name}" for count, name in counts if count) or "nothing ended"
        parts = (("good", one.good), ("bad", one.bad), ("still", one.other))
        pieces.append(Bar(one.began.strftime("%H:%M"), parts, words))
    top = max((one.good + one.bad + one.other for one in found), default=0)
    return bars(pieces, title=f"{plural(total, 'job')} ended in the last three hours", top_label=plural(top, "job"))


def spend_chart(session: Session, tenant: str | None) -> Markup:
    """Return the chart of spending per day."""
    days = spent_by_day(session, tenant)
    pieces = [Bar(f"{one.day:%d %b}", (("money", one.spent_nanousd),), cents(one.spent_nanousd)) for one in days]
    total, top = sum(one.spent_nanousd for one in days), max(one.spent_nanousd for one in days)
    return bars(pieces, title=f"{cents(total)} spent in {len(days)} days", top_label=cents(top))


@router.post("/queues/{queue}")
def switch_queue(viewer: Operator, queue: QueueName, paused: Annotated[bool, Form()]) -> Response:
    """Pause or resume a queue."""
    word = "paused" if paused else "resumed"
    with viewer.resources.ledger.begin() as session:
        pause_queue(session, queue, is_paused=paused, actor=viewer.caller.actor)
    return viewer.redirect("/", notice=f"{queue.value} is {word}.")


dead_letters_router = APIRouter(prefix="/dead")

_FROM_DEAD: dict[str, Any] = {"back": ("/dead", "all dead letters"), "what": "Dead letter"}
ClusterName = Annotated[str, Path(pattern="^[0-9a-f]{10}$")]
Ids = Annotated[list[UUID] | None, Form()]
Signature = Annotated[str, Form(max_length=400)]
Cursor = Annotated[str | None, Query(max_length=2000)]
_PAGE = 100


@dead_letters_router.get("")
def show_clusters(viewer: ViewerDep, cursor: Cursor = None) -> Response:
    """Show dead letters by failure signature, the largest cluster first."""
    with refusals_on("/dead"):
        page = viewer.resources.dead_letters.clusters(viewer.caller.tenant, cursor=cursor)
    with viewer.resources.ledger.begin() as session:
        prompts = prompts_of(session, {one.example for one in page.clusters}, tenant=viewer.caller.tenant)
    most = max((cluster.jobs for cluster in page.clusters), default=0)
    return viewer.render("dead.html", page=page, most=most, prompts=prompts)


@dead_letters_router.get("/{cluster}")
def show_cluster(viewer: ViewerDep, cluster: ClusterName, cursor: Cursor = None) -> Response:
    """Show the dead letters of one cluster, the oldest first."""
    with refusals_on("/dead"):
        try:
            page = viewer.resources.dead_letters.jobs(viewer.caller.tenant, cluster, cursor=cursor, limit=_PAGE)
        except ClusterNotFoundError:
            return viewer.redirect("/dead", notice="That cluster is empty now.")
    return viewer.render("cluster.html", name=cluster, page=page)


@dead_letters_router.post("/replay")
def replay(
    viewer: Submitter,
    ids: Ids = None,
    signature: Signature = "",
    budget: Annotated[str, Form()] = "",
) -> Response:
    """Replay the selected dead letters, or up to 200 of a cluster."""
    with refusals_on("/dead"):
        order = parse_as(ReplayOrder, _order(ids, signature) | ({"budget_usd": budget} if budget else {}))
        verdicts = viewer.resources.dead_letters.replay(order, requester=requester_of(viewer.caller))
    return viewer.render("verdicts.html", verdicts=verdicts, title="Replayed", done="replayed", **_FROM_DEAD)


@dead_letters_router.post("/dismiss")
def dismiss(viewer: Submitter, ids: Ids = None, signature: Signature = "") -> Response:
    """Dismiss the selected dead letters, or up to 200 of a cluster."""
    with refusals_on("/dead"):
        order = parse_as(DeadLetterOrder, _order(ids, signature))
        verdicts = viewer.resources.dead_letters.dismiss(order, requester=requester_of(viewer.caller))
    return viewer.render("verdicts.html", verdicts=verdicts, title="Dismissed", done="dismissed", **_FROM_DEAD)


def _order(ids: list[UUID] | None, signature: str) -> dict[str, Any]:
    """Return an order for the ticked jobs or, if none is ticked, for the cluster."""
    return {"ids": ids} if ids else {"signature": signature} if signature else {}


_ROWS = 60
_LOOKED_AT = 200_000
"""How many rows a search covers; there is no index on actors and actions."""
_MOST_VERIFIED = 300_000
"""A longer chain takes too long for a page; there is a command."""
_NOBODY = UUID(int=0)
"""No job has this id."""


@router.get("/limits")
def show_limits(viewer: ViewerDep) -> Response:
    """Show the tenant's limits on each queue, and how much of its budgets is used."""
    tenant, is_operator = viewer.caller.tenant, viewer.caller.may(Scope.OPERATE)
    with viewer.resources.ledger.begin() as session:
        policy = effective_policy(session, tenant, viewer.resources.policy)
        budgets = budgets_today(session, tenant, policy=policy, is_operator=is_operator)
        chart = spend_chart(session, tenant)
    limits = [(queue.value, policy.queues[queue], viewer.resources.policy.queues[queue]) for queue in QUEUES]
    return viewer.render("limits.html", limits=limits, policy=policy, budgets=budgets, chart=chart)


class AuditFilter(BaseModel, frozen=True, str_strip_whitespace=True):
    """Which rows of the audit trail to show, as the page's URL says it."""

    action: str = Field(default="", max_length=64)
    actor: str = Field(default="", max_length=200)
    job: str = Field(default="", max_length=36)
    before: int | None = Field(default=None, ge=0, lt=2**63)


@router.get("/audit")
def show_audit(viewer: ViewerDep, wanted: Annotated[AuditFilter, Query()]) -> Response:
    """Search the audit trail, newest first: operators all of it, others only their tenant's rows."""
    with viewer.resources.ledger.begin() as session:
        page = _search(session, viewer, wanted)
    return viewer.render("audit.html", wanted=wanted, page=page, verdict=None, refusal="")


class AuditPage(NamedTuple):
    """Some rows of the trail, newest first."""

    rows: Sequence[AuditRow]
    following: int | None
    """Older rows are below this one; None if there are none."""
    is_cut: bool
    """Whether the search stopped at its bound before the page was full."""
    sealed_to: int
    """The last row that is sealed; a seal covers all before it."""
    prompts: Mapping[UUID, str]
    """What the viewer's own jobs among them were asked."""


def _search(session: Session, viewer: Viewer, wanted: AuditFilter) -> AuditPage:
    end = wanted.before if wanted.before is not None else (session.scalar(select(func.max(AuditRow.seq))) or 0) + 1
    found = select(AuditRow).where(col(AuditRow.seq) < end).order_by(col(AuditRow.seq).desc()).limit(_ROWS + 1)
    if not viewer.caller.may(Scope.OPERATE):
        found = found.where(col(AuditRow.tenant) == viewer.caller.tenant)
    if wanted.action:
        found = found.where(col(AuditRow.action) == wanted.action.lower().replace(" ", "_"))
    if wanted.actor:
        found = found.where(col(AuditRow.actor) == wanted.actor)
    floor = 0
    if wanted.job:
        found = found.where(col(AuditRow.job_id).between(*(id_span(wanted.job) or (_NOBODY, _NOBODY))))
    else:
        floor = end - _LOOKED_AT
        found = found.where(col(AuditRow.seq) >= floor)
    rows = session.scalars(found).all()
    following, is_cut = (rows[_ROWS - 1].seq, False) if len(rows) > _ROWS else (None, False)
    if following is None:
        older = select(col(AuditRow.seq)).where(col(AuditRow.seq) < floor).limit(1)
        is_cut = session.scalars(older).first() is not None
        following = floor if is_cut else None
    sealed_to = session.scalar(select(func.max(AuditSeal.last_seq))) or 0
    prompts = prompts_of(session, {row.job_id for row in rows if row.job_id}, tenant=viewer.caller.tenant)
    return AuditPage(rows[:_ROWS], following, is_cut, sealed_to, prompts)


@router.post("/audit/verify")
def verify(console: ConsoleDep, viewer: Operator) -> Response:
    """Verify the whole chain."""
    verdict, refusal = None, ""
    with viewer.resources.ledger.begin() as session:
        some = select(col(AuditRow.seq)).limit(_MOST_VERIFIED + 1).subquery()
        size = session.scalar(select(func.count()).select_from(some)) or 0
        if not console.audit_key:
            refusal = "This process has no audit key; run `pointsman audit verify` where it is set."
        elif size > _MOST_VERIFIED:
            refusal = (
                f"The trail has more than {_MOST_VERIFIED:,} rows: too many for a page; run `pointsman audit verify`."
            )
        else:
            verdict = audit.verify(session, signing_key=console.audit_key)
        page = _search(session, viewer, AuditFilter())
    return viewer.render("audit.html", wanted=AuditFilter(), page=page, verdict=verdict, refusal=refusal)
