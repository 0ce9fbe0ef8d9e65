"""Every bill against the provider's own log, call by call: equal, or over by at most the reserve of a cut call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from gateway.fake_provider.config import LoggedCall, billed_nanousd
from routing.policy.prices import Price

USD = 10**9


@dataclass(frozen=True)
class BilledCall:
    """A call as the ledger has it."""

    id: UUID
    state: str
    finish: str | None
    reserved_nanousd: int
    cost_nanousd: int
    caps: Sequence[Sequence[str]]


@dataclass
class Audit:
    """What the comparison came to."""

    calls: int = 0
    equal: int = 0
    over: int = 0
    """Cut calls that were billed for more than was served, by at most their reserve."""
    unserved: int = 0
    """Calls that never came to the provider."""
    billed_nanousd: int = 0
    served_nanousd: int = 0
    problems: list[str] = field(default_factory=list)


def compare(calls: Iterable[BilledCall], log: Iterable[LoggedCall], prices: Mapping[str, Price]) -> Audit:
    """Hold what the ledger billed against what the provider served."""
    audit = Audit()
    served: Counter[str] = Counter()
    cut: set[str] = set()
    for entry in log:
        name = entry.call or ""
        served[name] += billed_nanousd(entry, prices)
        if entry.finish != "completed":
            cut.add(name)
    known = set()
    for call in calls:
        known.add(str(call.id))
        _compare_one(audit, call, served[str(call.id)], is_cut=str(call.id) in cut, is_served=str(call.id) in served)
    for name in sorted(set(served) - known):
        if served[name]:
            audit.problems.append(f"call {name or 'without id'} was served for {served[name]} and is on no bill")
    return audit


def _compare_one(audit: Audit, call: BilledCall, served: int, *, is_cut: bool, is_served: bool) -> None:
    audit.calls += 1
    audit.billed_nanousd += call.cost_nanousd
    audit.served_nanousd += served
    audit.unserved += not is_served
    over = call.cost_nanousd - served
    told = f"call {call.id} ({call.state}, {call.finish}) was billed {call.cost_nanousd} and served for {served}"
    if call.state == "reserved":
        audit.problems.append(f"call {call.id} is still open")
    elif over == 0:
        audit.equal += 1
    elif over < 0:
        audit.problems.append(f"{told}: under")
    elif not is_cut and call.finish == "completed":
        audit.problems.append(f"{told}, though nothing cut it")
    elif over > call.reserved_nanousd:
        audit.problems.append(f"{told}: over by more than its reserve of {call.reserved_nanousd}")
    else:
        audit.over += 1


def passed_caps(
    calls: Iterable[BilledCall],
    log: Iterable[LoggedCall],
    limits: Mapping[tuple[str, str], int],
    prices: Mapping[str, Price],
) -> list[str]:
    """Return the caps that were passed by the provider's log, beyond what replies cost above their reserves."""
    served: Counter[str] = Counter()
    for entry in log:
        served[entry.call or ""] += billed_nanousd(entry, prices)
    spent: Counter[tuple[str, str]] = Counter()
    beyond: Counter[tuple[str, str]] = Counter()
    for call in calls:
        for scope, key in call.caps:
            spent[scope, key] += served[str(call.id)]
            beyond[scope, key] += max(0, served[str(call.id)] - call.reserved_nanousd)
    return [
        f"{scope} {key}: {spent[scope, key] / USD:.6f} of {limit / USD:.6f}"
        for (scope, key), limit in limits.items()
        if spent[scope, key] > limit + beyond[scope, key]
    ]
