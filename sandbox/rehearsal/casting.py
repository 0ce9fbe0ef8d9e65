"""Which rule is played: the first that matches and has not been used up."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from sandbox.rehearsal.request import Request
from sandbox.rehearsal.scenario import Fault, PaceOverride, Rule, When

_CONVERSATIONS = 65_536
"""How many counters of `times` are kept; the oldest go first."""


@dataclass(frozen=True)
class Part:
    """What is to be played: the rule that replies, and what it and the rules before it add."""

    name: str
    """Names of the rules, in the order in which they matched, joined by `/`."""
    rule: Rule
    """The rule that replies; with a fault that comes before any reply, the rule with the fault."""
    variables: dict[str, Any]
    """What templates may use."""
    fault: Fault | None
    pace: PaceOverride | None
    usage: dict[str, int]
    """Tokens to be billed instead of those counted, by the field names of `Usage`."""

    @property
    def refusal(self) -> Fault | None:
        """The fault, when it is an HTTP error instead of a reply."""
        return self.fault if self.fault and self.fault.kind == "status" and not self.fault.after_characters else None


@dataclass
class Casting:
    """The rules of a run and how often each was played."""

    rules: Sequence[Rule]
    _played: OrderedDict[tuple[int, str], int] = field(default_factory=OrderedDict)

    def choose(self, request: Request) -> Part | None:
        """Return what to play for a request, and count its rules; None when no rule replies."""
        names: list[str] = []
        fault, pace = None, None
        usage: dict[str, int] = {}
        for index, rule in enumerate(self.rules):
            groups = match(rule.when, request)
            if groups is None or not self._may_play(index, rule, request):
                continue
            names.append(rule.name)
            fault, pace = fault or rule.fault, pace or rule.pace
            usage = rule.usage.model_dump(exclude_none=True) | usage
            part = Part("/".join(names), rule, _variables(request, groups), fault, pace, usage)
            if rule.has_reply or part.refusal:
                return part
        return None

    def _may_play(self, index: int, rule: Rule, request: Request) -> bool:
        if rule.times is None:
            return True
        key = (index, "" if rule.times_per == "server" else _conversation(request, rule.when.tag))
        played = self._played.get(key, 0)
        if played >= rule.times:
            return False
        self._played[key] = played + 1
        self._played.move_to_end(key)
        while len(self._played) > _CONVERSATIONS:
            self._played.popitem(last=False)
        return True


def match(when: When, request: Request) -> dict[str, Any] | None:
    """Return the captured groups when a request is as described, otherwise None.

    Groups appear under their name, or as `prompt_1`, `system_1` and so on.
    """
    if not _matches_shape(when, request):
        return None
    groups: dict[str, Any] = {}
    for field_name, text in (("prompt", request.prompt), ("system", request.system)):
        pattern = getattr(when, field_name)
        if pattern is None:
            continue
        found = _pattern(pattern).search(text)
        if found is None:
            return None
        groups |= {f"{field_name}_{number}": group or "" for number, group in enumerate(found.groups(), start=1)}
        groups |= {name: group or "" for name, group in found.groupdict().items()}
    return groups


def _matches_shape(when: When, request: Request) -> bool:
    forced = request.forced_tool.name if request.forced_tool else ""
    return (
        _is_like(when.model, request.model)
        and _is_like(when.forced_tool, forced)
        and all(any(fnmatchcase(name, glob) for name in request.tool_names) for glob in when.tools)
        and when.tool_result in (None, request.has_tool_result)
        and when.structured in (None, request.output_schema is not None)
        and when.turn in (None, request.turn)
        and (when.tag is None or when.tag in request.tags)
    )


def _is_like(glob: str | None, value: str) -> bool:
    return glob is None or fnmatchcase(value, glob)


@lru_cache(maxsize=1024)
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


def _conversation(request: Request, tag: str | None) -> str:
    """Name a conversation by its first text; for a tagged rule by the line with the tag, which retries repeat."""
    about = request.user_texts[0] if request.user_texts else ""
    if tag is not None:
        lines = (line for text in request.user_texts for line in text.splitlines())
        about = next((line for line in lines if f"[rehearse:{tag}]" in line), about)
    return hashlib.sha256(about.encode("utf-8", "surrogatepass")).hexdigest()


def _variables(request: Request, groups: dict[str, Any]) -> dict[str, Any]:
    return {
        "prompt": request.prompt,
        "system": request.system,
        "model": request.model,
        "turn": request.turn,
        "tools": list(request.tool_names),
        "tool": request.forced_tool.name if request.forced_tool else next(iter(request.tool_names), ""),
        "tool_results": [result.text for result in request.tool_results],
        **groups,
    }
