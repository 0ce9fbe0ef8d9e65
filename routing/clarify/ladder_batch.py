"""Ladder decisions for recorded messages (`pointsman ladder --batch`): offline, with the model's answer on the line.

A line's history passes through the loop guard's own functions, turn by turn, before the message is decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from routing.clarify.ladder import (
    Arbiter,
    ArbiterReply,
    ArbiterRequest,
    CycleBoundary,
    CycleMemory,
    Failure,
    LadderFlags,
    LadderResult,
    LadderState,
    Outcome,
    climb_ladder,
    end_cycle,
    enter_cycle,
    guard_key,
)
from routing.clarify.questions import parse_arbiter_reply
from routing.clarify.replies import AmbiguityReason, OptionSet, Source, canonicalize_command_input
from routing.jobs import Option

_EXECUTED = frozenset({Outcome.DETERMINISTIC_EXECUTE.value, Outcome.AUTO_EXECUTE.value, "execute"})
_CLOSED = frozenset({Outcome.EXIT.value})


def ladder_line(line: Mapping[str, Any]) -> dict[str, Any]:
    """Decide one line of a batch.

    Raises:
        KeyError: the caller's fault; a field is missing.
        ValueError: the caller's fault; a field has a wrong value (pydantic.ValidationError is one).
    """
    result = decide_line(line)
    return {
        "id": line.get("id"),
        "outcome": result.outcome.value,
        "llm_called": result.llm_called,
        "option": result.option.id if result.option is not None else None,
        "order": list(result.order),
        "handled": result.handled,
        "reason": result.reason.value if result.reason is not None else None,
    }


def decide_line(line: Mapping[str, Any], arbiter: Arbiter | None = None) -> LadderResult:
    """Decide one line; `arbiter` takes the place of the answer on the line.

    Raises:
        KeyError: the caller's fault; a field is missing.
        ValueError: the caller's fault; a field has a wrong value.
    """
    flags = line.get("flags") or {}
    switches = LadderFlags(
        llm_enabled=flags.get("llm_enabled") is True, auto_execute_enabled=flags.get("auto_execute_enabled") is True
    )
    recorded = read_reply(line.get("llm"))

    def answer(_: ArbiterRequest) -> ArbiterReply:
        return recorded

    return climb_ladder(
        line["input"],
        read_state(line),
        arbiter=arbiter or answer,
        read_flags=lambda: switches,
        commands=line.get("known_commands") or (),
        known=AmbiguityReason(line["given_reason"]) if line.get("given_reason") else None,
    )


def read_state(line: Mapping[str, Any]) -> LadderState:
    """Read the clarification of a line, its history included.

    Raises:
        KeyError: the caller's fault; a field is missing.
        ValueError: the caller's fault; a field has a wrong value.
    """
    active = _option_set(line, set_id=line["option_set_id"]).in_order(tuple(line.get("displayed_order") or ()))
    state = LadderState(active=active, other=_other_set(line))
    for entry in line.get("history") or ():
        state = _after(state, entry)
    return state


def read_reply(recorded: Mapping[str, Any] | None) -> ArbiterReply:
    """Read a recorded answer of the model.

    Nothing recorded means that the model could not be reached; what cannot be read is an abstention, as in a live call.
    """
    if recorded is None:
        return Failure.UNAVAILABLE
    if recorded.get("result") == "choice":
        return parse_arbiter_reply(recorded)
    return Failure(recorded["result"]) if recorded.get("result") in set(Failure) else Failure.ABSTAIN


def _option_set(fields: Mapping[str, Any], *, set_id: str) -> OptionSet:
    source = Source(fields["source"])
    options = tuple(Option.model_validate({"source": source.value, **option}) for option in fields["options"])
    return OptionSet(id=set_id, source=source, options=options, fresh=fields.get("fresh", True))


def _other_set(line: Mapping[str, Any]) -> OptionSet | None:
    other = line.get("other_source")
    if other is None:
        return None
    return _option_set(other, set_id=other.get("option_set_id") or line["option_set_id"])


def _after(state: LadderState, entry: Mapping[str, Any]) -> LadderState:
    """Return the state after a recorded turn or event. Every event that is recorded between turns ends the cycle."""
    if "input" not in entry:
        return state.model_copy(update={"cycle": None})
    outcome = entry.get("outcome")
    if outcome in _EXECUTED | _CLOSED | {Outcome.ESCAPE.value}:
        return end_cycle(state, CycleBoundary.COMMAND_ESCAPE)
    text = canonicalize_command_input(entry["input"])
    candidates = tuple(entry.get("candidate_ids") or ())
    set_id = entry.get("option_set_id") or ""
    key = guard_key(text.normalized, candidates, option_set_id=set_id, scope=text.scope)
    if entry.get("llm_called"):
        order = tuple(entry.get("order") or candidates)
        return state.model_copy(update={"cycle": CycleMemory(key=key, order=order)})
    return enter_cycle(state, key)
