"""Reads what a Celery client of any language put on a list: kombu's envelope, protocol 1 or 2, JSON and nothing else.

Everything in it is hostile: sizes are bounded before anything is unpacked, and only the JSON parser sees it.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from producers.errors import UnreadableMessageError
from routing.errors import FieldError, InvalidJobError

MAX_BODY_BYTES = 4_194_304
"""What a compressed body may unpack to."""
_JSON = "application/json"
_ZLIB = "application/x-gzip"  # the name that kombu gives to zlib


class _Headers(BaseModel):
    model_config = ConfigDict(extra="ignore")

    task: str | None = None
    id: str | None = None
    compression: str | None = None
    eta: str | None = None
    expires: str | None = None
    traceparent: Any = None
    """What it is does not decide whether the message can be read."""


class _Properties(BaseModel):
    model_config = ConfigDict(extra="ignore")

    body_encoding: str | None = None


class _Envelope(BaseModel):
    model_config = ConfigDict(extra="ignore")

    body: str
    content_type: str = Field(alias="content-type")
    headers: _Headers = _Headers()
    properties: _Properties = _Properties()


@dataclass(frozen=True)
class CeleryMessage:
    """What a client asks for."""

    task: str
    id: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    eta: str | None = None
    expires: str | None = None
    traceparent: str | None = None
    """In which trace its client sent it, as that says; None where it says nothing."""

    def job_fields(self) -> dict[str, Any]:
        """Return the fields of the job that is asked for.

        A message that was to be delivered later makes a job that starts later: no process keeps it until then. What
        cannot be kept to stands among the fields, where it is refused by name.
        """
        fields = dict(self.kwargs)
        if self.args:
            fields["args"] = "positional"
        if self.eta is not None:
            fields.setdefault("start_at", self.eta)
        return fields

    def check_expiry(self, now: datetime) -> None:
        """Refuse a message that its client wants no more.

        Raises:
            InvalidJobError: the caller's wish.
        """
        try:
            until = datetime.fromisoformat(self.expires) if self.expires is not None else None
        except ValueError:
            raise InvalidJobError((FieldError("expires", "must be a date and time of ISO 8601"),)) from None
        if until is not None and now > (until if until.tzinfo else until.replace(tzinfo=UTC)):
            raise InvalidJobError((FieldError("expires", "has passed before the message was taken in"),))


def read_message(raw: bytes) -> CeleryMessage:
    """Read a message as it stands on a list.

    Raises:
        UnreadableMessageError: the sender's fault; the text names the rule and repeats nothing.
    """
    try:
        envelope = _Envelope.model_validate_json(raw)
    except ValidationError:
        raise UnreadableMessageError("it is no message of Celery") from None
    if envelope.content_type != _JSON:
        raise UnreadableMessageError("its content type is not application/json")
    try:
        body = from_json(_unpack(envelope))
    except ValueError:
        raise UnreadableMessageError("its body cannot be read as JSON") from None
    headers = envelope.headers
    if headers.task is not None:
        return _second_protocol(headers, body)
    return _first_protocol(body)


def _unpack(envelope: _Envelope) -> bytes:
    data = envelope.body.encode()
    if envelope.properties.body_encoding == "base64":
        try:
            data = base64.b64decode(data, validate=True)
        except binascii.Error:
            raise UnreadableMessageError("its body is no base64") from None
    if envelope.headers.compression is None:
        return data
    if envelope.headers.compression != _ZLIB:
        raise UnreadableMessageError("its compression is not known here; gzip is")
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(data, MAX_BODY_BYTES)
    except zlib.error:
        raise UnreadableMessageError("its body cannot be unpacked") from None
    if unpacker.unconsumed_tail:
        raise UnreadableMessageError(f"its body unpacks to more than {MAX_BODY_BYTES} bytes")
    return unpacked


def _second_protocol(headers: _Headers, body: Any) -> CeleryMessage:
    match body:
        case [list(args), dict(kwargs), *_]:
            return CeleryMessage(
                headers.task or "",
                headers.id or "",
                tuple(args),
                kwargs,
                headers.eta,
                headers.expires,
                headers.traceparent if isinstance(headers.traceparent, str) else None,
            )
    raise UnreadableMessageError("its body is not [args, kwargs, ...]")


def _first_protocol(body: Any) -> CeleryMessage:
    match body:
        case {"task": str(task), "id": str(task_id), "args": list(args), "kwargs": dict(kwargs), **rest}:
            eta, expires = (rest.get(name) for name in ("eta", "expires"))
            return CeleryMessage(
                task,
                task_id,
                tuple(args),
                kwargs,
                eta if isinstance(eta, str) else None,
                expires if isinstance(expires, str) else None,
            )
    raise UnreadableMessageError("it names no task")
