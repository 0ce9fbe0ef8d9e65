"""Three tiers, eight queues and their limits: which names exist, and which work may cost what.

A tier is a class of service (seed 000); a queue is transport. Every tier has its own queue, but a queue such as `tools`
has no tier.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from routing.prices import NANOUSD_PER_USD

MEBIBYTE = 1_048_576
"""What the tier table calls 1 MB (ruling A36)."""


class Tier(IntEnum):
    """How much machinery an edit gets: the least that can do it (seed 000)."""

    SPEC = 1
    PATCH = 2
    AGENT = 3


class QueueName(StrEnum):
    """Every queue of the fleet. `unrouted` has no worker: a message there is a defect, and alerts."""

    INTAKE = "intake"
    TOOLS = "tools"
    ANSWER = "answer"
    SPEC = "spec"
    PATCH = "patch"
    AGENT = "agent"
    STEPS = "steps"
    CONTROL = "control"
    UNROUTED = "unrouted"


class TaskName(StrEnum):
    """Registered Celery tasks. Producers publish by these names and import no worker code."""

    SUBMIT = "pointsman.submit"
    INTAKE = "pointsman.intake"
    TOOLS = "pointsman.tools"
    ANSWER = "pointsman.answer"
    SPEC = "pointsman.spec"
    PATCH = "pointsman.patch"
    AGENT = "pointsman.agent"
    STEP = "pointsman.step"
    CONTROL = "pointsman.control"


QUEUE_OF_TIER: dict[Tier, QueueName] = {
    Tier.SPEC: QueueName.SPEC,
    Tier.PATCH: QueueName.PATCH,
    Tier.AGENT: QueueName.AGENT,
}
TIER_OF_QUEUE: dict[QueueName, Tier] = {queue: tier for tier, queue in QUEUE_OF_TIER.items()}

TASK_OF_QUEUE: dict[QueueName, TaskName] = {
    QueueName.INTAKE: TaskName.INTAKE,
    QueueName.TOOLS: TaskName.TOOLS,
    QueueName.ANSWER: TaskName.ANSWER,
    QueueName.SPEC: TaskName.SPEC,
    QueueName.PATCH: TaskName.PATCH,
    QueueName.AGENT: TaskName.AGENT,
    QueueName.STEPS: TaskName.STEP,
    QueueName.CONTROL: TaskName.CONTROL,
}
"""The task that works off a job waiting on a queue."""


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
