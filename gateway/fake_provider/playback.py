"""Plans a whole reply, then plays it: paced, broken where a fault strikes, and stopped when the client leaves.

Each pause precedes its write, and the client is checked after the pause, so that what a client cut off is never counted
as sent.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientConnectionResetError, web

from gateway.fake_provider.config import Finish
from gateway.fake_provider.edits import code_agent, site_edit, site_patch, site_translation
from gateway.fake_provider.request import Request, example_of, plain
from gateway.fake_provider.scenario import Fault, Match, PaceOverride, Say, ScenarioError, render
from gateway.fake_provider.team import run_agent
from gateway.fake_provider.wire import (
    CHARACTERS_PER_TOKEN,
    MALFORMED_EVENT,
    Reply,
    Text,
    ToolUse,
    Written,
    error_event,
    error_of,
    message_body,
    output_tokens,
    stream_steps,
)
from routing.policy.platform import Speed
from routing.policy.prices import Usage

_RESPONDERS: Mapping[str, Callable[[Request], Sequence[Text | ToolUse]]] = {
    "code_agent": code_agent,
    "run_agent": run_agent,
    "site_edit": site_edit,
    "site_patch": site_patch,
    "site_translation": site_translation,
}
_WORDY = (
    "This is the fake provider writing at length, because the scenario asks for a wordy reply. The request reads: "
    "{}. A real model would weigh the request, describe the alternatives and defend its choice at this point. None of "
    "this text carries information; it costs tokens, time and money exactly as real text would.\n\n"
)


def plan_reply(request: Request, match: Match, *, counted: Usage) -> Reply:
    """Return the reply of a matching rule; `counted` is the usage of the request's input.

    Raises:
        ScenarioError: the scenario author's fault: a template or tool of the rule does not fit the request.
    """
    rule = match.rule
    blocks = [*match.recorded, *(_say(say, match.variables) for say in rule.say or ())]
    if not blocks and rule.responder is not None:
        blocks = list(_RESPONDERS[rule.responder](request))
    blocks = _keep_tool_choice(request, blocks)
    for block in blocks:
        if isinstance(block, ToolUse) and request.tool(block.name) is None:
            raise ScenarioError(f"rule {rule.name} uses the tool {block.name}, which the request does not offer")
    full = [Written.of(block) for block in blocks]
    content = _cut(full, request.body.max_tokens * CHARACTERS_PER_TOKEN)
    sent = sum(len(block.characters) for block in content)
    stop_reason = rule.stop_reason
    if sent < sum(len(block.characters) for block in full):
        stop_reason = "max_tokens"
    elif stop_reason is None:
        stop_reason = "tool_use" if any(block.tool for block in content) else "end_turn"
    usage = counted._replace(output_tokens=output_tokens(sent))._replace(**match.usage)
    message_id = f"msg_{uuid.uuid4().hex[:24]}"
    return Reply(message_id, request.body.model, tuple(content), stop_reason, None, usage)


def _say(say: Say, variables: Mapping[str, Any]) -> Text | ToolUse:
    if say.wordy is not None:
        characters = say.wordy.tokens * CHARACTERS_PER_TOKEN
        cycle = _WORDY.format(plain(str(variables["prompt"]))[:200] or "nothing")
        return Text((cycle * (characters // len(cycle) + 1))[:characters])
    if say.tool is not None:
        return ToolUse(str(render(say.tool, variables)), render(say.input, variables))
    return Text(str(render(say.text, variables)))


def _keep_tool_choice(request: Request, blocks: list[Text | ToolUse]) -> list[Text | ToolUse]:
    """Obey `tool_choice`, whatever the rule says."""
    if request.body.tool_choice.type == "none":
        return [block for block in blocks if isinstance(block, Text)]
    forced = request.forced_tool
    if forced is None:
        return blocks
    wanted = {forced.name} if request.body.tool_choice.type == "tool" else set(request.tool_names)
    used = [block for block in blocks if isinstance(block, ToolUse) and block.name in wanted]
    made = example_of(forced.input_schema, about=request.prompt)
    return [*used] or [ToolUse(forced.name, made if isinstance(made, dict) else {})]


def _cut(content: list[Written], characters: int) -> list[Written]:
    shortened, left = [], characters
    for block in content:
        if left > 0:
            shortened.append(Written(block.characters[:left], block.tool, block.tool_use_id))
        left -= len(block.characters)
    return shortened


@dataclass
class Progress:
    """How far a reply came; the request log is written from it, however the call ends."""

    characters: int = 0
    """Characters sent."""
    has_begun: bool = False
    """Whether the first event, or the whole unstreamed message, was sent."""
    status: int | None = None
    finish: Finish = "completed"
    is_stalled: bool = False


class ClientGoneError(ConnectionError):
    """The client closed its connection before the reply ended."""


def _injected(fault: Fault, request_id: str) -> dict[str, Any]:
    return error_of(fault.status, f"Error {fault.status} (fake provider)", request_id)


def status_response(fault: Fault, request_id: str) -> web.Response:
    """Return the HTTP error of an injected fault."""
    headers = {"request-id": request_id}
    if fault.retry_after_seconds is not None:
        headers["retry-after"] = f"{fault.retry_after_seconds:g}"
    return web.json_response(_injected(fault, request_id), status=fault.status, headers=headers)


@dataclass
class Playback:
    """Sends one reply to one client, streamed or whole."""

    http: web.Request
    reply: Reply
    request_id: str
    progress: Progress
    pace: PaceOverride | Speed | None
    """None for no pauses."""
    fault: Fault | None
    is_streamed: bool
    _stream: web.StreamResponse = field(init=False)
    _started: float = 0.0

    def __post_init__(self) -> None:
        headers = {"cache-control": "no-cache", "request-id": self.request_id}
        self._stream = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8", **headers})

    async def play(self) -> web.StreamResponse:
        """Send the reply up to its end or its fault.

        Raises:
            ClientGoneError: the client left; `progress` says how much was sent.
        """
        self._started = asyncio.get_running_loop().time()
        pending = self.fault
        for step in stream_steps(self.reply, boundary=pending.after_characters if pending else None):
            await self._pause(step.characters)
            if pending and (self.progress.characters >= pending.after_characters or step.is_last):
                if pending.kind != "stall":
                    return await self._break(pending)
                await self._stall(pending.seconds)
                pending = None
            try:
                await self._write(step.data)
            except ClientConnectionResetError:
                raise ClientGoneError from None
            self.progress.has_begun = True
            self.progress.characters += step.characters
        return await self._end()

    async def _write(self, data: bytes) -> None:
        if not self.is_streamed:
            return
        if not self._stream.prepared:
            await self._stream.prepare(self.http)
            self.progress.status = 200
        await self._stream.write(data)

    async def _end(self) -> web.StreamResponse:
        if self.is_streamed:
            await self._stream.write_eof()
            return self._stream
        self.progress.status = 200
        return web.json_response(message_body(self.reply), headers={"request-id": self.request_id})

    async def _pause(self, characters: int) -> None:
        """Wait until `characters` more are due, and check that the client is still there."""
        if self.pace is not None:
            written = (self.progress.characters + characters) / CHARACTERS_PER_TOKEN
            due = self._started + self.pace.first_token_seconds + written / self.pace.tokens_per_second
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        elif characters:
            await asyncio.sleep(0)
        self._look()

    def _look(self) -> None:
        if self.http.transport is None or self.http.transport.is_closing():
            raise ClientGoneError

    async def _stall(self, seconds: float) -> None:
        self.progress.is_stalled = True
        await asyncio.sleep(seconds)
        self._look()
        self.progress.is_stalled = False
        self._started += seconds

    async def _break(self, fault: Fault) -> web.StreamResponse:
        """Close the connection, or end the reply with an error or with truncated JSON."""
        if fault.kind == "cut":
            self.progress.finish = "server_cut"
            if self.http.transport is not None:
                self.http.transport.close()
            raise ConnectionAbortedError
        self.progress.finish = "fault"
        if self.is_streamed:
            error = error_event(_injected(fault, self.request_id))
            await self._write(MALFORMED_EVENT if fault.kind == "malformed" else error)
        elif fault.kind == "status":
            self.progress.has_begun = False
            self.progress.status = fault.status
            return status_response(fault, self.request_id)
        response = await self._end()
        if isinstance(response, web.Response):
            response.text = (response.text or "")[: len(response.text or "") // 2]
        return response
