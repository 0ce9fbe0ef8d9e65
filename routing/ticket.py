"""A ticket: what somebody wrote into a tracker, as a run takes it in.

Everything in it is from outside. Text that its readers would not have seen is taken out: what no person saw must not
order anything (threat D7).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from routing.jobs import MAX_PROMPT_BYTES, Text

MAX_LABELS = 50
_CUT_NOTE = "\n\n[The ticket is longer; the rest was cut off.]"
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_INVISIBLE = re.compile("[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_PRIORITY = re.compile(r"(?:priority\s*[:/ -]?\s*)?p([0-3])", re.IGNORECASE)

Priority = Literal["P0", "P1", "P2", "P3"]


class Ticket(BaseModel):
    """One ticket."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Literal["github", "linear", "file"]
    key: Annotated[Text, Field(min_length=1, max_length=200)]
    """What its tracker calls it: `owner/name#12`, `ENG-12`, or a file's name."""
    title: Annotated[Text, Field(min_length=1, max_length=500)]
    body: Annotated[Text, Field(max_length=4 * MAX_PROMPT_BYTES)] = ""
    labels: Annotated[tuple[Annotated[Text, Field(max_length=200)], ...], Field(max_length=MAX_LABELS)] = ()
    priority: Priority = "P2"
    url: Annotated[Text, Field(max_length=2048, pattern=r"^(https?://[^\s]+)?$")] = ""
    """Where people read it."""
    reference: Annotated[Text, Field(max_length=200)] = ""
    """The tracker's own id, by which its interface is told what became of the ticket."""

    @property
    def prompt(self) -> str:
        """Title and body as a job's prompt, of which too long a one loses its end and says so."""
        whole = f"{self.title}\n\n{self.body}".strip()
        data = whole.encode()
        if len(data) <= MAX_PROMPT_BYTES:
            return whole
        return data[: MAX_PROMPT_BYTES - len(_CUT_NOTE)].decode(errors="ignore") + _CUT_NOTE


def visible(text: str) -> str:
    """Return text as its readers saw it: without comments of its markup and without characters that show nothing."""
    return _CONTROL.sub(" ", _INVISIBLE.sub("", _COMMENT.sub("", text.replace("\r\n", "\n")))).strip()


def priority_of(labels: tuple[str, ...]) -> Priority:
    """Return the most urgent priority that a label names (`P0`, `priority: p1`); P2 where none does."""
    named = {found.group(1) for label in labels if (found := _PRIORITY.fullmatch(label.strip()))}
    found: dict[str, Priority] = {"0": "P0", "1": "P1", "2": "P2", "3": "P3"}
    return found[min(named)] if named else "P2"
