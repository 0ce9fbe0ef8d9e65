"""A conversation that plays messages through the ladder and records what is asked and executed; and option lists."""

from __future__ import annotations

from collections.abc import Sequence

from routing.clarify.ladder import (
    ArbiterReply,
    ArbiterRequest,
    Choice,
    Failure,
    LadderFlags,
    LadderResult,
    LadderState,
    climb_ladder,
)
from routing.clarify.replies import AmbiguityReason, Dispatch, OptionSet, Source, dispatch
from routing.jobs import Option

COMMANDS = ("open recent", "close panel", "show dashboard")


def options_of(*labels: str, source: Source = Source.CHAT, set_id: str = "set-1", prefix: str = "a") -> OptionSet:
    options = tuple(
        Option(id=f"{prefix}{number}", label=label, source=source.value) for number, label in enumerate(labels, start=1)
    )
    return OptionSet(id=set_id, source=source, options=options)


LINKS = options_of("Links Panels", "Links Panel D", "Links Panel E")
INVOICES = options_of("Invoice March", "Invoice May", "Invoice March Draft", prefix="b")
RECENT = options_of("Recent", "Recently Deleted", "Shared with me", prefix="c")
WIDGET = options_of("Weather", "Links Panel D", "Calendar", source=Source.WIDGET, set_id="set-w", prefix="w")
A2_FIRST = ("a2", "a1", "a3")


class Conversation:
    """Says messages one after the other; what the model was asked and what was executed is on record."""

    def __init__(
        self,
        options: OptionSet | None = LINKS,
        *,
        other: OptionSet | None = None,
        reply: ArbiterReply = Failure.ABSTAIN,
        llm: bool = True,
        auto: bool = False,
        commands: Sequence[str] = COMMANDS,
    ) -> None:
        self.state = LadderState(active=options, other=other)
        self.reply = reply
        self.flags = LadderFlags(llm_enabled=llm, auto_execute_enabled=auto)
        self.commands = commands
        self.asked: list[ArbiterRequest] = []
        self.executed: list[str] = []
        self.dispatched: list[Dispatch] = []

    def _arbiter(self, request: ArbiterRequest) -> ArbiterReply:
        self.asked.append(request)
        return self.reply

    def say(self, message: str, *, known: AmbiguityReason | None = None) -> LadderResult:
        result = climb_ladder(
            message,
            self.state,
            arbiter=self._arbiter,
            read_flags=lambda: self.flags,
            commands=self.commands,
            known=known,
        )
        self.state = result.state
        if result.option is not None:
            self.executed.append(result.option.id)
        if not result.handled:
            self.dispatched.append(dispatch(message, self.commands))
        return result

    @property
    def pools(self) -> list[set[str]]:
        return [{option.id for option in request.candidates} for request in self.asked]


def sure(option_id: str, confidence: float = 0.95) -> Choice:
    return Choice(option_id, confidence)


def event_names(result: LadderResult) -> list[str]:
    return [event.name.value for event in result.events]


UNSURE = (sure("a2", 0.39), sure("a2", 0.25))
"""Answers below the floor: `low_confidence`, whatever they choose."""
