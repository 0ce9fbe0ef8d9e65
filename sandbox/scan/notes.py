"""What one scan gathers on its way through the files."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sandbox.scan.report import GATES, Finding
from sandbox.scan.rules import RULES

_MAX_PER_RULE_AND_FILE = 20
_MAX_TOTAL = 5_000
_SHOWN_CHARS = 80


def show(text: str) -> str:
    """Return a piece of a hostile file that is safe to print: escaped to ASCII and cut."""
    return ascii(text[:_SHOWN_CHARS]) + ("…" if len(text) > _SHOWN_CHARS else "")


class TooManyFindingsError(Exception):
    """A scan found so much that it ends early; only the scan itself sees this."""


@dataclass
class Notes:
    """Findings, sources of JavaScript, and what the header must allow."""

    findings: set[Finding] = field(default_factory=set)
    scripts: dict[str, bytes] = field(default_factory=dict)
    """Distinct pieces of JavaScript by digest: the same code on every page is one piece of code."""
    script_hashes: set[str] = field(default_factory=set)
    style_hashes: set[str] = field(default_factory=set)
    has_style_attributes: bool = False
    has_data_images: bool = False
    has_data_fonts: bool = False
    _directory: str = ""
    _total: int = 0
    _counts: dict[tuple[str, str], int] = field(default_factory=dict)

    @contextmanager
    def below(self, directory: str) -> Iterator[None]:
        """Name files below a directory of the release for a while; empty for none."""
        self._directory = f"{directory}/" if directory else ""
        try:
            yield
        finally:
            self._directory = ""

    def find(self, rule: str, file: str, line: int, *, detail: str = "", message: str = "") -> None:
        """Record that a place breaks a rule.

        Args:
            rule: a key of `RULES`.
            file: the path in the release, or below the directory that was named; empty for the release as a whole.
            line: counted from 1.
            detail: what was found there, as it came; it is escaped and cut.
            message: said instead of the rule's own message.
        """
        file = f"{self._directory}{file}" if file else ""
        count = self._counts[rule, file] = self._counts.get((rule, file), 0) + 1
        self._total += 1
        if self._total > _MAX_TOTAL:
            raise TooManyFindingsError
        if count > _MAX_PER_RULE_AND_FILE:
            return
        gate, text, fix = RULES[rule]
        text = message or text
        self.findings.add(Finding(gate, rule, file, line, f"{text}: {show(detail)}" if detail else text, fix))

    def add_script(self, source: bytes) -> bool:
        """Count a piece of JavaScript; return whether it was new."""
        digest = hashlib.sha256(source).hexdigest()
        is_new = digest not in self.scripts
        self.scripts[digest] = source
        return is_new

    def give_up(self) -> None:
        """Close all gates, because the scan ends before its end."""
        self._total = 0
        for gate in GATES:
            self.find(f"unfinished-{gate}", "", 0)

    def sorted_findings(self) -> tuple[Finding, ...]:
        """Return the findings by gate, file and line."""
        return tuple(
            sorted(self.findings, key=lambda one: (GATES.index(one.gate), one.file, one.line, one.rule, one.message))
        )


def csp_hash(text: str) -> str:
    """Return the hash source of an inline script or style, over the exact text between its tags."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
