"""How the Claude Code CLI is called: its arguments, environment and input, and the permissions of a session.

The prompt goes over stdin, so that nothing in it can be taken for a flag (threat D9). Nothing specific to a job is an
argument, so the CLI can be started before its job is known. The flags restrict the CLI, but isolation does not rely on
them. The one flag that lifts the CLI's own checks is refused outside a container, before anything starts (S-060).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sandbox.errors import UncontainedSessionError

CLI_VERSION = "2.1.330"
"""The version for which the flags below hold; sessions of any other are stopped."""
CONFIG_DIRECTORY = "/home/agent/.claude"
"""Writable and empty; an unwritable one makes the CLI hang."""
CONVERSATION_FILE = "/home/agent/conversation.jsonl"
"""What a session goes on from: outside of the workspace, and read once, before anything runs."""
MAX_OUTPUT_TOKENS = 6000
"""Limit of a reply; with more, the worst case of one call would not fit its budgets."""
_RETRIES = "5"
"""Retries of a broken call: about fifteen seconds with the CLI's pauses, enough for a restart of the gateway."""


@dataclass(frozen=True)
class Role:
    """The permissions of a kind of session."""

    name: str
    tools: frozenset[str]
    """The exact tools; a session that starts with others is stopped before it does anything."""
    permission_mode: Literal["dontAsk", "bypassPermissions"]
    """`bypassPermissions` turns all permission checks off and is only for isolated sessions (S-055, A18)."""
    settings_file: str
    """In the image, owned by root."""
    rules_file: str
    """The end of its system prompt: a file of the image, or one put into the workspace before anything runs. The CLI
    reads it once, at start, so nothing that it runs can change it."""

    @property
    def skips_permissions(self) -> bool:
        """Whether the CLI's own permission checks are off."""
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
    """Return the role of an agent of the ticket workflow.

    `rules_file` holds the agent's instructions, as a path inside the box.
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
    """Stops the CLI by its own estimate; the gateway meters and limits the real cost."""
    max_output_tokens: int
    goes_on: bool = False
    """Whether it goes on from `CONVERSATION_FILE`."""


def arguments(plan: SessionPlan, *, is_walled: bool) -> tuple[str, ...]:
    """Return the command line. Each value shares a word with its flag, so that none can become a flag itself.

    Raises:
        UncontainedSessionError: the role skips permission checks without isolation (our fault, or the operator's).
    """
    if plan.role.skips_permissions and not is_walled:
        raise UncontainedSessionError(f"a session of role {plan.role.name} may only run inside a container")
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
        *((f"--resume={CONVERSATION_FILE}",) if plan.goes_on else ()),
    )


def encode_prompt(prompt: str) -> bytes:
    """Return the CLI's whole stdin: one message."""
    content = prompt.encode("utf-8", "replace").decode()
    return json.dumps({"type": "user", "message": {"role": "user", "content": content}}).encode() + b"\n"


def environment(plan: SessionPlan, *, gateway_url: str, token: str, trace: str | None = None) -> dict[str, str]:
    """Return the environment, whose only secret is the attempt's own token.

    The token is useless elsewhere and later. `trace` is the `traceparent` of the session's calls, if it is traced.
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
