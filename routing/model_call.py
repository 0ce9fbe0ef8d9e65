"""One constrained model call: what is asked, the one tool that the reply must use, and how the reply is taken.

Decisions that a model helps with build such a call and read its reply; who makes it is not their concern. Every reply
is hostile until its shape was checked, and every text in it is one clean line of bounded length.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError

from routing.errors import CallFailedError
from routing.prompt.tokens import canonicalise

MAX_REPLY_CHARACTERS = 4000
"""A text in a reply that is longer than this makes the whole reply invalid."""
_GAP = " [...] "


@dataclass(frozen=True)
class ConstrainedCall:
    """A question that can only be answered by filling in one tool."""

    system: str
    question: str
    """The user's message: JSON, so that nothing in a prompt can pass for a part of the frame."""
    tool: Mapping[str, Any]
    """Its name, description and JSON schema (`input_schema`); the caller forces its use."""


Caller = Callable[[ConstrainedCall], Mapping[str, Any]]
"""Makes a call and returns the tool's input. It may raise CallFailedError."""
Redact = Callable[[str], str]
"""Takes secrets out of a text."""


class Reply(BaseModel):
    """Base of all shapes that a tool's input may have: nothing is converted, nothing unknown is let through."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def one_line(text: str) -> str:
    """Return a text on one line, without control characters and without characters that cannot be seen."""
    kept = (" " if kind in _BREAKS else "" if kind[0] == "C" else letter for letter, kind in _kinds(text))
    return " ".join("".join(kept).split())


_BREAKS = frozenset({"Cc", "Zl", "Zp"})


def _kinds(text: str) -> list[tuple[str, str]]:
    return [(letter, unicodedata.category(letter)) for letter in text]


def _some_line(text: str) -> str:
    line = one_line(text)
    if not line:
        raise ValueError("must hold text")
    return line


Line = Annotated[str, StringConstraints(max_length=MAX_REPLY_CHARACTERS), AfterValidator(_some_line)]
"""A text of a reply that must say something."""
OptionalLine = Annotated[str, StringConstraints(max_length=MAX_REPLY_CHARACTERS), AfterValidator(one_line)]
"""A text of a reply that may be empty."""

ReplyT = TypeVar("ReplyT", bound=Reply)


def parse_reply(reply: object, shape: type[ReplyT]) -> ReplyT | None:
    """Return a tool's input in its shape, or None when it has another."""
    try:
        return shape.model_validate(reply)
    except ValidationError:
        return None


def ask(caller: Caller, call: ConstrainedCall, shape: type[ReplyT]) -> ReplyT:
    """Make a call and return its reply.

    Raises:
        CallFailedError: nobody's fault: the call failed, or its reply does not have the shape (`invalid`).
    """
    reply = parse_reply(caller(call), shape)
    if reply is None:
        raise CallFailedError("invalid")
    return reply


def shorten(text: str, limit: int, *, redact: Redact) -> str:
    """Return a line of at most `limit` characters. It is redacted whole, so that no cut can hide half a secret."""
    line = redact(text)
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."


def forced_tool(name: str, description: str, shape: type[Reply]) -> dict[str, Any]:
    """Return the tool definition whose input has a shape."""
    schema = shape.model_json_schema()
    for titled in (schema, *schema["properties"].values()):
        titled.pop("title", None)
    schema.pop("description", None)
    return {"name": name, "description": description, "input_schema": schema}


def excerpt(text: str, *, limit_bytes: int) -> str:
    """Return the canonical text, or its beginning and its last quarter, in at most so many bytes of JSON.

    The bound is what keeps a call's price known before it is made, whatever the prompt is.
    """
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
    """Return a question's payload as JSON, with the letters of every script as they are."""
    return json.dumps(value, ensure_ascii=False)


@cache
def load_prompt(name: str) -> str:
    """Return a prompt that ships with the product (`routing/prompts/NAME.md`)."""
    return (resources.files("routing") / "prompts" / f"{name}.md").read_text(encoding="utf-8").strip()
