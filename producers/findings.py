"""What the checks of `pointsman doctor` find, and how they run: at once, each within a time limit.

What hangs is a finding, and hides nothing of the rest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from queue import Empty, SimpleQueue
from typing import NamedTuple


class Verdict(StrEnum):
    """The result of a check."""

    OK = "OK"
    WARN = "WARN"
    """It works or is optional, but needs attention."""
    FAIL = "FAIL"
    """Jobs are refused, lost or stuck because of it."""


class Finding(NamedTuple):
    """One thing that was checked."""

    name: str
    verdict: Verdict
    seen: str = ""
    """What was found."""
    hint: str = ""
    """What to do; empty if all is well."""

    @property
    def line(self) -> str:
        """The finding as a line of text."""
        text = ": ".join(part for part in (self.name, self.seen) if part)
        return f"{self.verdict.value:<4}  {text}" + (f"; {self.hint}" if self.hint else "")


def ok(name: str, seen: str = "") -> Finding:
    """Return a finding without a problem."""
    return Finding(name, Verdict.OK, seen)


def warn(name: str, seen: str, hint: str) -> Finding:
    """Return a finding that needs attention."""
    return Finding(name, Verdict.WARN, seen, hint)


def fail(name: str, seen: str, hint: str) -> Finding:
    """Return a finding that breaks something."""
    return Finding(name, Verdict.FAIL, seen, hint)


def worst(findings: Iterable[Finding]) -> Verdict:
    """Return the worst verdict."""
    verdicts = {finding.verdict for finding in findings}
    return next((verdict for verdict in (Verdict.FAIL, Verdict.WARN) if verdict in verdicts), Verdict.OK)


LIMIT_SECONDS = 2.0
"""The time limit of each check."""


class Check(NamedTuple):
    """One part of an installation, looked at by itself."""

    name: str
    run: Callable[[], Iterable[Finding]]
    late: Verdict = Verdict.FAIL
    """The verdict if it does not end within its time limit."""


def examine(checks: Iterable[Check], *, limit_seconds: float = LIMIT_SECONDS) -> Iterator[Finding]:
    """Run all checks at once, and yield their findings in order, as they come; one that is late is a finding itself."""
    running = [(check, _begin(check)) for check in checks]
    deadline = time.monotonic() + limit_seconds
    for check, found in running:
        try:
            while (finding := found.get(timeout=max(0.0, deadline - time.monotonic()))) is not None:
                if isinstance(finding, Exception):
                    raise finding
                yield finding
        except Empty:
            hint = "it hangs or is too slow (see its log), or this machine is too busy to ask"
            yield Finding(check.name, check.late, f"gave no answer within {limit_seconds:g} s", hint)


def _begin(check: Check) -> SimpleQueue[Finding | Exception | None]:
    """Run a check in a thread of its own, which ends with the process if it hangs; None is the end of its findings."""
    found: SimpleQueue[Finding | Exception | None] = SimpleQueue()

    def run() -> None:
        try:
            for finding in check.run():
                found.put(finding)
        except Exception as error:  # noqa: BLE001 - raised again where the findings are read
            found.put(error)
        found.put(None)

    threading.Thread(target=run, name=check.name, daemon=True).start()
    return found
