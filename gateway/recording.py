"""Records a call for its tenant: the request and the whole reply, redacted."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from pydantic_core import from_json

from gateway.ledger_client import Ledger, LedgerUnreachableError
from gateway.messages import ReplyReader
from gateway.providers.provider import EventSplitter, data_of
from ledger.operations.recordings import record_call
from routing.redaction import redact_all

logger = logging.getLogger(__name__)

_MALFORMED = (ValueError, TypeError, LookupError, AttributeError)
"""What a reply raises that is not of the API."""


def read_message(sent: bytes, *, is_streamed: bool) -> dict[str, Any] | None:
    """Return the message that a caller was sent; None if it is not whole."""
    try:
        if not is_streamed:
            message = from_json(sent)
            return message if isinstance(message, dict) else None
        reader = ReplyReader()
        for part in EventSplitter().feed(sent):
            if isinstance(event := from_json(data_of(part) or b"null"), dict):
                reader.read(event)
        return reader.message()
    except _MALFORMED:
        return None


async def record(
    ledger: Ledger, call_id: UUID, job_id: UUID, *, request: Mapping[str, Any], sent: bytes, is_streamed: bool
) -> None:
    """Keep a call that was served whole. One that cannot be kept is logged: its caller gets the reply all the same."""
    message = read_message(sent, is_streamed=is_streamed)
    if message is None:
        return
    texts = {name: json.dumps(redact_all(value)) for name, value in (("request", request), ("reply", message))}
    try:
        await ledger.run(record_call(call_id, job_id, **texts))
    except LedgerUnreachableError:
        logger.warning("call_not_recorded", extra={"call_id": str(call_id)})
