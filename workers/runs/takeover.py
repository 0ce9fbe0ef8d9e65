"""What of an agent's files is taken: within its paths, under proper names, free of secrets; all else is dropped.

Nothing that an agent wrote is believed because of where it ran. A reviewer that edits source has edited nothing (S-008,
ruling A17), and every drop is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from routing.path_rules import CONTEXT_DIRECTORY, RESULT_FILE
from sandbox.errors import PathRefusedError, TreeRefusedError
from sandbox.paths import check_path, is_planted
from sandbox.scan.notes import Notes, TooManyFindingsError
from sandbox.scan.secrets import SecretBudget, find_secrets
from sandbox.tree import NameSet
from workers.runs.trees import Snapshot

_KNOWN_KEY = "known-key"
_MAX_REPORTED = 50
_MAX_CHANGES = 5_000


class Dropped(NamedTuple):
    """A file that is not taken."""

    path: str
    reason: str
    """`not_allowed`, `context`, `hidden`, `planted`, `too_many`, `secret`, or the rule of names that it breaks."""


@dataclass(frozen=True)
class Taken:
    """What becomes a step's commit, and what does not."""

    changes: Mapping[str, bytes | None]
    """Contents by checked path; None for a file that is gone."""
    dropped: tuple[Dropped, ...]
    keys: tuple[str, ...] = ()
    """Files in which the value of a key of this installation stood: the step is over, whatever it did (A19)."""

    def report(self) -> tuple[str, ...]:
        """Return the drops as lines, with the number of those that are not named."""
        lines = tuple(f"{ascii(drop.path)[1:-1]}: {drop.reason}" for drop in self.dropped[:_MAX_REPORTED])
        rest = len(self.dropped) - len(lines)
        return (*lines, f"and {rest} more") if rest > 0 else lines


def take_over(
    before: Snapshot, given: Mapping[str, bytes], after: Mapping[str, bytes], *, may_write: Callable[[str], bool],
    known_keys: tuple[str, ...] = (),
) -> Taken:  # fmt: skip
    """Decide what of an agent's files is taken.

    Args:
        before: the commit that the step began with.
        given: what was laid before the agent, staged context included.
        after: the whole workspace as it left it.
        may_write: whether the step may write a path.
        known_keys: values that must be in no file: keys of this installation, and the attempt's own token.
    """
    dropped: list[Dropped] = []
    changes: dict[str, bytes | None] = {}
    for path in sorted(given.keys() | after.keys()):
        data = after.get(path)
        if path == RESULT_FILE or given.get(path) == data:
            continue
        reason = _objection(path, before, may_write) or ("too_many" if len(changes) >= _MAX_CHANGES else None)
        if reason is None:
            changes[path] = data
        else:
            dropped.append(Dropped(path, reason))
    dropped += _drop_collisions(before, changes)
    secrets = _Secrets(known_keys)
    keys = tuple(path for path, data in changes.items() if data is not None and secrets.has_key(path, data))
    for path in [path for path, data in changes.items() if data and secrets.is_new(path, before.files.get(path), data)]:
        del changes[path]
        dropped.append(Dropped(path, "secret"))
    return Taken(changes, tuple(dropped), keys)


def holds_key(path: str, data: bytes, known_keys: tuple[str, ...]) -> bool:
    """Return whether the value of a known key stands in a file, plain or encoded."""
    return _Secrets(known_keys).has_key(path, data)


def _objection(path: str, before: Snapshot, may_write: Callable[[str], bool]) -> str | None:
    try:
        checked = check_path(path)
    except PathRefusedError as error:
        return error.reason
    if checked != path:
        return "unicode_form"
    if path.startswith(CONTEXT_DIRECTORY):
        return "context"
    if is_planted(path):
        return "planted"
    if before.hides(path):
        return "hidden"
    return None if may_write(path) else "not_allowed"


def _drop_collisions(before: Snapshot, changes: dict[str, bytes | None]) -> Iterator[Dropped]:
    """Take out of the changes what could not stand beside the rest of the tree."""
    names = NameSet()
    for path in before.files:
        if path not in changes:
            names.add_file(path)
    for path in [path for path, data in changes.items() if data is not None]:
        try:
            names.add_file(path)
        except TreeRefusedError as error:
            del changes[path]
            yield Dropped(path, error.reason)


class _Secrets:
    """Looks for secrets in changed files, once in each."""

    def __init__(self, known_keys: tuple[str, ...]) -> None:
        self._known_keys = known_keys
        self._budget = SecretBudget()
        self._found: dict[str, set[tuple[str, str]]] = {}

    def has_key(self, path: str, data: bytes) -> bool:
        """Return whether the value of a known key stands in a file."""
        found = self._found[path] = self._look(path, data)
        return any(rule == _KNOWN_KEY for rule, _ in found)

    def is_new(self, path: str, before: bytes | None, data: bytes) -> bool:
        """Return whether a file holds a secret that it did not hold before: what a project has is its owner's."""
        found = self._found[path] if path in self._found else self._look(path, data)
        return bool(found and found - (self._look(path, before) if before else set()))

    def _look(self, path: str, data: bytes) -> set[tuple[str, str]]:
        notes = Notes()
        with suppress(TooManyFindingsError):
            find_secrets(path, data, notes=notes, budget=self._budget, known_keys=self._known_keys)
        return {
            (finding.rule, finding.message) for finding in notes.findings
            if finding.rule == _KNOWN_KEY or finding.rule.startswith("secret-")
        }  # fmt: skip
