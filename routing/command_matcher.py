"""What a message that the ladder let go is next: a registered command, or a new request for the router.

Commands are compared in the ladder's canonical form. No model is consulted here.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from routing.command_input import CommandInput, canonicalize_command_input, canonicalize_label, is_selecting
from routing.option_match import CommandMatch


class DownstreamTier(StrEnum):
    """Who handles a message that the ladder did not."""

    COMMAND = "command"
    ROUTER = "router"


class Dispatch(NamedTuple):
    """Where a message that the ladder did not handle goes."""

    handled_by_tier: DownstreamTier
    command: str | None = None


def match_command(text: CommandInput, commands: Iterable[str]) -> CommandMatch:
    """Compare a message with the registered commands; two that read the same are none."""
    known = {command: words for command in commands if (words := canonicalize_label(command))}
    exact = [command for command, words in known.items() if words == text.command]
    begins = any(
        text.command[: len(words)] == words or (text.command[:1] == words[:1] and not is_selecting(words[0]))
        for words in known.values()
    )
    return CommandMatch(exact[0] if len(exact) == 1 else None, begins)


def dispatch(message: str, commands: Iterable[str]) -> Dispatch:
    """Resolve a message that escaped from the ladder, or that met no open clarification."""
    command = match_command(canonicalize_command_input(message), commands).exact
    return Dispatch(DownstreamTier.ROUTER) if command is None else Dispatch(DownstreamTier.COMMAND, command)
