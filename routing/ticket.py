"""A ticket: what a run of the ticket lane is asked for, wherever it came from.

Everything in it is from outside. Text that its readers would not have seen is taken out: what no person saw must not
order anything (threat D7).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from routing.fields import Text

MAX_LABELS = 50
MAX_TITLE = 300
_CUT_NOTE = "\n\n[The ticket is longer; the rest was cut off.]"
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_INVISIBLE = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_PRIORITY = re.compile(r"(?:priority\s*[:/ -]?\s*)?p([0-3])", re.IGNORECASE)

Label = Annotated[Text, Field(min_length=1, max_length=100)]
Priority = Literal["P0", "P1", "P2", "P3"]
_PRIORITIES: tuple[Priority, ...] = ("P0", "P1", "P2", "P3")


class Ticket(BaseModel):
    """What a ticket says beside its text, which is the job's prompt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Annotated[Text, Field(min_length=1, max_length=MAX_TITLE)]
    labels: Annotated[tuple[Label, ...], Field(max_length=MAX_LABELS)] = ()
    """Rules of the project may ask for a gate because of one (S-102)."""
    source: Annotated[Text, Field(min_length=1, max_length=100)] | None = None
    """Where it came from: `file`, `github`, `linear`."""
    key: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    """What its tracker calls it: `owner/name#12`, `ENG-12`."""
    reference: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    """The tracker's own id, by which its interface is told what became of the ticket."""
    url: Annotated[Text, Field(max_length=2048, pattern=r"^https?://[^\s]+$")] | None = None


def visible(text: str) -> str:
    """Return text as its readers saw it: without comments of its markup and without characters that show nothing."""
    return _CONTROL.sub(" ", _INVISIBLE.sub("", _COMMENT.sub("", text.replace("\r\n", "\n")))).strip()


def prompt_of(title: str, body: str, *, max_bytes: int) -> str:
    """Return a ticket's text as a job's prompt, of which too long a one loses its end and says so."""
    whole = f"{title}\n\n{body}".strip()
    data = whole.encode()
    if len(data) <= max_bytes:
        return whole
    return data[: max_bytes - len(_CUT_NOTE)].decode(errors="ignore") + _CUT_NOTE


def priority_of(labels: tuple[str, ...]) -> Priority:
    """Return the most urgent priority that a label names (`P0`, `priority: p1`); P2 where none does."""
    found = (_PRIORITY.fullmatch(label.strip()) for label in labels)
    named = {int(match.group(1)) for match in found if match is not None}
    return _PRIORITIES[min(named, default=2)]
