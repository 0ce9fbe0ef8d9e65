"""What a message that the ladder let go is next: a registered command, or a new request for the router.

Commands are compared in the ladder's canonical form. No model is consulted here.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from routing.command_input import CommandInput, canonicalize_command_input, canonicalize_label


class DownstreamTier(StrEnum):
    """Who handles a message that the ladder did not."""

    COMMAND = "command"
    ROUTER = "router"


class Dispatch(NamedTuple):
    """Where a message that the ladder did not handle goes."""

    handled_by_tier: DownstreamTier
    command: str | None = None


def match_command(text: CommandInput, commands: Iterable[str]) -> str | None:
    """Return the one registered command that the message is exactly, or None."""
    found = {command for command in commands if text.command and canonicalize_label(command) == text.command}
    return found.pop() if len(found) == 1 else None


def dispatch(message: str, commands: Iterable[str]) -> Dispatch:
    """Resolve a message that escaped from the ladder, or that met no open clarification."""
    command = match_command(canonicalize_command_input(message), commands)
    return Dispatch(DownstreamTier.ROUTER) if command is None else Dispatch(DownstreamTier.COMMAND, command)
