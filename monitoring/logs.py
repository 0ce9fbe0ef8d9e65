"""Log JSON lines to stderr, each with its job and without secrets.

A line's `event` is a constant that can be counted; the rest is in fields. Context is bound once per job in a context
variable, so that every line of a pool child, thread or coroutine carries it.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

from routing.redaction import redact

CONTEXT_FIELDS = ("job_id", "task", "tier", "queue", "attempt", "worker", "correlation_id")
"""The fields of `bind`."""
MAX_TEXT = 8_192
"""Characters of one value in a line; a traceback keeps its end."""
_MAX_DEPTH = 4
_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_NO_CONTEXT: Mapping[str, Any] = {}

_context: ContextVar[Mapping[str, Any]] = ContextVar("pointsman_log_context", default=_NO_CONTEXT)


def bind(**fields: Any) -> None:
    """Add fields to every line that this context logs.

    Raises:
        TypeError: our fault: a field is not in `CONTEXT_FIELDS`.
    """
    unknown = fields.keys() - set(CONTEXT_FIELDS)
    if unknown:
        raise TypeError(f"not a context field: {', '.join(sorted(unknown))}")
    _context.set({**_context.get(), **fields})


def clear() -> None:
    """Clear the context when a task ends, so that nothing leaks into the next one."""
    _context.set(_NO_CONTEXT)


class JsonFormatter(logging.Formatter):
    """Formats a record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without its newline."""
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _clean(record.getMessage()),
        }
        extra = {name: value for name, value in vars(record).items() if name not in _RECORD_FIELDS}
        for name, value in {**_context.get(), **extra}.items():
            if value is not None:
                line.setdefault(name, _clean(value))
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = redact(self.formatException(record.exc_info))[-MAX_TEXT:]
        if record.stack_info:
            line["stack"] = _clean(record.stack_info)
        return json.dumps(line)


def _clean(value: Any, *, depth: int = 0) -> Any:
    """Return a value for JSON: secrets redacted, long text cut, unknown types as text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        return {str(name): _clean(item, depth=depth + 1) for name, item in value.items()}
    if depth < _MAX_DEPTH and isinstance(value, list | tuple | set | frozenset):
        return [_clean(item, depth=depth + 1) for item in value]
    # Redacted before it is cut, since half a secret is not recognised.
    redacted = redact(str(value))
    return redacted if len(redacted) <= MAX_TEXT else redacted[:MAX_TEXT] + "..."


_CHATTY = ("alembic", "httpx2", "httpcore2", "aiohttp.access", "celery.worker.strategy", "celery.app.trace")
"""Libraries that log every action; callers log what matters."""


def configure_logging(*, stream: TextIO | None = None, level: str = "INFO") -> None:
    """Send all of this process's logs through the JSON formatter, replacing other handlers.

    The stream is resolved now: Celery later replaces `sys.stderr` with a logger, which would log to itself.
    """
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for chatty in _CHATTY:
        logging.getLogger(chatty).setLevel(logging.WARNING)
