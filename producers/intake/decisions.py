"""Decide about a request before anything is written: its target, its route, its first queue and the headroom there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import not_, select
from sqlmodel import Session, col

from ledger.attempts import effective_policy, policy_under
from ledger.errors import ProjectNotFoundError
from ledger.operations.uploads import upload_use
from ledger.releases import came_to_nothing
from ledger.runs.run import find_project
from ledger.runs.tables import Project
from ledger.submission import Headroom, Limits, SiteSnapshot, SubmissionContext, load_headroom
from ledger.tables import Site, Tenant
from producers.errors import AdmissionRefusedError
from routing.addresses import refusal_of
from routing.clarify.questions import Clarification, open_clarification, rank_sites
from routing.clarify.replies import is_bare_choice
from routing.decision.llm_router import Stage, first_stage
from routing.decision.router import Mode, Route, Signals, SiteSignals, decide, signals_of
from routing.errors import FieldError, InvalidJobError, MissingKeyError, PolicyError
from routing.jobs import JobRequest, State, read_stored
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD, BudgetExceeded, nanousd_of, nanousd_per_token, price_of
from routing.policy.project import ProjectConfig, accounts_for, for_project
from routing.prompt.vocabulary import Vocabulary
from routing.queues import QueueName
from routing.scheduling import FURTHEST_START_DAYS

logger = logging.getLogger(__name__)

_CLARIFYING = Stage(State.CLARIFYING, QueueName.INTAKE)


def check_headroom(session: Session, queue: QueueName, tenant: str, *, policy: Policy) -> None:
    """Refuse a job for which its queue has no headroom now, as `refuse_if_full` does."""
    refuse_if_full(load_headroom(session, tenant, queue), tenant, policy=policy)


def refuse_if_full(room: Headroom, tenant: str, *, policy: Policy) -> None:
    """Refuse a job for which there is no headroom now, with a time to come back.

    Args:
        room: of the queue on which it would wait first.
        tenant: the job's owner.
        policy: the tenant's effective policy.

    Raises:
        AdmissionRefusedError: nobody's fault: too many jobs wait there, of all tenants or of this one, or today's
            budget does not pay for another model call.
    """
    full = room.fullness(policy.admission)
    if full is not None:
        whose = f"queue {room.queue.value} holds" if full.whose == "queue" else f"tenant {tenant} has"
        what = f"{whose} {full.limit} waiting jobs or more, which is the limit"
        raise AdmissionRefusedError(what, full.retry_after_seconds)
    cheapest = _cheapest_call_nanousd(policy, room.queue)
    if cheapest is None:
        return
    spent = room.spend
    for scope, nanousd, limit_usd in (
        ("tenant_day", spent.tenant_nanousd, policy.budgets.tenant_day_usd),
        ("fleet_day", spent.fleet_nanousd, policy.budgets.fleet_day_usd),
    ):
        limit = nanousd_of(limit_usd)
        if nanousd + cheapest > limit:
            raise AdmissionRefusedError(BudgetExceeded(scope, limit_nanousd=limit), spent.seconds_left)


def _cheapest_call_nanousd(policy: Policy, queue: QueueName) -> int | None:
    """Return the least that one model call of a queue costs; None where its work calls no model.

    A run waits on `control`, which calls none, but its steps call some.
    """
    if policy.queues[queue].llm_nanousd == 0 and queue is not QueueName.CONTROL:
        return None
    own = [call for call in policy.calls.values() if call.queue == queue] or list(policy.calls.values())
    fewest = policy.gateway.min_output_tokens
    return min(
        min(call.max_tokens, fewest) * nanousd_per_token(price_of(policy.prices, call.model).output) for call in own
    )


def check_uploads(session: Session, tenant: str, *, policy: Policy) -> None:
    """Refuse an upload of a tenant whose kept archives take as much of the store as they may.

    Raises:
        AdmissionRefusedError: nobody's fault; it says when the oldest goes.
    """
    use = upload_use(session, tenant, hours=policy.retention.draft_hours)
    most = policy.uploads.tenant_bytes
    if use.total_bytes + policy.uploads.archive_bytes > most:
        what = f"tenant {tenant} has {use.total_bytes} bytes of uploads, of {most} that are kept at a time"
        raise AdmissionRefusedError(what, max(use.seconds_left, policy.uploads.retry_seconds))


def limits_of(policy: Policy) -> Limits:
    """Return the limits within which the ledger finds a tenant's jobs a place."""
    cheapest = {queue: _cheapest_call_nanousd(policy, queue) for queue in policy.queues}
    return Limits(
        waiting_per_tenant=policy.admission.waiting_per_tenant,
        waiting_per_queue=policy.admission.waiting_per_queue,
        per_queue=policy.dispatch_window.per_queue,
        per_tenant=policy.dispatch_window.per_tenant,
        running_per_tenant=policy.admission.running_per_tenant,
        tenant_day=nanousd_of(policy.budgets.tenant_day_usd),
        fleet_day=nanousd_of(policy.budgets.fleet_day_usd),
        cheapest={queue: cost for queue, cost in cheapest.items() if cost is not None},
    )


def check_start(start_at: datetime | None, *, now: datetime) -> None:
    """Refuse a start that is too far ahead of the ledger's clock.

    Raises:
        InvalidJobError: the caller's fault.
    """
    if start_at is not None and start_at > now + timedelta(days=FURTHEST_START_DAYS):
        rule = f"must not be more than {FURTHEST_START_DAYS} days ahead"
        raise InvalidJobError((FieldError("start_at", rule),))


def check_means_something(message: str, *, field: str = "prompt") -> None:
    """Refuse a choice from a list that nobody has offered, before a model is paid to guess what it means.

    Raises:
        InvalidJobError: the caller's fault, in `field`.
    """
    if is_bare_choice(message):
        rule = "chooses from a list, but none was offered: reply to the job that asks, or say what to change"
        raise InvalidJobError((FieldError(field, rule),))


def check_callback(request: JobRequest, *, allow_private: bool) -> None:
    """Refuse a callback that could never be sent; where its name leads is judged at each delivery.

    Raises:
        InvalidJobError: the caller's fault.
    """
    url = request.callback_url
    if url is not None and (refusal := refusal_of(url, allow_private=allow_private)) is not None:
        raise InvalidJobError((FieldError("callback_url", refusal),))


class BatchItem(NamedTuple):
    """A well-formed request, and its position among those that arrived with it."""

    place: int
    job_id: UUID
    request: JobRequest


class RoutedRequest(NamedTuple):
    """A request and the decisions about it."""

    item: BatchItem
    route: Route
    stage: Stage
    """Where it waits first; `intake` while its owner has a question to answer."""
    question: Clarification | None
    site: SiteSnapshot | None
    """The existing site that it is about."""
    project: Project | None
    policy: Policy
    """The effective policy of tenant and project."""

    @property
    def request(self) -> JobRequest:
        """The request itself."""
        return self.item.request

    @property
    def new_site(self) -> str | None:
        """The name of the site that the request makes, if it makes one."""
        if self.request.upload is not None:
            return self.request.site if self.site is None else None
        return self.request.new_site if self.route.mode == Mode.ACTION and not self.route.trivial else None

    @property
    def cap_nanousd(self) -> int:
        """What the job may spend: a run on all its steps, any other job on all its tiers."""
        if self.request.project is None:
            return self.policy.job_cap_nanousd(self.request.budget_usd)
        run_usd = self.policy.budgets.run_usd
        return round(min(run_usd, self.request.budget_usd or run_usd) * NANOUSD_PER_USD)


Decide = Callable[[Signals], tuple[Route, Stage]]
"""Routes a request by its signals alone, and says where it waits first."""


def decider(policy: Policy, vocabulary: Vocabulary, *, switches: Mapping[str, str]) -> Decide:
    """Return what decides for one tenant; `switches` are those of routing, from the environment."""

    def decide_alone(signals: Signals) -> tuple[Route, Stage]:
        route = decide(signals, policy, vocabulary)
        return route, first_stage(route, policy, environment=switches)

    return decide_alone


def decide_on(
    session: Session, item: BatchItem, context: SubmissionContext, *, policy: Policy, decide: Decide
) -> RoutedRequest:
    """Decide about a request that was not made before, once site and project are found.

    Args:
        session: the caller's transaction.
        item: the request.
        context: what is known of its tenant.
        policy: the tenant's effective one.
        decide: from `decider`, with that policy.

    Raises:
        InvalidJobError: the caller's fault.
    """
    request = item.request
    check_start(request.start_at, now=context.read_at)
    site = _site(request, context)
    project = _project(session, context.tenant, request.project) if request.project is not None else None
    route, stage = decide(_signals(request, site, context))
    question = _question(session, request, route, tenant=context.tenant) if _lacks_target(request, route) else None
    if project is not None:
        policy = _policy_of_run(session, project, policy)
    routed = RoutedRequest(item, route, _CLARIFYING if question else stage, question, site, project, policy)
    return routed if request.new_site is None or routed.new_site else routed._replace(site=None)


def _signals(request: JobRequest, site: SiteSnapshot | None, context: SubmissionContext) -> Signals:
    signals = read_stored(SiteSignals, site.signals) if site is not None and request.site is not None else None
    debated = context.debated.get(request.session or "", frozenset())
    return signals_of(request, site=signals, debated=debated)


_MOST_SITES = 10_000
_MOST_RANKED = 1_000
"""Sites among which a question looks for those that its request may mean."""


@dataclass(frozen=True)
class SeenTenant:
    """What this process last saw of a tenant. The ledger checks it as it accepts a job that was decided on it."""

    overrides: Mapping[str, Any]
    policy: Policy
    """The tenant's effective one."""
    limits: Limits
    signals: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """By site."""

    @classmethod
    def learn(cls, before: SeenTenant | None, context: SubmissionContext, policy: Policy) -> SeenTenant:
        """Return what is known after a look at the ledger."""
        seen = before
        if seen is None or seen.overrides != context.overrides or len(seen.signals) > _MOST_SITES:
            seen = cls(context.overrides, policy, limits_of(policy))
        for name, site in context.sites.items():
            seen.signals[name] = site.signals
        return seen

    def context_of(self, request: JobRequest, tenant: str) -> SubmissionContext | None:
        """Return what an ordinary request can be decided on; None for any other, and where nothing is known.

        A site that was never seen is taken to be like any other of its tenant.
        """
        others = (
            request.new_site,
            request.project,
            request.supersede_key,
            request.session,
            request.start_at,
            request.upload,
        )
        if others.count(None) < len(others):
            return None
        sites = {}
        if request.site is not None:
            if not self.signals:
                return None
            if (signals := self.signals.get(request.site)) is None:
                signals = next(iter(self.signals.copy().values()))  # another thread may learn of a site meanwhile
            sites[request.site] = SiteSnapshot(_UNKNOWN, is_shown=True, is_locked=False, signals=signals)
        return SubmissionContext(self.overrides, datetime.now(UTC), sites, {}, tenant, {})


_UNKNOWN = UUID(int=0)


def decide_on_seen(
    item: BatchItem, context: SubmissionContext, *, policy: Policy, decide: Decide
) -> RoutedRequest | None:
    """Decide as `decide_on` about what `SeenTenant.context_of` returned; None if its owner has a question to answer."""
    site = _site(item.request, context)
    route, stage = decide(_signals(item.request, site, context))
    if _lacks_target(item.request, route):
        return None
    return RoutedRequest(item, route, stage, None, site, None, policy)


def policy_of(session: Session, tenant: str, policy: Policy) -> Policy:
    """Return a tenant's effective policy.

    Raises:
        InvalidJobError: the operator's fault, shown to the caller: the overrides no longer fit.
    """
    try:
        return effective_policy(session, tenant, policy)
    except PolicyError as error:
        raise _unfit(tenant, error) from None


def policy_on(context: SubmissionContext, policy: Policy) -> Policy:
    """Return a tenant's effective policy, from overrides that are already loaded. Raises as `policy_of` does."""
    try:
        return policy_under(context.overrides, context.tenant, policy)
    except PolicyError as error:
        raise _unfit(context.tenant, error) from None


def _unfit(tenant: str, error: PolicyError) -> InvalidJobError:
    logger.error("tenant_overrides_unfit", extra={"tenant": tenant, "rule": str(error)})
    rule = "has limits of its own that do not fit this installation's policy any more; ask its operator"
    return InvalidJobError((FieldError("tenant", rule),))


def _site(request: JobRequest, context: SubmissionContext) -> SiteSnapshot | None:
    site = context.sites.get(request.site or request.new_site or "")
    if request.site is not None and site is None and request.upload is None:
        raise InvalidJobError((FieldError("site", "no site of this name belongs to the tenant"),))
    if request.new_site is not None and site is not None and (site.is_shown or site.is_locked):
        raise InvalidJobError((FieldError("new_site", "a site of this name exists already; use site"),))
    return site


def _project(session: Session, tenant: str, name: str) -> Project:
    try:
        return find_project(session, tenant, name)
    except ProjectNotFoundError:
        raise InvalidJobError((FieldError("project", "no project of this name belongs to the tenant"),)) from None


def _policy_of_run(session: Session, project: Project, policy: Policy) -> Policy:
    try:
        return policy_of_project(session, project, policy)
    except PolicyError as error:
        logger.error("project_unfit", extra={"project": project.name, "rule": str(error)})
        rule = "does not fit this installation's policy any more; add its file again"
        raise InvalidJobError((FieldError("project", rule),)) from None
    except MissingKeyError as error:
        raise InvalidJobError((FieldError("project", str(error)),)) from None


def _lacks_target(request: JobRequest, route: Route) -> bool:
    is_named = request.site or request.new_site or request.project
    return not is_named and route.mode == Mode.ACTION and not route.trivial


def _question(session: Session, request: JobRequest, route: Route, *, tenant: str) -> Clarification:
    """Return the question to ask the owner of an action that names no target.

    Raises:
        InvalidJobError: the caller's fault: there is nothing to choose from.
    """
    own = select(col(Site.name)).where(col(Site.tenant) == tenant, not_(came_to_nothing()))
    names = own.order_by(col(Site.name)).limit(_MOST_RANKED)
    sites = rank_sites(request.prompt, session.scalars(names).all())
    question = open_clarification(route, own=request.options, sites=sites)
    if question is None:
        rule = "this asks for an action, which needs one of site, new_site and project"
        raise InvalidJobError((FieldError("site", rule),))
    return question


def policy_of_project(session: Session, project: Project, policy: Policy) -> Policy:
    """Return the effective policy of tenant and project, once some key is sure to pay for its agents.

    Raises:
        PolicyError: the operator's fault: the stored configuration no longer fits the platform's policy.
        MissingKeyError: the tenant's fault: no run of it could make a call (S-065, S-068).
    """
    config = ProjectConfig.model_validate(project.config)
    lowered = for_project(policy, config)
    tenant = session.get_one(Tenant, project.tenant)
    accounts_for(config, lowered, tenant_account=tenant.provider)
    return lowered
