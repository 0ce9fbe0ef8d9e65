"""What an agent is told about itself: its CLAUDE.md, with the ending that fits what runs it.

The texts are package data, one file for each shipped agent; an agent that an installation adds brings its text in the
policy. How a step ends depends on the runtime, and configuration may move an agent to another one, so that part is
added here.
"""

from __future__ import annotations

from importlib import resources

from routing.agents import AgentDefinition, instruction_file
from routing.errors import PolicyError

_TEXTS = resources.files("workers.runs") / "instructions"


def claude_md(name: str, agent: AgentDefinition) -> str:
    """Return the instructions of an agent, which hold no key and nothing of the run.

    Args:
        name: of the agent, as in the policy.
        agent: its definition.

    Raises:
        PolicyError: the operator's fault: an agent that the product does not ship has no `instructions`.
    """
    own = agent.instructions if agent.instructions is not None else _shipped(name)
    ending = _text("_ending-api.md" if agent.runtime == "api" else "_ending-claude_code.md")
    return f"{_heading(name)}{own.strip()}\n\n{ending.strip()}\n\n{_text('_ending.md').strip()}\n"


def _heading(name: str) -> str:
    return (
        f"You are the agent `{name}` of a run. These are your standing instructions; your task comes in the order.\n\n"
    )


def _shipped(name: str) -> str:
    try:
        return _text(instruction_file(name))
    except FileNotFoundError:
        raise PolicyError(f"agents.{name}: instructions: the product ships none for this name") from None


def _text(file: str) -> str:
    return (_TEXTS / file).read_text(encoding="utf-8")
