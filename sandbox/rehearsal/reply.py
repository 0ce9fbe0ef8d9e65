"""From a matched rule to the exact reply: what is written, where `max_tokens` stops it, and what it bills.

A reply is planned whole before its first byte is sent; the server only paces it, breaks it and counts what went out.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_core import from_json

from routing.prices import Usage
from sandbox.rehearsal.blocks import Block, Text, ToolUse
from sandbox.rehearsal.casting import Part
from sandbox.rehearsal.errors import ScenarioError
from sandbox.rehearsal.example import example_of
from sandbox.rehearsal.request import Request
from sandbox.rehearsal.responders import RESPONDERS
from sandbox.rehearsal.scenario import Say
from sandbox.rehearsal.templates import render_text, render_value
from sandbox.rehearsal.tokens import CHARACTERS_PER_TOKEN, output_tokens
from sandbox.rehearsal.words import wordy


@dataclass(frozen=True)
class Written:
    """One block as it is written: its characters are what a stream sends and what output tokens are counted from."""

    kind: Literal["text", "tool_use"]
    characters: str
    """The text, or the JSON of the tool's input; cut short where the reply was stopped."""
    tool: str = ""
    tool_use_id: str = ""

    def as_block(self) -> dict[str, Any]:
        """Return the block of a reply that is not streamed."""
        if self.kind == "text":
            return {"type": "text", "text": self.characters}
        return {"type": "tool_use", "id": self.tool_use_id, "name": self.tool, "input": self._input()}

    def _input(self) -> Any:
        return from_json(self.characters, allow_partial=True) if self.characters else {}


@dataclass(frozen=True)
class Reply:
    """A whole reply."""

    message_id: str
    model: str
    content: tuple[Written, ...]
    stop_reason: str
    stop_sequence: str | None
    usage: Usage
    """What the reply bills when it is sent to its end."""

    @property
    def characters(self) -> int:
        """How many characters the whole reply has."""
        return sum(len(block.characters) for block in self.content)

    def usage_after(self, characters: int) -> Usage:
        """Return what is billed when only the first `characters` were sent."""
        if characters >= self.characters:
            return self.usage
        return self.usage._replace(output_tokens=min(output_tokens(characters), self.usage.output_tokens))


def plan_reply(request: Request, part: Part, *, counted: Usage) -> Reply:
    """Write the reply that a rule gives to a request.

    Args:
        request: the request.
        part: the rule and what its match knows.
        counted: the request's input as counted.

    Raises:
        ScenarioError: the scenario author's fault: a template or tool of the rule does not work here.
    """
    blocks = _keep_tool_choice(request, _blocks(request, part))
    blocks, stop_sequence = _stop_at_sequence(blocks, request.body.stop_sequences)
    full = [_write(block) for block in blocks]
    content = _cut(full, request.body.max_tokens * CHARACTERS_PER_TOKEN)
    sent = sum(len(block.characters) for block in content)
    if sent < sum(len(block.characters) for block in full):
        stop_reason, stop_sequence = "max_tokens", None
    else:
        stop_reason = part.rule.stop_reason or _stop_reason(content, stop_sequence)
    usage = counted._replace(output_tokens=output_tokens(sent))._replace(**part.usage)
    return Reply(f"msg_{uuid.uuid4().hex[:24]}", request.model, tuple(content), stop_reason, stop_sequence, usage)


def _blocks(request: Request, part: Part) -> list[Block]:
    rule = part.rule
    if rule.responder is not None:
        blocks = list(RESPONDERS[rule.responder](request))
    else:
        blocks = [_say(say, part.variables) for say in rule.say or ()]
    for block in blocks:
        if isinstance(block, ToolUse) and request.tool(block.name) is None:
            raise ScenarioError(f"rule {rule.name} uses the tool {block.name}, which the request does not offer")
    return blocks


def _say(say: Say, variables: dict[str, Any]) -> Block:
    if say.wordy is not None:
        return Text(wordy(str(variables["prompt"]), say.wordy.tokens * CHARACTERS_PER_TOKEN))
    if say.tool is not None:
        return ToolUse(render_text(say.tool, variables), render_value(say.input, variables))
    return Text(render_text(say.text or "", variables))


def _keep_tool_choice(request: Request, blocks: list[Block]) -> list[Block]:
    """Do what `tool_choice` demands, whatever the rule says."""
    if request.body.tool_choice.type == "none":
        return [block for block in blocks if isinstance(block, Text)]
    forced = request.forced_tool
    if forced is None:
        return blocks
    wanted = {forced.name} if request.body.tool_choice.type == "tool" else set(request.tool_names)
    used = [block for block in blocks if isinstance(block, ToolUse) and block.name in wanted]
    made = example_of(forced.input_schema, about=request.prompt)
    return [*used] if used else [ToolUse(forced.name, made if isinstance(made, dict) else {})]


def _stop_at_sequence(blocks: list[Block], sequences: Iterable[str]) -> tuple[list[Block], str | None]:
    kept: list[Block] = []
    for block in blocks:
        if isinstance(block, Text):
            found = [(block.text.find(sequence), sequence) for sequence in sequences if sequence]
            hits = [(place, sequence) for place, sequence in found if place >= 0]
            if hits:
                place, sequence = min(hits)
                return [*kept, Text(block.text[:place])], sequence
        kept.append(block)
    return kept, None


def _write(block: Block) -> Written:
    if isinstance(block, Text):
        return Written("text", block.text)
    return Written(
        "tool_use", json.dumps(block.input, ensure_ascii=False), block.name, f"toolu_{uuid.uuid4().hex[:24]}"
    )


def _cut(content: list[Written], characters: int) -> list[Written]:
    kept, left = [], characters
    for block in content:
        if left <= 0:
            break
        kept.append(Written(block.kind, block.characters[:left], block.tool, block.tool_use_id))
        left -= len(block.characters)
    return kept


def _stop_reason(content: list[Written], stop_sequence: str | None) -> str:
    if stop_sequence is not None:
        return "stop_sequence"
    return "tool_use" if any(block.kind == "tool_use" for block in content) else "end_turn"
