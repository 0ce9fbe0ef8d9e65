"""One call: what is sent, whether it may be sent again, and what its answer means."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar, cast
from uuid import uuid4

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json

from pointsman_client.errors import UnexpectedAnswerError

T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """A request."""

    method: str
    path: str
    query: dict[str, Any] = field(default_factory=dict)
    content: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    has_key: bool = False

    @property
    def is_repeatable(self) -> bool:
        """Whether sending it twice does no more than sending it once."""
        return self.method == "GET" or self.has_key

    @classmethod
    def of(
        cls,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None,
        body: Mapping[str, Any] | None,
        file: bytes | None = None,
        key: str | None = None,
        takes_key: bool,
    ) -> Call:
        """Return the call of an operation; what is None is left out. With a file, the key goes into a header."""
        given = _given(body or {})
        if "jobs" in given:
            given["jobs"] = [_keyed(_fields_of(job)) for job in given["jobs"]]
        elif takes_key:
            given = _keyed(given)
        asked = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        if file is not None:
            keyed = {"Content-Type": "application/octet-stream", "Idempotency-Key": key or _new_key()}
            return cls(method, path, asked, file, keyed, has_key=True)
        content = None if body is None else to_json(given, exclude_none=True)
        headers = {} if body is None else {"Content-Type": "application/json"}
        return cls(method, path, asked, content, headers, has_key=takes_key)


def read_answer(kind: type[T], content: bytes | str) -> T:
    """Return an answer's body as an object.

    Raises:
        UnexpectedAnswerError: the body is none of this kind.
    """
    if kind is bytes:
        return cast(T, content)
    try:
        return TypeAdapter(kind).validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise UnexpectedAnswerError("the answer is no JSON: is this the address of Pointsman's API?") from None
        place = ".".join(map(str, first["loc"])) or "the answer"
        raise UnexpectedAnswerError(
            f"the server's answer does not fit this client ({place}: {first['msg']}): their versions differ"
        ) from None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that an answer asks to wait."""
    given = headers.get("Retry-After", "")
    return float(given) if given.isdecimal() else None


def _fields_of(job: BaseModel | dict[str, Any]) -> dict[str, Any]:
    return _given(job if isinstance(job, dict) else job.model_dump())


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _keyed(body: dict[str, Any]) -> dict[str, Any]:
    return {"idempotency_key": _new_key(), **body}


def _new_key() -> str:
    """Return a key of its own. It begins with the time: keys in order cost the server's index less."""
    return f"{time.time_ns() // 1_000_000:012x}-{uuid4()}"


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [_text(item) for item in value]
    return value if isinstance(value, bool) else str(value)
