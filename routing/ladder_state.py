"""What the ladder remembers between two messages of one conversation: a value that is stored and passed back in.

The loop guard's memory lives for one cycle: the same input over the same options of the same set. Whatever ends the
cycle ends the memory, so that a new cycle may ask the model again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from routing.options import OptionSet, Source

MAX_REPAIR = 4
"""Unresolved messages of a clarification that are kept."""
_MAX_REPAIR_CHARS = 500


class CycleBoundary(StrEnum):
    """What ends a cycle of the loop guard (seed 004, step 3)."""

    INPUT_CHANGED = "input_changed"
    CANDIDATES_CHANGED = "candidates_changed"
    OPTION_SET_CHANGED = "option_set_changed"
    SELECTION_EXECUTED = "selection_executed"
    CLARIFICATION_CLEARED = "clarification_cleared"
    COMMAND_ESCAPE = "command_escape"
    CHAT_RESET = "chat_reset"


_CLOSING = frozenset({CycleBoundary.SELECTION_EXECUTED, CycleBoundary.CLARIFICATION_CLEARED, CycleBoundary.CHAT_RESET})
"""Boundaries after which no clarification is open."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class CycleMemory(_Value):
    """That the model was asked in this cycle, and the order that was shown after it."""

    key: str
    order: tuple[str, ...]


class LadderState(_Value):
    """The clarification of one conversation."""

    active: OptionSet | None = None
    """The options that a reply chooses from."""
    other: OptionSet | None = None
    """The snapshot of the other source's options, to which a scope cue can lead back."""
    cycle: CycleMemory | None = None
    repair: tuple[str, ...] = Field(default=(), max_length=MAX_REPAIR)
    """Messages that this clarification could not resolve, newest last: context for the model."""


def guard_key(normalized: str, candidate_ids: Iterable[str], *, option_set_id: str, scope: Source | None = None) -> str:
    """Return the loop guard's key: the input, the sorted candidates, the option set, and the scope that was named."""
    return json.dumps([normalized, sorted(candidate_ids), option_set_id, scope])


def end_cycle(state: LadderState, boundary: CycleBoundary) -> LadderState:
    """Forget the cycle, and with a closed clarification its options, snapshot and repair memory too."""
    if boundary in _CLOSING:
        return LadderState()
    return state.model_copy(update={"cycle": None})


def enter_cycle(state: LadderState, key: str) -> LadderState:
    """Keep the memory only while the key is the same: another input, candidate set or option set is a new cycle."""
    if state.cycle is None or state.cycle.key == key:
        return state
    return end_cycle(state, CycleBoundary.INPUT_CHANGED)


def show_options(state: LadderState, options: OptionSet) -> LadderState:
    """Open a clarification with new options; those of the other source stay within reach of a scope cue."""
    other = state.active if state.active is not None and state.active.source != options.source else state.other
    if other is not None and other.source == options.source:
        other = None
    return LadderState(active=options, other=other)


def re_anchor(state: LadderState, options: OptionSet, *, other: OptionSet | None, message: str) -> LadderState:
    """Make these options the active ones, in the order shown, and remember the message that they did not resolve."""
    repair = (*state.repair, message[:_MAX_REPAIR_CHARS])[-MAX_REPAIR:]
    return state.model_copy(update={"active": options, "other": other, "repair": repair})
