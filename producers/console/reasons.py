"""Why a job went where it went, in words: the router asked again about the same request, word by word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlmodel import Session

from monitoring.ledger.attempts import effective_policy
from monitoring.ledger.tables import Job
from routing.errors import InvalidJobError
from routing.explain import Explanation, explain
from routing.jobs import parse_request
from routing.messages import read_stored
from routing.policy import Policy
from routing.rounds import WORK_SO_FAR
from routing.router import CLASSIFIER, Route, SiteSignals
from routing.signals import signals_of
from routing.vocabularies import Vocabularies, shipped_vocabularies

_DECIDED = ("mode", "tier", "rule")

Decider = Literal["rules", "work", "model"]
"""Who had the last word: the rules alone, what the work so far needs at least, or a model that was asked besides."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a prompt."""

    text: str
    kind: str
    """Of the trigger that stands here; empty for other words."""


@dataclass(frozen=True, kw_only=True)
class Reasons:
    """Why a job went there."""

    found: Explanation
    pieces: tuple[Piece, ...]
    """The prompt, with what the rules took notice of told apart."""
    decider: Decider
    is_as_decided: bool
    """Whether the rules of today say the same as those of then, as far as the decision shows what those said."""


def reasons_of(
    session: Session, job: Job, *, policy: Policy, vocabularies: Vocabularies | None = None
) -> Reasons | None:  # fmt: skip
    """Return the reasons; None for a request that was refused before anything was decided."""
    try:
        request = parse_request({**job.request, "prompt": job.prompt})
    except InvalidJobError:
        return None
    site = job.route.get("site")
    signals = signals_of(
        request, site=read_stored(SiteSignals, site) if isinstance(site, dict) else None, debated=frozenset()
    )
    words = (vocabularies or shipped_vocabularies()).of(job.tenant)
    found = explain(signals, effective_policy(session, job.tenant, policy), words)
    decider = decider_of(job.route, is_pivot=bool(job.result.get("failure_debate")))
    is_same = is_as_decided(job.route, found.route, decider=decider)
    return Reasons(found=found, pieces=_pieces(job.prompt, found), decider=decider, is_as_decided=is_same)


def decider_of(route: Mapping[str, Any], *, is_pivot: bool = False) -> Decider:
    """Return who had the last word on a route.

    Args:
        route: the decision as it stands.
        is_pivot: whether a debate about the job's failures may have changed its tier.
    """
    if route.get("rule") == WORK_SO_FAR:
        return "work"
    return "model" if is_pivot or route.get("classifier", CLASSIFIER) != CLASSIFIER else "rules"


def is_as_decided(then: Mapping[str, Any], today: Route, *, decider: Decider) -> bool:
    """Tell whether what the rules say today fits what was decided then.

    A tier that the work so far needs stands for any lower one; what the rules had said before a model is not on record.
    """
    if decider == "model":
        return True
    if decider == "work":
        return (
            then.get("mode") == today.mode.value and today.tier is not None and today.tier < int(then.get("tier") or 0)
        )
    shown = today.model_dump(mode="json")
    return all(then.get(name) == shown[name] for name in _DECIDED)


def _pieces(prompt: str, found: Explanation) -> tuple[Piece, ...]:
    marks: list[tuple[int, int, str]] = [
        (one.start, one.end, one.kind) for one in (*found.triggers, *found.not_counted)
    ]
    marks += [(one.start, one.end, "rule") for one in found.winner.evidence]
    return tuple(_cut(prompt, sorted(marks)))


def _cut(prompt: str, marks: Sequence[tuple[int, int, str]]) -> list[Piece]:
    pieces, at = [], 0
    for start, end, kind in marks:
        if start < at or end <= start:  # what overlaps is marked once
            continue
        pieces += [Piece(text=prompt[at:start], kind=""), Piece(text=prompt[start:end], kind=kind)]
        at = end
    return [piece for piece in (*pieces, Piece(text=prompt[at:], kind="")) if piece.text]
