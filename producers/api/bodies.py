"""Read a JSON body strictly: what two JSON readers would understand differently is refused."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from producers.errors import BodyTooLargeError, BrokenBodyError
from routing.errors import FieldError, InvalidJobError
from routing.redaction import HIDDEN

MAX_BODY_BYTES = 64 * 1024
"""What a body may hold, counted without JSON's escapes: a prompt of 32 KiB must pass however its sender writes it."""
MAX_RAW_BYTES = 256 * 1024
"""What is read at all."""

ModelT = TypeVar("ModelT", bound=BaseModel)


def body_reader(max_bytes: int, *, told_bytes: int = 0) -> Callable[[Request], Awaitable[bytes]]:
    """Return a dependency that gives the raw body; of one that is too large it reads no more than it takes to see that.

    What it returns raises BodyTooLargeError: the caller's fault.

    Args:
        max_bytes: what is read at most.
        told_bytes: what the caller is told; that is less where escapes do not count.
    """

    async def read(request: Request) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > max_bytes:
                raise BodyTooLargeError(told_bytes or max_bytes)
            parts.append(part)
        return b"".join(parts)

    return read


read_body = body_reader(MAX_RAW_BYTES, told_bytes=MAX_BODY_BYTES)


def parse_json(raw: bytes, *, max_bytes: int = MAX_BODY_BYTES) -> Any:
    """Read JSON text that holds no more than so much, counted without its escapes.

    Raises:
        BrokenBodyError: the caller's fault: no JSON, not UTF-8, a duplicate key, NaN, or nested too deeply.
        BodyTooLargeError: the caller's fault.
    """
    try:
        body = json.loads(raw.decode(), object_pairs_hook=_object_of, parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise BrokenBodyError("must be UTF-8") from None
    except json.JSONDecodeError as error:
        raise BrokenBodyError(f"must be valid JSON; line {error.lineno}, column {error.colno}") from None
    except (ValueError, RecursionError):
        raise BrokenBodyError("must be valid JSON of moderate depth and size") from None
    if len(raw) > max_bytes and _size_of(body) > max_bytes:
        raise BodyTooLargeError(max_bytes)
    return body


def check_text(body: object) -> None:
    """Refuse text that the ledger cannot hold, anywhere in a body.

    Raises:
        InvalidJobError: the caller's fault; names the first field at fault.
    """
    for path, value in _walk(body):
        if isinstance(value, str) and not _is_storable(value):
            raise InvalidJobError((FieldError(path or "body", "must be valid Unicode text without NUL"),))
        if isinstance(value, dict) and not all(map(_is_storable, value)):
            raise InvalidJobError((FieldError(path or "body", "a field's name must be valid Unicode text"),))


def parse_model(model: type[ModelT], raw: bytes) -> ModelT:
    """Read a body as a model; an empty body is an empty object.

    Raises:
        BrokenBodyError: the caller's fault.
        InvalidJobError: the caller's fault; names each field and its rule.
    """
    body = parse_json(raw) if raw.strip() else {}
    check_text(body)
    try:
        return model.model_validate(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise InvalidJobError(tuple(_field_error(item) for item in found)) from None


def with_key(body: Any, key: str) -> Any:
    """Return a body with the idempotency key of the request's header in it.

    Raises:
        InvalidJobError: the caller's fault: the body holds another one.
    """
    if not isinstance(body, dict):
        return body
    if body.get("idempotency_key", key) != key:
        rule = "differs from the header Idempotency-Key; give one of them, or the same in both"
        raise InvalidJobError((FieldError("idempotency_key", rule),))
    return body | {"idempotency_key": key}


def _field_error(item: Any) -> FieldError:
    rule = item["msg"].removeprefix("Value error, ")
    field = HIDDEN.sub("[redacted]", ".".join(map(str, item["loc"])))[:200]
    return FieldError(field or "body", rule[:1].lower() + rule[1:])


def _walk(body: object) -> Iterator[tuple[str, object]]:
    """Yield every value with its dotted path, a container before what it holds."""
    stack: list[tuple[str, object]] = [("", body)]
    while stack:
        path, value = stack.pop()
        yield path, value
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        stack.extend((f"{path}.{name}" if path else str(name), item) for name, item in inner)


def _size_of(body: object) -> int:
    """Return the bytes of all text in a body, and one for every value."""
    size = 0
    for _, value in _walk(body):
        text = value if isinstance(value, str) else "".join(value) if isinstance(value, dict) else ""
        size += len(text.encode("utf-8", "surrogatepass")) + 1
    return size


def _is_storable(text: str) -> bool:
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BrokenBodyError("must not hold a field twice")
    return found


def _refuse_constant(_: str) -> None:
    raise BrokenBodyError("must be valid JSON: NaN and Infinity are no JSON numbers")
