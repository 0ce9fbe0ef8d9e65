"""Scenario files: which requests a rule matches, and what it replies, breaks or overcharges.

A file is a YAML document `{rules: [...]}`. Rules are tried in order; the first that matches is played. See
scenarios/README.md for the format by example.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from sandbox.rehearsal.responders import RESPONDERS
from sandbox.rehearsal.templates import check_templates


def _check_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return pattern


def _check_responder(name: str) -> str:
    if name not in RESPONDERS:
        raise ValueError(f"no responder has this name; there are {', '.join(sorted(RESPONDERS))}")
    return name


def _check_template(value: Any) -> Any:
    check_templates(value)
    return value


Pattern = Annotated[str, AfterValidator(_check_pattern)]
"""A regular expression, searched without regard to case; `.` matches newlines. Its groups are template variables."""
Template = Annotated[str, AfterValidator(_check_template)]
Tokens = Annotated[int, Field(ge=0, le=10_000_000)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class When(_Section):
    """What a request must be like. A field that is left out matches everything."""

    model: str | None = None
    """Glob over the model's name."""
    tools: tuple[str, ...] = ()
    """Globs; each must match a tool that is offered."""
    forced_tool: str | None = None
    """Glob over the tool that `tool_choice` demands."""
    prompt: Pattern | None = None
    """Searched in the last text of the user."""
    system: Pattern | None = None
    """Searched in the system prompt."""
    tool_result: bool | None = None
    """Whether the last message brings the result of a tool."""
    structured: bool | None = None
    """Whether a JSON Schema for the reply is given."""
    turn: Annotated[int, Field(ge=1)] | None = None
    """Turn of the conversation, from 1."""
    tag: str | None = Field(default=None, pattern=r"^[a-z0-9-]{1,40}$")
    """`[rehearse:TAG]` somewhere in the user's texts."""


class Wordy(_Section):
    """A reply that goes on and on about what was asked."""

    tokens: Annotated[int, Field(gt=0, le=100_000)]


class Say(_Section):
    """One block of a reply: exactly one of text, tool and wordy."""

    text: Template | None = None
    tool: Template | None = None
    """Name of the tool to use; `input` holds its input."""
    input: Annotated[dict[str, Any], AfterValidator(_check_template)] = Field(default_factory=dict)
    """Templates at any depth. A text that is one `{{ expression }}` keeps the value's type."""
    wordy: Wordy | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if sum(value is not None for value in (self.text, self.tool, self.wordy)) != 1:
            raise ValueError("give exactly one of text, tool and wordy")
        if self.input and self.tool is None:
            raise ValueError("input belongs to tool")
        return self


class UsageOverride(_Section):
    """Tokens to be billed instead of those counted."""

    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    cache_write_tokens: Tokens | None = None
    cache_read_tokens: Tokens | None = None


class Fault(_Section):
    """One thing that goes wrong."""

    kind: Literal["status", "stall", "cut", "malformed"]
    """status: an API error. stall: silence. cut: the connection closes. malformed: JSON that ends in the middle."""
    after_characters: Annotated[int, Field(ge=0)] = 0
    """The reply's characters sent before; 0 = before anything, HTTP status included."""
    status: Annotated[int, Field(ge=400, le=599)] = 529
    retry_after_seconds: Annotated[float, Field(ge=0, le=3600)] | None = None
    should_retry: bool | None = None
    """The header `x-should-retry`, by which the API tells its clients whether to try again."""
    seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """How long a stall lasts. Then the reply goes on, if the client is still there."""


class PaceOverride(_Section):
    """A speed of its own, also at `--speed max`."""

    first_token_seconds: Annotated[float, Field(ge=0, le=3600)]
    tokens_per_second: Annotated[float, Field(gt=0)]


class Rule(_Section):
    """Play this when that.

    A rule with neither `say` nor `responder` adds its fault, usage and pace to the reply of the next rule that matches.
    """

    name: Annotated[str, Field(min_length=1, max_length=80)]
    """What the request log calls the rule."""
    when: When = When()
    times: Annotated[int, Field(gt=0)] | None = None
    """How often the rule is played before the next one that matches is."""
    times_per: Literal["server", "conversation"] = "server"
    """Whether `times` counts all requests, or those of one conversation (for a rule with a tag: of one tagged line)."""
    say: tuple[Say, ...] | None = None
    responder: Annotated[str, AfterValidator(_check_responder)] | None = None
    """A named function of sandbox/rehearsal/responders.py that builds the reply."""
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal", "pause_turn"] | None = None
    usage: UsageOverride = UsageOverride()
    fault: Fault | None = None
    pace: PaceOverride | None = None

    @model_validator(mode="after")
    def _check_reply(self) -> Self:
        if self.say is not None and self.responder is not None:
            raise ValueError("give only one of say and responder")
        if self.stop_reason is not None and not self.has_reply:
            raise ValueError("stop_reason belongs to say or responder")
        return self

    @property
    def has_reply(self) -> bool:
        """Whether the rule says something itself."""
        return self.say is not None or self.responder is not None


class Scenario(_Section):
    """A scenario file."""

    rules: tuple[Rule, ...] = Field(min_length=1)
