"""Read a Celery message as it stands on a Redis list: hostile, and of whichever protocol version its client speaks."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from producers.errors import ProducerError

_TWO = 2


class BrokenMessageError(ProducerError, ValueError):
    """A message breaks a rule of its form (its sender's fault); it repeats nothing of the message."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(field, rule)
        self.field = field
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.field}: {self.rule}"


@dataclass(frozen=True)
class Envelope:
    """What is taken from a message.

    Whatever else its sender may have put there (routing, callbacks, chains, time limits, dates) is left behind.
    """

    task: str
    task_id: UUID
    kwargs: Mapping[str, Any]


def read_envelope(raw: bytes) -> Envelope:
    """Read a message of Celery's protocol 1 or 2.

    Raises:
        BrokenMessageError: the sender's fault.
    """
    message = _object(_json(raw, "message"), "message")
    properties = _object(message.get("properties", {}), "properties")
    body = _body_of(message.get("body"), properties.get("body_encoding"))
    headers = _object(message.get("headers") or {}, "headers")
    if "task" in headers:
        if not isinstance(body, list) or len(body) < _TWO:
            raise BrokenMessageError("body", "must be a list of args, kwargs and more")
        args, kwargs, found = body[0], body[1], headers
    else:
        found = _object(body, "body")
        args, kwargs = found.get("args"), found.get("kwargs")
    if args:
        raise BrokenMessageError("args", "must be empty: everything is a keyword argument")
    return Envelope(str(found.get("task"))[:200], _id_of(found.get("id")), _object(kwargs or {}, "kwargs"))


def _body_of(body: object, encoding: object) -> Any:
    if isinstance(body, str) and encoding == "base64":
        try:
            return _json(base64.b64decode(body, validate=True), "body")
        except (binascii.Error, ValueError):
            raise BrokenMessageError("body", "must be valid JSON in base64") from None
    return _json(body.encode("utf-8", "surrogatepass"), "body") if isinstance(body, str) else body


def _json(raw: bytes, field: str) -> Any:
    try:
        return json.loads(raw.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise BrokenMessageError(field, "must be valid JSON of moderate depth, in UTF-8") from None


def _refuse(_: str) -> None:
    raise ValueError("NaN and Infinity are no JSON numbers")


def _object(value: object, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BrokenMessageError(field, "must be a JSON object")
    return value


def _id_of(value: object) -> UUID:
    try:
        return UUID(value) if isinstance(value, str) else UUID("")
    except ValueError:
        raise BrokenMessageError("id", "the task id must be a UUID") from None
