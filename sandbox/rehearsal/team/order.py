"""What an agent of a run was asked: its order taken apart, and the wishes that a ticket has for the rehearsal.

A ticket directs the play by tags, anywhere in its text: `[rehearse:issues=5,2,0]`. Everything read here is quoted or
matched, never run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox.rehearsal.request import Request
from sandbox.rehearsal.words import slug, title

_SYSTEM = re.compile(r"You are the agent `([a-z][a-z0-9:-]{0,80})` of a run")
_STEP = re.compile(r"^Step `([a-z0-9_-]{1,120})` for agent", re.MULTILINE)
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_NAME = re.compile(r"`([^`\s]{1,300})`")
_TAG = re.compile(r"\[rehearse:([a-z0-9-]{1,40})(?:=([a-z0-9,.-]{1,60}))?\]")
_SEGMENT = r"[\w@\[\]-][\w.@\[\]-]{0,80}"
_FILE = re.compile(
    rf"(?<![\w/.@\[\]-])(?:{_SEGMENT}/){{0,12}}[\w-][\w.-]{{0,80}}\.(?:tsx?|jsx?|mjs|s?css|sql|html|json)\b"
)
_FINDING = re.compile(r"^\d+\. \[[\w:-]+\] (.{1,300})", re.MULTILINE)
_BLOCKING = re.compile(r"^- blocking: (.{1,300})", re.MULTILINE)
_MENDING = re.compile(r"Mend what |The build fails")
_PAIRS = (
    re.compile(r"(?:says?|uses?|has|shows?|reads?)\s+[`\"“]([^`\"“”]{1,200})[`\"”]\s+(?:instead of|and not|but not)\s+"
               r"[`\"“]([^`\"“”]{1,200})[`\"”]", re.IGNORECASE),
    re.compile(r"(?:replace|change)\s+[`\"“]([^`\"“”]{1,200})[`\"”]\s+(?:with|to|by)\s+[`\"“]([^`\"“”]{1,200})[`\"”]",
               re.IGNORECASE),
    re.compile(r"[`\"“]([^`\"“”]{1,200})[`\"”]\s+(?:should|must|has to|ought to)\s+(?:be|read|say)\s+"
               r"[`\"“]([^`\"“”]{1,200})[`\"”]", re.IGNORECASE),
)  # fmt: skip


@dataclass(frozen=True)
class Order:
    """One step's order."""

    agent: str
    step: str
    task: str
    ticket: str
    """As it was written: without the marks that the service puts before its lines, and without tags."""
    said: str
    """What the steps before this one report."""
    writes: tuple[str, ...]
    """Path rules of what is kept."""
    tags: Mapping[str, str]
    """What the ticket wants to see rehearsed, with the value after `=`."""

    @property
    def heading(self) -> str:
        """The ticket's own title."""
        first = self.ticket.strip().splitlines()[:1]
        return first[0].lstrip("# ").strip()[:120] if first else title(self.task)

    @property
    def topic(self) -> str:
        """What the ticket is about, as a name for files."""
        return slug(self.heading)[:32].strip("-") or "change"

    @property
    def files(self) -> tuple[str, ...]:
        """Files that ticket or task name, in order."""
        return tuple(dict.fromkeys(_FILE.findall(f"{self.ticket}\n{self.task}")))

    @property
    def correction(self) -> tuple[str, str] | None:
        """What stands there and what should, where the ticket quotes both."""
        return next(((found[1], found[2]) for pair in _PAIRS if (found := pair.search(self.ticket))), None)

    @property
    def is_mending(self) -> bool:
        """Whether findings are to be mended."""
        return "- blocking: " in self.said or _MENDING.match(self.task) is not None

    @property
    def findings(self) -> tuple[str, ...]:
        """What is to be mended, as the task lists it, else as the steps before say."""
        return tuple(_FINDING.findall(self.task) or _BLOCKING.findall(self.said))

    def numbers(self, tag: str) -> tuple[int, ...]:
        """Return the numbers of a tag such as `issues=5,2,0`."""
        return tuple(int(part) for part in self.tags.get(tag, "").split(",") if part.isdigit() and len(part) < 4)


def read_order(request: Request) -> Order:
    """Take the order of a request apart; what is not there is empty."""
    prompt = next((text for text in request.user_texts if _STEP.search(text)), request.prompt)
    parts = _SECTION.split(prompt)
    sections = dict(zip(parts[1::2], parts[2::2], strict=False))
    agent, step = _SYSTEM.search(request.system), _STEP.search(prompt)
    where = sections.get("Where you may write", "").strip().splitlines()
    task, ticket = sections.get("Your task", "").strip(), _unquoted(sections.get("The ticket", ""))
    return Order(
        agent=agent[1] if agent else "",
        step=step[1] if step else "",
        task=_TAG.sub("", task).strip(),
        ticket=_TAG.sub("", ticket),
        said=_unquoted(sections.get("What the steps before yours say", "")),
        writes=tuple(_NAME.findall(where[0])) if where else (),
        tags={found[1]: found[2] or "" for found in _TAG.finditer(f"{task}\n{ticket}")},
    )


def _unquoted(text: str) -> str:
    return "\n".join(line[2:] for line in text.splitlines() if line.startswith("| "))
