"""Messages of Celery clients, decoded: hostile until read, so sizes are bounded before anything is unpacked."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import from_json

from producers.errors import UnreadableMessageError
from routing.errors import FieldError, InvalidJobError

MAX_BODY_BYTES = 4_194_304
"""The limit of a decompressed body."""
_JSON = "application/json"
_ZLIB = "application/x-gzip"  # the name that kombu gives to zlib


class _Headers(BaseModel):
    task: str | None = None
    id: str | None = None
    compression: str | None = None
    eta: str | None = None
    expires: str | None = None
    traceparent: Any = None
    """Of any type: a malformed one must not make the message unreadable."""


class _Properties(BaseModel):
    body_encoding: str | None = None


class _Envelope(BaseModel):
    body: str
    content_type: str = Field(alias="content-type")
    headers: _Headers = _Headers()
    properties: _Properties = _Properties()


@dataclass(frozen=True)
class CeleryMessage:
    """A decoded message."""

    task: str
    id: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    eta: str | None = None
    expires: str | None = None
    traceparent: str | None = None
    """The client's trace context, if it sent one."""

    def job_fields(self) -> dict[str, Any]:
        """Return the requested job's fields.

        An `eta` becomes the job's start time. Positional arguments become a field, which is refused by name.
        """
        fields = dict(self.kwargs)
        if self.args:
            fields["args"] = "positional"
        if self.eta is not None:
            fields.setdefault("start_at", self.eta)
        return fields

    def check_expiry(self, now: datetime) -> None:
        """Refuse a message that has expired.

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
    """Decode a message: kombu's envelope, protocol 1 or 2, JSON only.

    Raises:
        UnreadableMessageError: the sender's fault; the text names the rule and quotes nothing.
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
    return _read_protocol_1(body) if headers.task is None else _read_protocol_2(headers, body)


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


def _read_protocol_2(headers: _Headers, body: Any) -> CeleryMessage:
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


def _read_protocol_1(body: Any) -> CeleryMessage:
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
