"""What a run does next: one pure function from the facts of a run to the one next move."""

from __future__ import annotations

from workers.runs.actions import Decision
from workers.runs.view import Rulebook, RunView


def next_actions(view: RunView, book: Rulebook) -> Decision:
    """Return the next move of a run; the same facts always give the same move."""
    raise NotImplementedError
