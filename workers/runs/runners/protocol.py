"""What every runner promises: it takes an agent, its order and files, and gives back what the agent left.

A runner knows nothing of runs, plans or the ledger, and never decides which of an agent's files are kept. Moving an
agent to another runtime changes the runner alone: its instructions and the service stay as they are (S-063).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from routing.jobs import Reason, State
from routing.policy.agents import AgentDefinition
from workers.attempt import Attempt


@dataclass(frozen=True, kw_only=True)
class AgentOrder:
    """One agent and what it is to do."""

    name: str
    agent: AgentDefinition
    model: str
    """What the layers of the configuration chose for it."""
    instructions: str
    """Its CLAUDE.md."""
    prompt: str
    """What is asked in this step: told apart from the instructions, and never on a command line (threat D9)."""
    files: Mapping[str, bytes]
    """The workspace as it is laid before the agent, `.agent-context/` included."""
    writes: tuple[str, ...]
    """Path rules (routing.policy.agents): what of the agent's files is kept."""
    cap_usd: float
    """What the step may spend; the gateway has the last word."""


@dataclass(frozen=True)
class Failed:
    """Why an agent did not come to an end of its own."""

    state: State
    reason: Reason
    detail: str


@dataclass(frozen=True)
class AgentRun:
    """What an agent left."""

    files: Mapping[str, bytes] | None
    """The whole workspace as it left it, its result file included; None when its files are not taken."""
    failed: Failed | None = None
    """None when it ended by itself. What it says about its work is in its result file, not here."""
    refused: tuple[str, ...] = ()
    """What it tried to write and was kept from, each with the reason."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """How it went, for the record: turns, seconds, tools, digests."""


class AgentRunner(Protocol):
    """Runs agents of one runtime."""

    def run(self, order: AgentOrder, attempt: Attempt) -> AgentRun:
        """Run an agent to its end.

        Args:
            order: who, and what.
            attempt: the model client, boxes, limits and reports of this attempt.

        Raises:
            SandboxError: the step ends, or is tried again, by the table of retries (workers/retries.py).
            CancelledByOwnerError, LeaseLostError: nobody's fault: nothing that it did counts.
        """
