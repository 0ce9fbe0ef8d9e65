"""Queues and tiers: one record holds all that is known of a queue, and everything else derives from it.

A tier is a class of service (seed 000); a queue is transport. Every tier has its own queue, but a queue such as `tools`
has no tier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from routing.policy.prices import NANOUSD_PER_USD

MEBIBYTE = 1_048_576
"""What the tier table calls 1 MB (ruling A36)."""


CallPurpose = Literal[
    "answer", "spec_edit", "spec_create", "patch_edit", "patch_built", "agent_session", "assist", "debate"
]
"""What a model is called for. `calls` in platform.yaml prices each, and names the queue whose work makes it."""
TierName = Literal["spec", "patch", "agent"]
SUBMIT_TASK = "pointsman.submit"
"""The task by which Celery clients submit jobs. No worker runs it: the Celery intake takes it from the broker."""


class Tier(IntEnum):
    """How much machinery an edit gets: the least that can do it (seed 000)."""

    SPEC = 1
    PATCH = 2
    AGENT = 3


def tier_named(name: TierName) -> Tier:
    """Return the tier that a caller names."""
    return Tier[name.upper()]


class QueueName(StrEnum):
    """Names of queues. `unrouted` has no worker and no record: a message there is a defect, and alerts."""

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
    """All that the code knows of a queue; its limits stand in platform.yaml, its work in `workers.tasks.HANDLERS`."""

    work: str
    """What jobs wait here for, for the reference page."""
    task: str
    """The Celery task that works a job off. Producers publish by this name and import no worker code."""
    tier: Tier | None = None
    """The tier whose edits wait here, and nothing else."""
    has_all_tiers: bool = False
    """Edits of every tier come by, beside jobs of no tier."""
    leaves_open: bool = False
    """An attempt may end while its job goes on from here."""
    waits_forever: bool = False
    """What waits here finishes work that has begun, so it never expires."""
    writes_site: bool = False
    """An attempt holds its job's site: one at a time on each."""
    box: Literal["none", "on_demand", "warm"] = "none"
    """Whether its workers reach a container engine, and whether they keep boxes ready."""
    volumes: tuple[Literal["den", "runs"], ...] = ()
    """The shared directories that its workers mount."""
    egress: str = ""
    """Why its workers reach further than the gateway; empty where they do not."""
    call: CallPurpose | None = None
    """The model call that its work consists of; None where it calls no model."""
    calls: int = 1
    """How many such calls a typical attempt makes."""
    busy_share: tuple[float, float] | None = None
    """Median and p95 of an attempt, as shares of the soft limit; None where one call is all of it."""
    follows: Mapping[QueueName, float] = field(default_factory=dict)
    """The share of its attempts after which the job waits on another queue."""
    arrivals: float = 0
    """The share of new jobs that begin here where nothing was measured; what is left over begins on `spec`."""
    target_seconds: float = 5
    """Seconds that 95 % of the attempts should not wait longer than."""
    pool: int = 2
    """Processes in a worker's pool; a pod of Kubernetes has one where jobs may take minutes."""
    local_worker: Literal["edits", "quick", "agent"] = "quick"
    """Which of the three workers of a one-machine installation serves it."""
    least_pods: int = 1
    fallback_pods: int = 2
    """Pods while the autoscaler has no metrics."""
    most_pods: int = 20

    @property
    def needs_box(self) -> bool:
        """Whether its workers reach a container engine."""
        return self.box != "none"


QUEUES: Mapping[QueueName, Queue] = {
    QueueName.INTAKE: Queue(
        work="clarification and planning debates",
        task="pointsman.intake",
        has_all_tiers=True,
        leaves_open=True,
        call="assist",
        follows={QueueName.SPEC: 0.6, QueueName.PATCH: 0.2, QueueName.ANSWER: 0.2},
        arrivals=0.05,
    ),
    QueueName.TOOLS: Queue(
        work="tools that need no model",
        task="pointsman.tools",
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
        volumes=("den",),
        call="answer",
        arrivals=0.2,
        pool=4,
        fallback_pods=4,
        most_pods=50,
    ),
    QueueName.SPEC: Queue(
        work="edits of a site's spec",
        task="pointsman.spec",
        tier=Tier.SPEC,
        writes_site=True,
        volumes=("den",),
        call="spec_edit",
        follows={QueueName.PATCH: 0.08, QueueName.CONTROL: 0.8},
        arrivals=0.55,
        pool=4,
        local_worker="edits",
        fallback_pods=6,
        most_pods=100,
    ),
    QueueName.PATCH: Queue(
        work="edits by a diff, and builds",
        task="pointsman.patch",
        tier=Tier.PATCH,
        writes_site=True,
        box="on_demand",
        volumes=("den",),
        call="patch_edit",
        follows={QueueName.AGENT: 0.05, QueueName.CONTROL: 0.8},
        arrivals=0.15,
        target_seconds=10,
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
        volumes=("den",),
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
        leaves_open=True,
        waits_forever=True,
        box="on_demand",
        volumes=("den", "runs"),
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
        has_all_tiers=True,
        leaves_open=True,
        waits_forever=True,
        volumes=("den", "runs"),
        egress="Pushes branches and opens pull requests.",
        busy_share=(0.02, 0.2),
    ),
}
"""Every queue that workers serve. Adding one: CONTRIBUTING.md, "Walks"."""

QUEUE_OF_TIER: Mapping[Tier, QueueName] = {queue.tier: name for name, queue in QUEUES.items() if queue.tier is not None}


class Limits(BaseModel):
    """What one job may use on one queue (DESIGN.md section 5; the seven rows of seed 000's constraint table)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    soft_seconds: float = Field(gt=0)
    """After this many seconds the task is interrupted and may still save what it has."""
    hard_seconds: float = Field(gt=0)
    """Max duration: the process group is killed."""
    llm_usd: float = Field(ge=0)
    """Max LLM cost of the job on this queue, retries included."""
    output_bytes: int = Field(gt=0)
    """Max output size in bytes."""
    wait_seconds: float | None = Field(default=None, gt=0)
    """A job that no worker took up within so long expires; None lets it wait for ever."""
    container: Literal["none", "build_only", "required", "per_role"] = "none"
    network: Literal["none", "registry_allowlist", "per_role"] = "none"
    shell: Literal["none", "restricted", "per_role"] = "none"
    js_budget: Literal["publish_profile"] = "publish_profile"
    """The JavaScript budget is that of the site's publish profile, the same in every tier (H-106)."""

    @property
    def llm_nanousd(self) -> int:
        """Max LLM cost in nanodollars."""
        return round(self.llm_usd * NANOUSD_PER_USD)
