"""A ticket: what a run of the ticket lane is asked for, wherever it came from."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from routing.fields import Text

Label = Annotated[Text, Field(min_length=1, max_length=100)]


class Ticket(BaseModel):
    """What a ticket says beside its text, which is the job's prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Annotated[Text, Field(min_length=1, max_length=300)]
    labels: Annotated[tuple[Label, ...], Field(max_length=50)] = ()
    """Rules of the project may ask for a gate because of one (S-102)."""
    source: Annotated[Text, Field(min_length=1, max_length=100)] | None = None
    """Where it came from: `file`, `github`, `linear`."""
    url: Annotated[Text, Field(max_length=2048, pattern=r"^https?://[^\s]+$")] | None = None
