"""Why a job went where it went, in words: the router asked again about the same request, word by word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlmodel import Session

from monitoring.ledger.attempts import effective_policy
from monitoring.ledger.tables import Job
from routing.errors import InvalidJobError
from routing.explain import Explanation, explain
from routing.jobs import parse_request
from routing.messages import read_stored
from routing.policy import Policy
from routing.router import SiteSignals
from routing.signals import signals_of
from routing.vocabularies import Vocabularies, shipped_vocabularies

_DECIDED = ("mode", "tier", "rule")


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
    is_as_decided: bool
    """Whether the rules of today decide the same as was decided then."""


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
    return Reasons(found=found, pieces=_pieces(job.prompt, found), is_as_decided=_is_same(job.route, found))


def _is_same(route: dict[str, Any], found: Explanation) -> bool:
    today = found.route.model_dump(mode="json")
    return all(route.get(name) == today[name] for name in _DECIDED)


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
