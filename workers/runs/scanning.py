"""Scan what a run changed, without a model, before anything of it leaves: keys and tokens, plain or encoded (S-080)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from sandbox.scan.notes import Notes, TooManyFindingsError
from sandbox.scan.secrets import SecretBudget, find_secrets

MAX_SHOWN = 5


class ScanResult(NamedTuple):
    """What the scan came to."""

    verdict: Literal["passed", "refused"]
    detail: str
    """The first findings, which never hold what was found."""


def scan_changes(changes: Mapping[str, bytes | None], *, known_keys: tuple[str, ...]) -> ScanResult:
    """Look for secrets in every file that a run changed.

    Args:
        changes: contents by path; None for a file that is gone.
        known_keys: values of this installation's keys.
    """
    notes, budget = Notes(), SecretBudget()
    try:
        for path, data in sorted(changes.items()):
            if data is not None:
                find_secrets(path, data, notes=notes, budget=budget, known_keys=known_keys)
    except TooManyFindingsError:
        notes.give_up()
    found = notes.sorted_findings()
    if not found:
        return ScanResult("passed", "")
    shown = "; ".join(f"{one.file or 'the whole'}, line {one.line}: {one.message}" for one in found[:MAX_SHOWN])
    return ScanResult("refused", f"{len(found)} findings: {shown}")
