"""Queues and tiers: one record per queue, from which everything else derives.

A tier is a class of service (seed 000); a queue is transport. Every tier has a queue, but not every queue has a tier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from routing.policy.prices import NANOUSD_PER_USD

MEBIBYTE = 1_048_576
"""1 MB in the tier table (ruling A36)."""

CallPurpose = Literal[
    "answer",
    "spec_edit",
    "spec_create",
    "spec_draw",
    "spec_proof",
    "spec_terms",
    "patch_edit",
    "patch_built",
    "agent_session",
    "assist",
    "debate",
]
"""Purpose of a model call. `calls` in platform.yaml gives each a model, sizes and the queue whose work makes it."""
TierName = Literal["spec", "patch", "agent"]
SUBMIT_TASK = "pointsman.submit"
"""The task with which Celery clients submit jobs. No worker runs it: the Celery intake reads it from the broker."""


class Tier(IntEnum):
    """Service class of an edit: the least machinery that can do it (seed 000)."""

    SPEC = 1
    PATCH = 2
    AGENT = 3


def parse_tier(name: TierName) -> Tier:
    """Return the tier with this name."""
    return Tier[name.upper()]


class QueueName(StrEnum):
    """Names of queues. `unrouted` has no worker and no record: a message there is a defect and raises an alert."""

    INTAKE = "intake"
    TOOLS = "tools"
    ANSWER = "answer"
    SPEC = "spec"
    PATCH = "patch"
    AGENT = "agent"
    STEPS = "steps"
    CONTROL = "control"
    UNROUTED = "unrouted"


@dataclass(frozen=True, kw_only=True)
class Queue:
    """One queue. Its limits are in platform.yaml, its handler in `workers.tasks.HANDLERS`."""

    work: str
    """The kind of work, for the reference page."""
    task: str
    """The Celery task. Producers publish by this name and import no worker code."""
    tier: Tier | None = None
    """The tier whose edits, and nothing else, wait here."""
    job: str = ""
    """What a job without a tier is called here."""
    has_all_tiers: bool = False
    """Edits of every tier and jobs without a tier wait here."""
    leaves_open: bool = False
    """An attempt may end without ending its job."""
    waits_forever: bool = False
    """Jobs here never expire, because they finish work that has begun."""
    writes_site: bool = False
    """An attempt locks its job's site: one at a time per site."""
    box: Literal["none", "on_demand", "warm"] = "none"
    """Whether its workers use a container engine, and whether they keep boxes warm."""
    volumes: tuple[Literal["content-store", "runs"], ...] = ()
    """Shared directories that its workers mount."""
    egress: str = ""
    """Why its workers need network access beyond the gateway; empty if they do not."""
    call: CallPurpose | None = None
    """The model call that the work makes; None without one."""
    is_model_bound: bool = False
    """Its attempts mostly wait for a model, so they wait in threads (`--pool dense`). Work that holds a box for all of
    its time, or runs programs of its own, needs a process that can be killed.
    """
    calls: int = 1
    """Such calls in a typical attempt."""
    busy_share: tuple[float, float] | None = None
    """Median and p95 duration of an attempt as shares of the soft limit; None if it is one call."""
    follows: Mapping[QueueName, float] = field(default_factory=dict)
    """Share of attempts after which the job moves to another queue."""
    arrivals: float = 0
    """Assumed share of new jobs that begin here; the rest begin on `spec`."""
    target_seconds: float = 5
    """Target for the 95th percentile of the wait."""
    pool: int = 2
    """Jobs at once per worker; a Kubernetes pod has one if jobs may take minutes."""
    local_worker: Literal["edits", "quick", "agent"] = "quick"
    """Which worker of a one-machine installation serves it."""
    least_pods: int = 1
    fallback_pods: int = 2
    """Pods while the autoscaler has no metrics."""
    most_pods: int = 20

    @property
    def needs_box(self) -> bool:
        """Whether its workers use a container engine."""
        return self.box != "none"


QUEUES: Mapping[QueueName, Queue] = {
    QueueName.INTAKE: Queue(
        work="clarification and planning debates",
        task="pointsman.intake",
        job="undecided",
        has_all_tiers=True,
        leaves_open=True,
        call="assist",
        follows={QueueName.SPEC: 0.6, QueueName.PATCH: 0.2, QueueName.ANSWER: 0.2},
        arrivals=0.05,
    ),
    QueueName.TOOLS: Queue(
        work="tools that need no model",
        task="pointsman.tools",
        job="command",
        egress="Pings the hosts that the policy lists.",
        busy_share=(0.02, 0.2),
        arrivals=0.02,
        target_seconds=1,
        fallback_pods=1,
        most_pods=4,
    ),
    QueueName.ANSWER: Queue(
        work="questions",
        task="pointsman.answer",
        job="question",
        volumes=("content-store",),
        call="answer",
        is_model_bound=True,
        arrivals=0.2,
        pool=50,
        local_worker="edits",
        fallback_pods=1,
        most_pods=10,
    ),
    QueueName.SPEC: Queue(
        work="edits of a site's spec",
        task="pointsman.spec",
        tier=Tier.SPEC,
        writes_site=True,
        volumes=("content-store",),
        call="spec_edit",
        is_model_bound=True,
        follows={QueueName.PATCH: 0.08, QueueName.CONTROL: 0.8},
        arrivals=0.55,
        pool=50,
        local_worker="edits",
        fallback_pods=1,
        most_pods=10,
    ),
    QueueName.PATCH: Queue(
        work="edits by a diff, and builds",
        task="pointsman.patch",
        tier=Tier.PATCH,
        writes_site=True,
        box="on_demand",
        volumes=("content-store",),
        call="patch_edit",
        is_model_bound=True,
        follows={QueueName.AGENT: 0.05, QueueName.CONTROL: 0.8},
        arrivals=0.15,
        target_seconds=10,
        pool=8,  # any of them may hold a box, for a site with a build
        local_worker="edits",
        fallback_pods=3,
        most_pods=60,
    ),
    QueueName.AGENT: Queue(
        work="edits by a code agent",
        task="pointsman.agent",
        tier=Tier.AGENT,
        writes_site=True,
        box="warm",
        volumes=("content-store",),
        call="agent_session",
        calls=8,
        busy_share=(0.3, 0.8),
        follows={QueueName.CONTROL: 0.8},
        arrivals=0.03,
        target_seconds=60,
        local_worker="agent",
        fallback_pods=4,
        most_pods=100,
    ),
    QueueName.STEPS: Queue(
        work="steps of runs",
        task="pointsman.step",
        job="step",
        leaves_open=True,
        waits_forever=True,
        box="on_demand",
        volumes=("content-store", "runs"),
        egress="Fetches projects from their remotes.",
        call="agent_session",
        calls=8,
        busy_share=(0.15, 0.6),
        follows={QueueName.CONTROL: 1.0},
        target_seconds=60,
        local_worker="agent",
        least_pods=0,
        most_pods=50,
    ),
    QueueName.CONTROL: Queue(
        work="publishing, and the advance of runs",
        task="pointsman.control",
        job="run",
        has_all_tiers=True,
        leaves_open=True,
        waits_forever=True,
        volumes=("content-store", "runs"),
        egress="Pushes branches and opens pull requests.",
        busy_share=(0.02, 0.2),
    ),
}
"""Every queue that workers serve. Adding one: CONTRIBUTING.md, "Walks"."""

QUEUE_OF_TIER: Mapping[Tier, QueueName] = {queue.tier: name for name, queue in QUEUES.items() if queue.tier is not None}


class Limits(BaseModel):
    """Limits of one job on one queue (DESIGN.md section 5; seed 000's constraint table)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    soft_seconds: float = Field(gt=0)
    """Then the task is interrupted and may still save its work."""
    hard_seconds: float = Field(gt=0)
    """Then the process group is killed."""
    llm_usd: float = Field(ge=0)
    """Maximum LLM cost on this queue, retries included."""
    output_bytes: int = Field(gt=0)
    wait_seconds: float | None = Field(default=None, gt=0)
    """A job that has waited this long expires; None lets it wait forever."""
    container: Literal["none", "build_only", "required", "per_role"] = "none"
    network: Literal["none", "registry_allowlist", "per_role"] = "none"
    shell: Literal["none", "restricted", "per_role"] = "none"
    js_budget: Literal["publish_profile"] = "publish_profile"
    """Every tier has the JavaScript budget of the site's publish profile (H-106)."""

    @property
    def llm_nanousd(self) -> int:
        """Maximum LLM cost in nanodollars."""
        return round(self.llm_usd * NANOUSD_PER_USD)
