"""A structured model call: the question, the one tool the reply must use, and the check of the reply.

Replies are untrusted until validated, and their texts are single lines of bounded length.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError

from routing.errors import CallFailedError
from routing.policy.agents import FINISH_TOOL
from routing.prompt.tokens import canonicalise

MAX_REPLY_CHARACTERS = 4000
"""A longer text makes the whole reply invalid."""
_GAP = " [...] "


@dataclass(frozen=True)
class ConstrainedCall:
    """A question that can only be answered with one tool."""

    system: str
    question: str
    """The user message as JSON, so that a prompt cannot imitate its frame."""
    tool: Mapping[str, Any]
    """Name, description and JSON schema (`input_schema`); the caller forces its use."""


Caller = Callable[[ConstrainedCall], Mapping[str, Any]]
"""Makes a call and returns the tool's input; may raise CallFailedError."""
Redact = Callable[[str], str]
"""Removes secrets from a text."""


class Reply(BaseModel):
    """Base of the models of tool input: strict, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def one_line(text: str) -> str:
    """Return the text on one line, without control and invisible characters."""
    letters = (" " if kind in _BREAKS else "" if kind[0] == "C" else letter for letter, kind in _kinds(text))
    return " ".join("".join(letters).split())


_BREAKS = frozenset({"Cc", "Zl", "Zp"})


def _kinds(text: str) -> list[tuple[str, str]]:
    return [(letter, unicodedata.category(letter)) for letter in text]


def _some_line(text: str) -> str:
    line = one_line(text)
    if not line:
        raise ValueError("must hold text")
    return line


Line = Annotated[str, StringConstraints(max_length=MAX_REPLY_CHARACTERS), AfterValidator(_some_line)]
"""A text that must not be empty."""
OptionalLine = Annotated[str, StringConstraints(max_length=MAX_REPLY_CHARACTERS), AfterValidator(one_line)]
"""A text that may be empty."""

ReplyT = TypeVar("ReplyT", bound=Reply)


def parse_reply(reply: object, shape: type[ReplyT]) -> ReplyT | None:
    """Return the tool's input, or None if it is invalid."""
    try:
        return shape.model_validate(reply)
    except ValidationError:
        return None


def ask(caller: Caller, call: ConstrainedCall, shape: type[ReplyT]) -> ReplyT:
    """Make a call and return its reply.

    Raises:
        CallFailedError: the call failed, or its reply is `invalid`.
    """
    reply = parse_reply(caller(call), shape)
    if reply is None:
        raise CallFailedError("invalid")
    return reply


_CLAUSE_END = re.compile(r"[.;!?](?= )")


def shorten(text: str, limit: int, *, redact: Redact) -> str:
    """Return at most `limit` characters, whole clauses if possible; redacted before, as a cut could hide a secret."""
    line = redact(text)
    if len(line) <= limit:
        return line
    ends = [found.start() for found in _CLAUSE_END.finditer(line[:limit]) if found.start() >= limit // 2]
    return f"{line[: ends[-1]]}." if ends else line[: limit - 3].rstrip() + "..."


def forced_tool(name: str, description: str, shape: type[Reply]) -> dict[str, Any]:
    """Return a tool definition with `shape` as its input."""
    schema = shape.model_json_schema()
    for titled in (schema, *schema["properties"].values()):
        titled.pop("title", None)
    schema.pop("description", None)
    return {"name": name, "description": description, "input_schema": schema}


MAX_QUESTION_CHARACTERS = 300
MAX_SUMMARY_CHARACTERS = 1_000
"""Of what an owner reads of a change, or in its place."""
_LINE_SCHEMA = {"type": "string", "maxLength": MAX_QUESTION_CHARACTERS}
SUMMARY: Mapping[str, Any] = {
    "type": "string",
    "maxLength": MAX_SUMMARY_CHARACTERS,
    "description": "what changed, in one plain sentence; then, if there is any, the answer to what was asked beside "
    "it, what is left, and what the owner should check; empty if nothing changes",
}
"""Property of an edit tool's input: what its owner reads, whole, before approving."""
WAYS_OUT: Mapping[str, Any] = {
    "answer": {
        "type": "string",
        "maxLength": MAX_SUMMARY_CHARACTERS,
        "description": "only if nothing changes, as it is so already, they only asked or no tool can: tell them",
    },
    "cannot": {
        **_LINE_SCHEMA,
        "description": "alone, if all or a part of it takes a stronger tool: which and why, in a sentence to the owner",
    },
    "ask": {
        **_LINE_SCHEMA,
        "description": "one question to the owner: read after the summary of an edit that does what is clear without "
        "the answer, which does not say it too; without an edit, the work waits for it",
    },
}
"""Properties of an edit tool's input with which the model declines what it leaves out of the edit, or all of it."""


_ASKING = (
    "Ask only for what the owner alone can know: a missing fact, what people do not understand, or which of several "
    "things they mean. Taste is no question: a vague wish about looks gets few changes that fit the site, as a preview "
    "follows."
)


_DAYS = (
    "A change goes live when it is approved, never by itself on a day: where one is wished for, make the change and "
    "say so in `summary`. Only what is to appear or vanish by itself once it is live takes a script."
)


def filled(prompt: str) -> str:
    """Return a prompt with the rules that several share: `{asking}`, when an owner is asked, and `{days}`, of dates."""
    return prompt.replace("{asking}", _ASKING).replace("{days}", _DAYS)


def way_out(reply: Mapping[str, Any], name: str) -> str:
    """Return what an edit tool's input says under one of `WAYS_OUT`, in its length; empty if nothing.

    An answer keeps its lines, as a list is one; what else there is stands in a sentence.
    """
    text = reply.get(name)
    if not isinstance(text, str):
        return ""
    lines = filter(None, map(one_line, text.splitlines() if name == "answer" else [text]))
    return "\n".join(lines)[: WAYS_OUT[name]["maxLength"]]


def summary_of(reply: Mapping[str, Any], *, otherwise: str) -> str:
    """Return what the owner reads of an edit, as one line: its `SUMMARY`, and what it declines or asks beside it."""
    text = reply.get("summary")
    said = (one_line(text) if isinstance(text, str) else "")[:MAX_SUMMARY_CHARACTERS] or otherwise
    beside = (way_out(reply, name) for name in ("cannot", "ask"))
    return " ".join([said, *(sentence for sentence in beside if sentence not in said)]).strip()


_TODAY = "Today is {}."
_TODAY_LINE = re.compile(_TODAY.format(r"\w+ \d{4}-\d\d-\d\d"))


def today_line(now: datetime) -> str:
    """Return the line of a prompt that names the day, in UTC."""
    return _TODAY.format(now.astimezone(UTC).strftime("%A %Y-%m-%d"))


LITTLE_TIME = f"\n\n[little time left: end your step with the tool `{FINISH_TOOL}` in time]"
"""What an agent is told once its time is nearly over."""
_LITTLE_TIME_JSON = json.dumps(LITTLE_TIME)[1:-1]


def request_digest(fields: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a request to a model, in hex, without what depends on the clock.

    A job that is tried again, and a replay, ask the same but for the day and for how little time is left; what was paid
    for then answers them.
    """
    text = json.dumps(fields, sort_keys=True).replace(_LITTLE_TIME_JSON, "")
    return hashlib.sha256(_TODAY_LINE.sub("", text).encode()).hexdigest()


def excerpt(text: str, *, limit_bytes: int) -> str:
    """Return the canonical text, cut in the middle to a limit in JSON bytes, which bounds the call's price."""
    shown = canonicalise(text).shown.encode("utf-8", "replace").decode()
    if _json_bytes(shown) <= limit_bytes:
        return shown
    tail = limit_bytes // 4
    return _fitting(shown, limit_bytes - tail - len(_GAP)) + _GAP + _fitting(shown[::-1], tail)[::-1]


def _fitting(text: str, limit_bytes: int) -> str:
    used = 0
    for at, letter in enumerate(text):
        used += _json_bytes(letter)
        if used > limit_bytes:
            return text[:at]
    return text


def _json_bytes(text: str) -> int:
    return len(to_json(text).encode()) - len('""')


def to_json(value: object) -> str:
    """Return JSON without escaping non-ASCII letters."""
    return json.dumps(value, ensure_ascii=False)


@cache
def load_prompt(name: str) -> str:
    """Return the text of `routing/prompts/NAME.md`."""
    return filled((resources.files("routing") / "prompts" / f"{name}.md").read_text(encoding="utf-8").strip())
