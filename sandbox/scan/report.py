"""What a scan says: findings, four gates, and the header that a release is served under."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

Gate = Literal["js_budget", "secrets", "csp", "allowlists"]

GATES: tuple[Gate, ...] = ("js_budget", "secrets", "csp", "allowlists")
"""H's four policy gates, in the order in which findings are listed (H-081)."""


def digest_of_report(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a report's content: without its own verdict and digest."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, order=True)
class Finding:
    """One rule that one place in a release breaks."""

    gate: Gate
    rule: str
    """Stable code of the rule; a key of `sandbox.scan.rules.RULES`."""
    file: str
    """Path in the release; empty when the release as a whole breaks the rule."""
    line: int
    """Counted from 1; 0 when a line makes no sense."""
    message: str
    """What is wrong, with what was found escaped, cut, and masked if it is a secret."""
    fix: str
    """What to do about it."""

    def as_dict(self) -> dict[str, Any]:
        """Return the finding for JSON."""
        return dict(vars(self))


class GateResult(NamedTuple):
    """Whether one gate let the release pass."""

    gate: Gate
    passed: bool


@dataclass(frozen=True)
class ScanReport:
    """The outcome of one scan of one set of bytes under one profile."""

    digest: str
    """Of the manifest of the files: a report speaks for these bytes and for no others (H-114)."""
    profile: str
    """Name of the publish profile."""
    findings: tuple[Finding, ...]
    csp: str
    """The Content-Security-Policy header value under which the release must be served."""
    js_bytes: int
    """Bytes of everything that a browser could run."""
    js_gzip_bytes: int
    """The same, compressed; 0 when there is far too much to be worth the work."""

    @property
    def gates(self) -> tuple[GateResult, ...]:
        """The four gates, always all of them."""
        failed = {finding.gate for finding in self.findings}
        return tuple(GateResult(gate, gate not in failed) for gate in GATES)

    @property
    def passed(self) -> bool:
        """Whether all four gates let the release pass."""
        return not self.findings

    @cached_property
    def report_digest(self) -> str:
        """SHA-256 of the whole report, which an approval is bound to."""
        return digest_of_report(self._content())

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {**self._content(), "passed": self.passed, "report_digest": self.report_digest}

    def _content(self) -> dict[str, Any]:
        return {
            "digest": self.digest,
            "profile": self.profile,
            "csp": self.csp,
            "js_bytes": self.js_bytes,
            "js_gzip_bytes": self.js_gzip_bytes,
            "gates": {result.gate: result.passed for result in self.gates},
            "findings": [finding.as_dict() for finding in self.findings],
        }
