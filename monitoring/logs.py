"""Log as JSON lines on stderr, each with the job it belongs to, none with a secret.

A line's `event` is a constant that can be counted; what varies stands in fields. Context is bound once per job and
lives in a context variable, so that every line of a pool child, a thread or a coroutine carries it.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

from routing.config import redact

CONTEXT_FIELDS = ("job_id", "task", "tier", "queue", "attempt", "worker", "correlation_id")
"""What `bind` takes."""
MAX_TEXT = 8_192
"""Characters that a line keeps of one value; tracebacks keep their end."""
_MAX_DEPTH = 4
_RECORD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_NO_CONTEXT: Mapping[str, Any] = {}

_context: ContextVar[Mapping[str, Any]] = ContextVar("pointsman_log_context", default=_NO_CONTEXT)


def bind(**fields: Any) -> None:
    """Add fields to every line that this context logs from now on.

    Raises:
        TypeError: our fault: a field is not one of `CONTEXT_FIELDS`.
    """
    unknown = fields.keys() - set(CONTEXT_FIELDS)
    if unknown:
        raise TypeError(f"not a context field: {', '.join(sorted(unknown))}")
    _context.set({**_context.get(), **fields})


def clear() -> None:
    """Forget the context: to be called when a task ends, so that nothing leaks into the next one."""
    _context.set(_NO_CONTEXT)


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
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
    """Return a value as JSON can hold it: secrets redacted, long text cut, unknown types as text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if depth < _MAX_DEPTH and isinstance(value, Mapping):
        return {str(name): _clean(item, depth=depth + 1) for name, item in value.items()}
    if depth < _MAX_DEPTH and isinstance(value, list | tuple | set | frozenset):
        return [_clean(item, depth=depth + 1) for item in value]
    # Redacted before it is cut: half a secret could not be recognised.
    redacted = redact(str(value))
    return redacted if len(redacted) <= MAX_TEXT else redacted[:MAX_TEXT] + "..."


_CHATTY = (
    "alembic",
    "httpx2",
    "httpcore2",
    "aiohttp.access",
    "celery.worker.strategy",
    "celery.app.trace",
)
"""Libraries that log a line for each thing they do; what matters of it is logged by their callers."""


def configure_logging(*, stream: TextIO | None = None, level: str = "INFO") -> None:
    """Send every logger of this process through the JSON formatter, in place of whatever was there.

    The stream is taken now: Celery later replaces `sys.stderr` by a logger, which would log itself for ever.

    Args:
        stream: where lines go; the process's stderr when not given.
        level: the least level that is written.
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
