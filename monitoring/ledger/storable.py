"""What PostgreSQL cannot hold: NUL and lone surrogates. A model or a caller can write both; neither may stop a job."""

from __future__ import annotations

import json
import re
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """Return `text` with what the ledger cannot hold replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def dump_json(value: Any) -> str:
    """Return JSON that `jsonb` takes: the ledger's serializer."""
    text = json.dumps(value)
    if "\\u0000" in text or "\\ud" in text:
        text = json.dumps(_storable_value(value))
    return text


def _storable_value(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(str(name)): _storable_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_storable_value(item) for item in value]
    return value
