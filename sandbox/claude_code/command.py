"""How the Claude Code CLI is called: its arguments, its environment and its input, worked out from values alone.

The prompt is no argument: it goes over stdin, so that nothing in it can be taken for a flag (threat D9). Nor is
anything else that only one job has, so a CLI may be started before its job is known. The flags narrow what the CLI
does; the wall around it does not rely on them. The one flag that lifts the CLI's own checks is for a box and is refused
anywhere else, before anything starts (S-060).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sandbox.errors import UnwalledSessionError

CLI_VERSION = "2.1.330"
"""The flags below mean what they mean in this version: a session of another does not go on."""
CONFIG_DIRECTORY = "/home/agent/.claude"
"""Writable and empty: a configuration directory that cannot be written to makes the CLI hang."""
MAX_OUTPUT_TOKENS = 6000
"""A reply may have so many: more, and the worst case of one call would not fit the caps it is reserved on."""
MAX_PROMPT_BYTES = 262_144
_RETRIES = "5"
"""Of a call that broke off: with the CLI's pauses about fifteen seconds, in which a gateway is started again."""


@dataclass(frozen=True)
class Role:
    """What a kind of session may do."""

    name: str
    tools: frozenset[str]
    """Exactly these: a session that starts with others is stopped before it does anything."""
    permission_mode: Literal["dontAsk", "bypassPermissions"]
    """With `bypassPermissions` the CLI asks nobody about anything: only for sessions behind a wall (S-055, A18)."""
    settings_file: str
    """Lies in the image and belongs to root."""
    rules_file: str
    """What its system prompt ends with. It lies in the image, or is put into the workspace before anything has run
    there: the CLI reads it once, when it starts, so that nothing which it starts could change what it says."""

    @property
    def skips_permissions(self) -> bool:
        """Whether the CLI's own permission layer is off."""
        return self.permission_mode == "bypassPermissions"


SITE = Role(
    name="site",
    tools=frozenset({"Bash", "Edit", "Glob", "Grep", "Read", "Write"}),
    permission_mode="dontAsk",
    settings_file="/etc/claude-code/roles/site.json",
    rules_file="/etc/claude-code/roles/site.md",
)
"""Edits the files of one site."""


def ticket_role(tools: Iterable[str], *, rules_file: str) -> Role:
    """Return what a session of an agent of the ticket lane may do.

    Args:
        tools: the CLI's tools that its definition names.
        rules_file: the agent's instructions, as a path inside the box.
    """
    return Role("ticket", frozenset(tools), "bypassPermissions", "/etc/claude-code/roles/ticket.json", rules_file)


_FORBIDDEN_TOOLS = ("WebFetch", "WebSearch", "Agent", "Task", "mcp__*")


@dataclass(frozen=True, kw_only=True)
class SessionPlan:
    """One session of the CLI."""

    role: Role
    model: str
    max_turns: int
    budget_usd: float
    """Stops the CLI by its own estimate; what is really spent is the gateway's to count and to cap."""
    max_output_tokens: int


def arguments(plan: SessionPlan, *, is_walled: bool) -> tuple[str, ...]:
    """Return the command line. Each value stands with its flag in one word, so that none can become a flag itself.

    Args:
        plan: the session.
        is_walled: whether it runs behind a wall (`Box.is_walled`).

    Raises:
        UnwalledSessionError: the role skips permission checks and there is no wall (ours, or the operator's fault).
    """
    if plan.role.skips_permissions and not is_walled:
        raise UnwalledSessionError(f"a session of role {plan.role.name} may only run inside a container")
    tools = ",".join(sorted(plan.role.tools))
    skip = ("--dangerously-skip-permissions",)
    mode = skip if plan.role.skips_permissions else (f"--permission-mode={plan.role.permission_mode}",)
    return (
        "claude",
        "--print",
        "--verbose",
        "--output-format=stream-json",
        "--input-format=stream-json",
        "--setting-sources=user",
        f"--settings={plan.role.settings_file}",
        "--strict-mcp-config",
        "--disable-slash-commands",
        "--no-session-persistence",
        f"--tools={tools}",
        f"--allowedTools={tools}",
        f"--disallowedTools={','.join(_FORBIDDEN_TOOLS)}",
        *mode,
        f"--append-system-prompt-file={plan.role.rules_file}",
        f"--model={plan.model}",
        f"--max-turns={plan.max_turns}",
        f"--max-budget-usd={plan.budget_usd:.4f}",
    )


def order_line(prompt: str) -> bytes:
    """Return what the CLI reads from stdin: one message, and then the end of input."""
    said = prompt.encode("utf-8", "replace").decode()
    return json.dumps({"type": "user", "message": {"role": "user", "content": said}}).encode() + b"\n"


def environment(plan: SessionPlan, *, gateway_url: str, token: str, trace: str | None = None) -> dict[str, str]:
    """Return the environment, which holds no secret but the attempt's own token.

    Args:
        plan: the session.
        gateway_url: the door to the models, as seen from inside the box.
        token: the attempt's token, which is worth nothing elsewhere, for others or later.
        trace: the `traceparent` that the session's calls go out with, if it is traced.
    """
    traced = {"ANTHROPIC_CUSTOM_HEADERS": f"traceparent: {trace}"} if trace is not None else {}
    return {
        **traced,
        "ANTHROPIC_BASE_URL": gateway_url,
        "ANTHROPIC_AUTH_TOKEN": token,
        "ANTHROPIC_MODEL": plan.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": plan.model,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": plan.model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": plan.model,
        "ANTHROPIC_SMALL_FAST_MODEL": plan.model,
        "CLAUDE_CONFIG_DIR": CONFIG_DIRECTORY,
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(min(plan.max_output_tokens, MAX_OUTPUT_TOKENS)),
        "CLAUDE_CODE_MAX_RETRIES": _RETRIES,
        "CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        "CLAUDE_CODE_SKIP_PROMPT_HISTORY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "BASH_DEFAULT_TIMEOUT_MS": "60000",
        "BASH_MAX_TIMEOUT_MS": "120000",
        "BASH_MAX_OUTPUT_LENGTH": "20000",
    }
