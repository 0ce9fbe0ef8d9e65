"""Hold decisions against labelled sample tasks, so that words are refined by what they got wrong (R-008, R-102).

A label may accept alternatives: `also` (tier), `also_mode`, `also_intent`, `also_debate`, `also_trivial`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

FIELDS = ("mode", "tier", "intent", "debate", "trivial")


class Miss(NamedTuple):
    """A field of a decision that its label does not accept."""

    id: str
    prompt: str
    field: str
    got: Any
    accepted: tuple[Any, ...]
    triggers: tuple[str, ...]
    """The words that decided, as `route --explain` shows them."""


@dataclass
class Evaluation:
    """How well decisions match their labels."""

    total: int = 0
    misses: list[Miss] = field(default_factory=list)
    false_actions: list[Miss] = field(default_factory=list)
    """False positives of the ACTION triggers: questions that would start work."""
    false_answers: list[Miss] = field(default_factory=list)
    """False negatives of the ACTION triggers: orders that would only be talked about."""
    answers_wanted: int = 0
    debates_wanted: int = 0
    debates_found: int = 0
    debates_made: int = 0
    debates_right: int = 0

    def add(self, line: Mapping[str, Any], decided: Mapping[str, Any]) -> None:
        """Compare one decision with its label.

        Args:
            line: a sample, its label in `expect`.
            decided: the decision, as routing.batch returns it.

        Raises:
            KeyError: the caller's fault; the line lacks its prompt or a field of its label.
        """
        expect = line["expect"]
        accepted = _accepted(expect)
        got = {**decided, "debate": (decided["debate"], decided["stakes"])}
        is_alternative = got["mode"] != expect["mode"] and got["mode"] in accepted["mode"]
        self.total += 1
        self.answers_wanted += expect["mode"] == "ANSWER"
        for name in FIELDS:
            # The other fields of a label go with its first mode; under an accepted alternative they say nothing.
            if got[name] in accepted[name] or (is_alternative and name != "mode"):
                continue
            triggers = tuple(decided["triggers"])
            miss = Miss(str(line.get("id")), line["prompt"], name, got[name], accepted[name], triggers)
            self.misses.append(miss)
            if name == "mode":
                (self.false_answers if got["mode"] == "ANSWER" else self.false_actions).append(miss)
        self._count_debate(expect["debate"], decided["debate"], {kind for kind, _ in accepted["debate"]})

    def _count_debate(self, wanted: str, got: str, accepted: set[str]) -> None:
        if wanted == "planning":
            self.debates_wanted += 1
            self.debates_found += got in accepted
        if got == "planning":
            self.debates_made += 1
            self.debates_right += "planning" in accepted

    def accuracy(self, name: str) -> float:
        """Return the share of right decisions of a field, 0 to 1; 1 of no decision."""
        wrong = sum(miss.field == name for miss in self.misses)
        return 1 - wrong / self.total if self.total else 1.0

    @property
    def debate_precision(self) -> float:
        """Return the share of the planning debates held that were wanted, 0 to 1."""
        return self.debates_right / self.debates_made if self.debates_made else 1.0

    @property
    def debate_recall(self) -> float:
        """Return the share of the planning debates wanted that would be held, 0 to 1."""
        return self.debates_found / self.debates_wanted if self.debates_wanted else 1.0

    def figures(self) -> dict[str, float]:
        """Return every measure by its name."""
        return {
            "samples": self.total,
            **{name: round(self.accuracy(name), 4) for name in FIELDS},
            "debate_precision": round(self.debate_precision, 4),
            "debate_recall": round(self.debate_recall, 4),
            "false_actions": len(self.false_actions),
            "false_answers": len(self.false_answers),
        }


def _accepted(expect: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the values that a label accepts, the wanted one first. A debate counts with its stakes."""
    debates = (expect, *expect.get("also_debate", ()))
    return {
        "mode": (expect["mode"], *expect.get("also_mode", ())),
        "tier": (expect["tier"], *expect.get("also", ())),
        "intent": (expect["intent"], *expect.get("also_intent", ())),
        "debate": tuple((debate["debate"], debate["stakes"]) for debate in debates),
        "trivial": (expect["trivial"], *expect.get("also_trivial", ())),
    }
