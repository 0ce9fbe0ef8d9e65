"""How the console shows values and events.

Filters return text, which the templates escape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markupsafe import Markup

from ledger.events import EventKind
from producers.harmless import harmless
from producers.use_cases.jobs import EventView, JobSummary, JobView, tier_name
from routing.jobs import FAILURES, State
from routing.policy.prices import format_usd, nanousd_of
from routing.queues import QUEUES, QueueName

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_UNITS = (("d", _DAY, 2 * _DAY), ("h", _HOUR, _HOUR), ("min", _MINUTE, _MINUTE), ("s", 1, 1))
"""Names of units, their seconds, and the shortest span that is told in each."""
_KIB = 1024
_FINE_BELOW_NANOUSD = nanousd_of("0.10")

TONES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys((State.ANSWERED, State.PUBLISHED, "passed", "done", "complete", "completed"), "good"),
        **dict.fromkeys((State.AWAITING_APPROVAL, State.CLARIFYING, "open", "escalated", "needs_rework"), "ask"),
        **dict.fromkeys((*FAILURES, "lost", "blocked", "refused"), "bad"),
        **dict.fromkeys((State.REJECTED, State.EXPIRED, State.CANCELLED, "planned", "pending", "skipped"), "still"),
        **dict.fromkeys(("closed", "waiting", "deferred", "deferred_kept"), "still"),
    }
)
"""Colours of state badges."""


_MODES = {"ANSWER": "taken as a question", "ACTION": "taken as an order"}


@dataclass(frozen=True)
class Notice:
    """A message from the previous page."""

    text: str
    is_error: bool


def notice(cookie: str) -> Notice | None:
    """Return the message that the previous page left in a cookie."""
    text = unquote(cookie)
    return Notice(text.removeprefix("!"), text.startswith("!")) if text else None


def tone(state: str) -> str:
    """Return the colour of a state's badge; `busy` for a state in progress."""
    return TONES.get(state, "busy")


def words(name: object) -> str:
    """Return a code as words: `awaiting_approval` becomes `awaiting approval`."""
    return str(name).replace("_", " ")


def duration(seconds: float | None) -> str:
    """Return a duration in short form."""
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 10 * _MINUTE and (rest := round(seconds % _MINUTE)) not in (0, _MINUTE):
        return f"{seconds // _MINUTE:.0f} min {rest} s"
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.0f} h" if seconds < 2 * _DAY else f"{seconds / _DAY:.0f} d"


def ago(at: datetime | None) -> str:
    """Return the time since or until a moment."""
    if at is None:
        return "–"
    seconds = (datetime.now(UTC) - at).total_seconds()
    if abs(seconds) < 1:
        return "just now"
    name, size = next((name, size) for name, size, least in _UNITS if abs(seconds) >= least)
    return f"{seconds // size:.0f} {name} ago" if seconds > 0 else f"in {ceil(-seconds / size)} {name}"


def moment(at: datetime | None) -> str:
    """Return a time in UTC to the second."""
    return "–" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def offset(began: datetime, at: datetime) -> str:
    """Return the time since a beginning: `+1.2 s`, `+3 min`."""
    passed = max(timedelta(0), at - began).total_seconds()
    if passed < 60:
        return f"+{passed:.1f} s"
    return f"+{passed / 60:.0f} min" if passed < 5400 else f"+{passed / 3600:.1f} h"


def work(job: JobView | JobSummary) -> str:
    """Return what kind of work a job is: its tier or, where none decides it, in a word."""
    return job.tier or QUEUES[QueueName(job.queue)].job


def name_of(actor: str) -> str:
    """Return the name of a person or key from an actor: `key:acme/ci` is ci."""
    return actor.rpartition("/")[2].rpartition(":")[2] or actor


def size(count: int | None) -> str:
    """Return a number of bytes."""
    if count is None:
        return "–"
    if count < _KIB:
        return f"{count} B"
    amount, unit = (count / _KIB, "KiB") if count < _KIB**2 else (count / _KIB**2, "MiB")
    return f"{amount:.1f}".removesuffix(".0") + f" {unit}"


def short(value: object) -> str:
    """Return as much of an id as tells it from others on a page: of a UUID the end, as it begins with the time."""
    text = str(value)
    return text[-8:] if "-" in text else text[:8]


def excerpt(text: str, length: int = 120) -> str:
    """Return the start of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def plain(value: object) -> str:
    """Return a value of JSON in words, however deep it is."""
    match value:
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return ", ".join(f"{words(name)} {plain(each)}" for name, each in value.items() if each is not None)
        case list() | tuple():
            return ", ".join(map(plain, value))
    return "–" if value is None else str(value)


_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["image", "link", "autolink"])
"""An answer quotes pages that strangers wrote, so nothing in it is a link or loads anything."""


def markdown(text: str) -> Markup:
    """Return a model's text as HTML: emphasis, lists, tables and code; its headings stand below the page's own."""
    tokens = _MARKDOWN.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = "h3"
    return Markup(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))


def usd(amount: float) -> str:
    """Return a limit in USD."""
    return format_usd(nanousd_of(amount), digits=2)


def dollars(text: str) -> str:
    """Return an exact decimal string as an amount."""
    return cents(nanousd_of(text))


def column(text: str) -> str:
    """Return an exact decimal string as an amount with four digits, so that columns align; nothing is a dash."""
    nanousd = nanousd_of(text)
    return format_usd(nanousd, digits=4) if nanousd else "–"


def cents(nanousd: int) -> str:
    """Return an amount in USD, below ten cents with four digits."""
    return format_usd(nanousd, digits=2 if nanousd == 0 or nanousd >= _FINE_BELOW_NANOUSD else 4)


def plural(count: int, name: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {name}" if count == 1 else f"{count:,} {name}s"


def sentence(text: str) -> str:
    """Return a text that begins with a capital, the rest as it is: names and abbreviations keep theirs."""
    return text[:1].upper() + text[1:]


def count(number: int) -> str:
    """Return a number with thousands separators."""
    return f"{number:,}"


def share(part: float, whole: float) -> int:
    """Return a part of a whole in per cent, at most 100."""
    return 0 if whole <= 0 else max(0, min(100, round(100 * part / whole)))


def diff_lines(diff: str | None) -> list[tuple[str, str]]:
    """Return the hunks of one file's unified diff as lines with their kind: `add`, `del`, `hunk` or `same`.

    Every line of a hunk is shown, whatever it begins with or holds: strangers and models wrote it.
    """
    lines = (diff or "").removesuffix("\n").split("\n")
    first = next((at for at, line in enumerate(lines) if line.startswith("@@ ")), len(lines))
    return [(_kind(line), harmless(line.removesuffix("\r"))) for line in lines[first:]]


def _kind(line: str) -> str:
    return {"+": "add", "-": "del", "@": "hunk"}.get(line[:1], "same")


_MAX_EVENT_CHARS = 240


class Line(NamedTuple):
    """One event in words."""

    title: str
    text: str


def event_line(event: EventView) -> Line:
    """Return an event in words."""
    title, tell = _LINES.get(event.kind, (words(event.kind).capitalize(), _anything))
    return Line(title, excerpt(tell(event.data), _MAX_EVENT_CHARS))


def _join(*parts: object) -> str:
    return " · ".join(str(part) for part in parts if part not in (None, "", "None"))


def _cost(data: Mapping[str, Any]) -> str:
    cost = data.get("cost_nanousd")
    return cents(cost) if isinstance(cost, int) and cost else ""


def _seconds(data: Mapping[str, Any], name: str = "seconds") -> str:
    value = data.get(name)
    return f"{value:.1f} s" if isinstance(value, int | float) else ""


def _attempt_ended(data: Mapping[str, Any]) -> str:
    reason = data.get("reason")
    why = "" if reason in ("done", data.get("outcome")) else words(reason or "")
    return _join(f"attempt {data.get('attempt')}: {words(data.get('outcome'))}", why, _seconds(data), _cost(data))


def _started(data: Mapping[str, Any]) -> str:
    waited = _seconds(data, "wait_seconds")
    return _join(f"attempt {data.get('attempt')} on {data.get('queue')}", waited and f"after {waited} in the queue")


def _call(data: Mapping[str, Any]) -> str:
    counts = [(sum(data.get(name) or 0 for name in names), word) for names, word in _TOKENS]
    tokens = ", ".join(f"{count:,} {word}" for count, word in counts if count)
    return _join(data.get("model"), tokens and f"{tokens} tokens", _cost(data))


def what_it_waits_for(data: Mapping[str, Any]) -> str:
    """Return where a job waits, or what it is held for, from its event: what keeps it later has none."""
    if "held_for" not in data:
        return f"on queue {data.get('queue')}"
    why = {"time": "before it goes on", "provider": "for its provider"}
    return _join(f"{duration(data.get('held_seconds'))} {why.get(data['held_for'], '')}", words(data.get("reason", "")))


def _plan(data: Mapping[str, Any]) -> str:
    steps = data.get("steps")
    names = [str(step.get("step")) for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    return ", ".join(names)


def _anything(data: Mapping[str, Any]) -> str:
    return _join(
        *(f"{words(name)} {words(value)}" for name, value in data.items() if isinstance(value, str | int | float))
    )


_TOKENS = ((("input_tokens", "cache_write_tokens", "cache_read_tokens"), "in"), (("output_tokens",), "out"))
"""As the bill counts them."""
_LINES: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = {
    EventKind.ACCEPTED: (
        "Accepted",
        lambda data: _join(f"by {data.get('source')}", _MODES.get(str(data.get("mode"))), f"queue {data.get('queue')}"),
    ),
    EventKind.WAITING: ("Waits", lambda data: what_it_waits_for(data)),
    EventKind.STARTED: ("Started", _started),
    EventKind.ATTEMPT_ENDED: ("Attempt over", _attempt_ended),
    EventKind.STATE: ("State", lambda data: f"{words(data.get('origin'))} → {words(data.get('target'))}"),
    EventKind.ENDED: (
        "Ended",
        lambda data: _join(words(data.get("state")), data.get("detail"), _seconds(data), _cost(data)),
    ),
    EventKind.CALL: ("Model call", _call),
    EventKind.ESCALATED: (
        "Escalated",
        lambda data: _join(
            f"{data.get('origin')} → {data.get('target')}", words(data.get("reason")), data.get("detail")
        ),
    ),
    EventKind.PROGRESS: ("Progress", lambda data: str(data.get("text", ""))),
    EventKind.STEP: ("Step", lambda data: _join(words(data.get("step", "")), _seconds(data))),
    EventKind.RUN_STEP: (
        "Run step",
        lambda data: _join(data.get("step"), words(data.get("status", "")), data.get("detail")),
    ),
    EventKind.GATE: ("Gate", lambda data: _join(words(data.get("state", "")), data.get("reason"))),
    EventKind.PLAN: ("Plan", _plan),
}


FILTERS: Mapping[str, Callable[..., Any]] = {"tier": tier_name} | {
    each.__name__: each
    for each in (
        *(tone, words, duration, ago, moment, size, short, excerpt, dollars, column, diff_lines, share, cents, plural),
        *(count, sentence, usd, event_line, offset, plain, markdown, work, name_of),
    )
}
"""Of the templates, by name."""
