"""The platform policy: limits, models, prices and budgets (seed 001 ADR-006, ruling A22).

Layer 1 is the platform's YAML file. Layer 2, a project's overrides, may lower a limit but never raise it. Layer 3, the
plan of one run, holds neither budgets nor models.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from routing.errors import PolicyError
from routing.policy.agents import AgentDefinition, AgentName, RunRules
from routing.policy.prices import NANOUSD_PER_USD, Price
from routing.provider_circuit import Circuits
from routing.queues import QUEUE_OF_TIER, QUEUES, CallPurpose, Limits, QueueName, Tier
from routing.scheduling import Admission
from routing.yaml_data import load_yaml

Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Speed(_Section):
    """Stated speed of a model."""

    first_token_seconds: float = Field(gt=0)
    tokens_per_second: float = Field(gt=0)


class ModelCall(_Section):
    """The model and the expected size of a call."""

    queue: QueueName
    model: str
    max_tokens: int = Field(gt=0)
    """Limit of the reply."""
    input_tokens: int = Field(gt=0)
    """Expected maximum of the request, which the feasibility test assumes."""


class GatewayRules(_Section):
    """Size limits of the gateway."""

    max_body_bytes: int = Field(gt=0)
    min_output_tokens: int = Field(gt=0)
    max_output_tokens: int = Field(gt=0)
    counts_per_minute: float = Field(default=100, gt=0)
    """Requests of one account that count tokens, over the whole fleet."""
    media_references: bool = False
    """Whether images and documents may be named by URL or file id."""


class Budgets(_Section):
    """Budgets in USD beyond those of the queues."""

    call_usd: Usd
    job_usd: Usd
    run_usd: Usd
    tenant_day_usd: Usd
    fleet_day_usd: Usd


class DispatchWindow(_Section):
    """How many jobs may be in the broker at a time."""

    per_queue: int = Field(gt=0)
    per_tenant: int = Field(gt=0)


class Attempts(_Section):
    """Leases, and how often a job is attempted."""

    lease_renew_seconds: float = Field(gt=0)
    lease_seconds: float = Field(gt=0)
    max_lost: int = Field(gt=0)
    spec: int = Field(gt=0)
    patch: int = Field(gt=0)

    @model_validator(mode="after")
    def _check_lease(self) -> Self:
        if self.lease_seconds < 2 * self.lease_renew_seconds:
            raise ValueError("lease_seconds must be at least twice lease_renew_seconds")
        return self


PauseSeconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]


class Pauses(_Section):
    """Seconds before the second try, the third and so on; the last one repeats.

    A waiting job is a row of the ledger, not a timer in a worker, so it survives every restart.
    """

    lost_worker: tuple[PauseSeconds, ...] = Field(default=(5, 30), min_length=1)
    """After a worker died."""
    step: tuple[PauseSeconds, ...] = Field(default=(2, 15, 60), min_length=1)
    """After a step of a run failed because of its environment; one that failed at its work is retried at once."""
    control: tuple[PauseSeconds, ...] = Field(default=(5, 30, 120, 600), min_length=1)
    """After publishing or advancing a run failed because a forge, the content store or the disk was unavailable."""
    control_hours: float = Field(default=12, gt=0)
    """After this long, such work fails."""


class Webhooks(_Section):
    """Deliveries of callbacks by one process."""

    in_flight: int = Field(default=256, gt=0)
    per_tenant: int = Field(default=64, gt=0)
    """Of those, to one tenant's destinations."""
    seconds: float = Field(default=10, gt=0, le=30)
    """For one try: look-up, connection and answer."""
    failures: int = Field(default=3, gt=0)
    """Tries in a row without an answer that open a destination's circuit."""
    pause_seconds: float = Field(default=30, gt=0)
    longest_pause_seconds: float = Field(default=600, gt=0, le=3600)


class Streams(_Section):
    """Open event streams of one API process."""

    per_key: int = Field(default=50, gt=0)
    per_process: int = Field(default=500, gt=0)
    retry_seconds: int = Field(default=5, gt=0)


class Uploads(_Section):
    """Archives of sites to import, which wait in the content store for the job that unpacks them."""

    archive_bytes: int = Field(default=25_165_824, gt=0)
    """Of one archive."""
    site_bytes: int = Field(default=20_971_520, gt=0)
    """Of what it holds."""
    tenant_bytes: int = Field(default=268_435_456, gt=0)
    """Of a tenant's archives that are kept: of imports that have not ended, and of the last `retention.draft_hours`."""
    per_process: int = Field(default=8, gt=0)
    """Archives that one API process takes at a time."""
    per_tenant: int = Field(default=2, gt=0)
    """Of those, of one tenant; what is under way is not counted in `tenant_bytes` yet."""
    seconds: int = Field(default=300, gt=0)
    """In which an archive has to arrive."""
    retry_seconds: int = Field(default=10, gt=0)


class Assist(_Section):
    """Who decides where the rules cannot."""

    enabled: bool = False
    """Whether a model is called (seed 000, V2)."""
    second_opinion: bool = True
    """Whether the trained weights that come with the package judge mode, tier and debate where no rule is certain."""


class AgentRules(_Section):
    """Limits of a tier 3 session."""

    max_turns: int = Field(gt=0)
    start_seconds: float = Field(gt=0)
    """Until its first output."""
    idle_seconds: float = Field(gt=0)
    """Longest silence; must exceed the slowest reply."""
    closing_seconds: float = Field(gt=0)
    """Reserved from the soft limit for extract, scan and preview."""
    build_seconds: float = Field(gt=0)
    """Reserved for the build of a site that has one."""


class PatchRules(_Section):
    """Limits of a patch on a site with a build."""

    build_seconds: float = Field(gt=0)
    """Reserved for the build; a site whose last build took longer goes to tier 3 at once."""


class Approval(_Section):
    """Approval of previews."""

    hours: float = Field(gt=0)
    preview_hours: float = Field(gt=0)
    requester_may_approve: bool = True
    """Whether requesters may approve their own edits; otherwise every publish needs a second person."""


Days = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Retention(_Section):
    """How long files of inactive releases and finished rows of the ledger are kept."""

    releases: int = Field(ge=1)
    days: float = Field(ge=0)
    draft_hours: float = Field(ge=1)
    job_days: Days = 90
    """Jobs with everything that belongs to them, counted from the end of their session or run. Those whose releases
    still have files stay, and the newest refused upload of a site to which nothing else came."""
    dead_letter_days: Days = 180
    """Dead letters that nobody has handled."""
    event_days: Days = 30
    """Events of ended jobs, which go up to a quarter of that time later: many at once. Metrics made from them stay
    forever."""
    audit_days: Days = 365
    """Audit rows; after that they move to the archive, if one is configured."""

    @property
    def days_of_events(self) -> float:
        """For how many days events of ended jobs are kept: never by intent for longer than the jobs."""
        return min(self.event_days, self.job_days)


class Tools(_Section):
    """Hosts that trivial commands may reach."""

    ping_hosts: tuple[str, ...] = ()


_LABEL = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
Host = Annotated[str, Field(max_length=253, pattern=rf"^{_LABEL}(\.{_LABEL})+$")]
"""A host name as browsers compare it: lower case, punycode, no scheme, port or wildcard. It goes into a header."""
FrameSource = Annotated[str, Field(max_length=200, pattern=rf"^{_LABEL}(\.{_LABEL})+(/[A-Za-z0-9._~-]+)*/?$")]
"""Host and path of pages that a page may embed, as in a header: below the path where it ends in `/`, else just it."""


class Profile(_Section):
    """What a site's release may contain."""

    js_bytes: int = Field(ge=0)
    """All executable bytes of the release."""
    js_gzip_bytes: int = Field(ge=0)
    """The same, each piece compressed separately."""
    script_hosts: tuple[Host, ...] = ()
    """Hosts of scripts, each of which needs an integrity hash."""
    image_hosts: tuple[Host, ...] = ()
    form_hosts: tuple[Host, ...] = ()
    """Hosts that forms may submit to; without one, a page may not ask for passwords or card numbers."""
    frames: tuple[FrameSource, ...] = ()
    """What a page may embed once a visitor asks for it; a bare host allows all of its pages."""
    max_files: int = Field(gt=0)


class QueueOverride(_Section):
    """A project's lower limits of one queue."""

    llm_usd: Usd | None = None
    soft_seconds: float | None = Field(default=None, gt=0)
    hard_seconds: float | None = Field(default=None, gt=0)
    output_bytes: int | None = Field(default=None, gt=0)


class ApprovalOverride(_Section):
    """A project's stricter approval."""

    hours: float | None = Field(default=None, gt=0)
    requester_may_approve: Literal[False] | None = None


class ProjectOverrides(_Section):
    """Layer 2: a project's lower limits."""

    approval: ApprovalOverride = ApprovalOverride()
    queues: dict[QueueName, QueueOverride] = Field(default_factory=dict)
    budgets: dict[Literal["call_usd", "job_usd", "run_usd", "tenant_day_usd"], Usd] = Field(default_factory=dict)


_LIKE: Final = {"spec_draw": "spec_create", "spec_proof": "spec_create", "spec_terms": "spec_edit"}
"""Calls that older files do not have, and which ones they are like."""


class Policy(_Section):
    """Everything an operator may tune."""

    queues: dict[QueueName, Limits]
    prices_as_of: str
    prices: dict[str, Price]
    speeds: dict[str, Speed]
    calls: dict[CallPurpose, ModelCall]
    gateway: GatewayRules
    circuits: Circuits = Circuits()
    budgets: Budgets
    dispatch_window: DispatchWindow
    admission: Admission = Admission()
    attempts: Attempts
    pauses: Pauses = Pauses()
    webhooks: Webhooks = Webhooks()
    streams: Streams = Streams()
    uploads: Uploads = Uploads()
    patch: PatchRules
    agent: AgentRules
    agents: dict[AgentName, AgentDefinition]
    runs: RunRules
    assist: Assist
    approval: Approval
    retention: Retention
    tools: Tools
    profiles: dict[str, Profile]

    @field_validator("calls", mode="before")
    @classmethod
    def _from_before(cls, calls: Any) -> Any:
        """Let who makes new sites draw, too, and who edits name terms, in a file that does not say who does."""
        if not isinstance(calls, dict):
            return calls
        return {new: calls[old] for new, old in _LIKE.items() if old in calls} | calls

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        missing = [queue.value for queue in QUEUES if queue not in self.queues]
        if missing:
            raise ValueError(f"queues must hold limits for {', '.join(missing)}")
        for queue, limits in self.queues.items():
            if limits.hard_seconds <= limits.soft_seconds:
                raise ValueError(f"queues.{queue}: hard_seconds must be above soft_seconds")
            if limits.wait_seconds is not None and QUEUES[queue].waits_forever:
                raise ValueError(f"queues.{queue}: wait_seconds: what waits there finishes work that has begun")
        if uncalled := [purpose for purpose in get_args(CallPurpose) if purpose not in self.calls]:
            raise ValueError(f"calls must hold {', '.join(uncalled)}")
        for purpose, call in self.calls.items():
            if call.model not in self.prices or call.model not in self.speeds:
                raise ValueError(f"calls.{purpose}: model {call.model} needs a price and a speed")
        if "default" not in self.profiles:
            raise ValueError("profiles must hold `default`")
        return self

    @model_validator(mode="after")
    def _check_agents(self) -> Self:
        for name, agent in self.agents.items():
            self._check_agent(name, agent)
        for rule, named in self.runs.rules.named_agents():
            if named not in self.agents:
                raise ValueError(f"runs.rules: {rule}: there is no agent {named}")
        if unpriced := sorted(self.runs.models - set(self.prices) | self.runs.models - set(self.speeds)):
            raise ValueError(f"runs.models: {', '.join(unpriced)} needs a price and a speed")
        return self

    def _check_agent(self, name: str, agent: AgentDefinition) -> None:
        queue = self.queues[QueueName.STEPS]
        if agent.model not in self.prices or agent.model not in self.speeds:
            raise ValueError(f"agents.{name}: model {agent.model} needs a price and a speed")
        if agent.soft_seconds > queue.soft_seconds or agent.hard_seconds > queue.hard_seconds:
            raise ValueError(f"agents.{name}: its times must not be above those of queues.steps")
        if agent.max_output_tokens > self.gateway.max_output_tokens:
            raise ValueError(f"agents.{name}: max_output_tokens must not be above gateway.max_output_tokens")
        if ":" in name and name.split(":")[0] not in self.agents:
            raise ValueError(f"agents.{name}: is a subtask of an agent that does not exist")

    @cached_property
    def version(self) -> str:
        """A short digest of the whole policy, stored with every decision."""
        body = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(body.encode()).hexdigest()[:12]

    def limits_of(self, tier: Tier) -> Limits:
        """Return the limits of a tier's queue."""
        return self.queues[QUEUE_OF_TIER[tier]]

    def limits_for(self, queue: QueueName, agent: str | None) -> Limits:
        """Return a queue's limits with `per_role` resolved for an agent's step; None is any other work."""
        limits = self.queues[queue]
        if agent is None or limits.container != "per_role":
            return limits
        has_box = agent not in self.agents or self.agents[agent].needs_box
        return limits.model_copy(update={"container": "required" if has_box else "none"})

    def models_of(self, queue: QueueName) -> frozenset[str]:
        """Return the models that work on `queue` may call; steps may use those of agents and `runs.models`."""
        models = frozenset(call.model for call in self.calls.values() if call.queue == queue)
        if queue == QueueName.STEPS:
            return models | self.runs.models | {agent.model for agent in self.agents.values()}
        return models

    def job_cap_nanousd(self, budget_usd: float | None) -> int:
        """Return the budget of one job over all its tiers: the policy's or the caller's, whichever is lower."""
        cap = self.budgets.job_usd if budget_usd is None else min(self.budgets.job_usd, budget_usd)
        return round(cap * NANOUSD_PER_USD)


def parse_policy(text: str, *, source: str) -> Policy:
    """Parse a platform policy; `source` names it in errors.

    Raises:
        PolicyError: the operator's fault; names source, place and rule.
    """
    try:
        return Policy.model_validate(load_yaml(text))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise PolicyError(f"{source}, line {line}: {error.problem}") from None
    except yaml.YAMLError:
        raise PolicyError(f"{source}: is no YAML text") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the document"
        raise PolicyError(f"{source}: {place}: {first['msg'].removeprefix('Value error, ')}") from None


@cache
def platform_policy() -> Policy:
    """Return the policy that ships with the product."""
    return parse_policy(
        (resources.files("routing.policy") / "platform.yaml").read_text(), source="routing/policy/platform.yaml"
    )


def load_policy(path: Path | None) -> Policy:
    """Return the policy in `path`, or the shipped one for None.

    Raises:
        PolicyError: the operator's fault.
    """
    if path is None:
        return platform_policy()
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PolicyError(f"{path}: cannot be read: it is not UTF-8") from None
    return parse_policy(text, source=str(path))


def lower(policy: Policy, overrides: ProjectOverrides) -> Policy:
    """Return the policy lowered by a project's overrides.

    Raises:
        PolicyError: the project owner's fault: an override would raise a limit.
    """
    queues = dict(policy.queues)
    for queue, override in overrides.queues.items():
        if queue not in queues:
            raise PolicyError(f"queues.{queue}: the platform states no limits for it")
        changes = override.model_dump(exclude_none=True)
        for field, value in changes.items():
            _refuse_raise(f"queues.{queue}.{field}", value, getattr(policy.queues[queue], field))
        queues[queue] = Limits.model_validate(policy.queues[queue].model_dump() | changes)
    for field, value in overrides.budgets.items():
        _refuse_raise(f"budgets.{field}", value, getattr(policy.budgets, field))
    budgets = policy.budgets.model_dump() | {str(field): value for field, value in overrides.budgets.items()}
    if overrides.approval.hours is not None:
        _refuse_raise("approval.hours", overrides.approval.hours, policy.approval.hours)
    approval = policy.approval.model_dump() | overrides.approval.model_dump(exclude_none=True)
    try:
        lowered = {"queues": queues, "budgets": budgets, "approval": approval}
        return Policy.model_validate(policy.model_dump() | lowered)
    except ValidationError as error:
        raise PolicyError(error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")) from None


def _refuse_raise(place: str, value: float, ceiling: float) -> None:
    if value > ceiling:
        raise PolicyError(f"{place}: a project may lower the platform's {ceiling:g}, not raise it to {value:g}")
