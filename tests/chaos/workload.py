"""What is asked of the fleet: jobs for all queues, through all sources, of several tenants, decided by a seed alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

TENANTS = ("demo", "north", "south", "east")
AUTO_APPROVED = "south"
"""Its clean tier 1 work is approved by policy."""
POOR = "east"
"""Its day's budget is so low that it runs out."""
PROJECT = "shop"
CANCELLED_SHARE = 0.04
RESENT_SHARE = 0.03
"""Submitted a second time with the same idempotency key, as a client does that missed the answer."""
SUPERSEDED_SHARE = 0.1
"""Of the edits of a site: they share a key, so that a newer one replaces an older one that is not yet live."""
DELAYED_SHARE = 0.03
"""Asked for a few seconds before they may start."""
TOLD_EVERY = 3
"""Of so many jobs, the owner of one wants to be told of its end."""
FAULT_SHARE = 0.12
FAULTS = ("overload", "rate-limit", "cut-once", "cut", "break", "malformed", "chaos-slow", "busy")
"""What the provider does wrong in jobs that call it (gateway/fake_provider/scenarios/faults.yaml)."""
_FAULT_WEIGHTS = (4, 4, 4, 2, 2, 2, 3, 1)
_WORDS = ("bread", "flour", "ovens", "yeast", "rye", "malt", "butter", "salt", "honey", "seeds", "crust", "steam")


@dataclass(frozen=True, kw_only=True)
class Order:
    """One job that somebody wants."""

    id: UUID
    """What it will be known by at the Celery and the Python source; the idempotency key everywhere."""
    kind: str
    tenant: str
    source: str
    body: Mapping[str, Any]
    cancel_after_seconds: float | None = None
    is_resent: bool = False
    delay_seconds: float | None = None
    """How long after it is submitted it may start."""
    has_callback: bool = False
    """Its owner wants to be told of its end."""


@dataclass
class Dice:
    """A seeded source of everything that is decided here."""

    seed: int
    sites: Sequence[str]
    random: random.Random = field(init=False)
    number: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def site(self) -> str:
        return self.random.choice(self.sites)

    def word(self) -> str:
        return self.random.choice(_WORDS)


Body = Callable[[Dice], dict[str, Any]]


def _heading(dice: Dice) -> str:
    return f"Change the hero heading to 'All about {dice.word()} {dice.number}'"


# kind -> (weight, does it call a model, body)
KINDS: Mapping[str, tuple[int, bool, Body]] = {
    "tool": (22, False, lambda dice: {"prompt": f"echo {dice.number}"}),
    "question": (26, True, lambda dice: {"prompt": f"What is the secret of good {dice.word()}? ({dice.number})"}),
    "site question": (
        4,
        True,
        lambda dice: {"prompt": "What do our pages say about prices and classes?", "site": dice.site()},
    ),
    "direct edit": (18, False, lambda dice: {"prompt": _heading(dice), "site": dice.site()}),
    "model edit": (
        12,
        True,
        lambda dice: {"prompt": f"Add a short FAQ about {dice.word()} and how to order ahead", "site": dice.site()},
    ),
    "debated edit": (3, True, lambda dice: {"prompt": "Remove the testimonials section", "site": dice.site()}),
    "patch": (7, True, lambda dice: {"prompt": "Add a hover effect to the cards", "site": dice.site()}),
    "new site": (
        3,
        True,
        lambda dice: {
            "prompt": f"Create a site for a shop that sells {dice.word()} in Ghent",
            "new_site": f"made-{dice.number}",
        },
    ),
    "unclear": (3, False, lambda dice: {"prompt": _heading(dice)}),
    "project question": (
        2,
        True,
        lambda _: {"prompt": "How does the header of the shop get its colour?", "project": PROJECT},
    ),
}
_SOURCES = {"http": 5, "celery": 3, "python": 2}


def plan_orders(count: int, *, seed: int, sites: Sequence[str]) -> list[Order]:
    """Return what is submitted, in its order."""
    dice = Dice(seed, sites)
    return [_order(dice, number) for number in range(count)]


def _order(dice: Dice, number: int) -> Order:
    dice.number = number
    chance = dice.random
    kind = chance.choices(list(KINDS), weights=[weight for weight, _, _ in KINDS.values()])[0]
    _, calls_model, make = KINDS[kind]
    body = make(dice)
    if calls_model and chance.random() < FAULT_SHARE:
        fault = chance.choices(FAULTS, weights=_FAULT_WEIGHTS)[0]
        body["prompt"] += f" [rehearse:{fault}]"
    if "site" in body and chance.random() < SUPERSEDED_SHARE:
        body["supersede_key"] = "newest"
    delay = chance.uniform(1, 10) if chance.random() < DELAYED_SHARE else None
    body["priority"] = chance.choice(("P1", "P2", "P2", "P3"))
    return Order(
        id=UUID(int=chance.getrandbits(128), version=4),
        kind=kind,
        tenant=TENANTS[0] if kind == "project question" else chance.choice(TENANTS),
        source=chance.choices(list(_SOURCES), weights=list(_SOURCES.values()))[0],
        body=body,
        cancel_after_seconds=chance.uniform(0, 4) if chance.random() < CANCELLED_SHARE else None,
        is_resent=chance.random() < RESENT_SHARE,
        delay_seconds=delay,
        has_callback=number % TOLD_EVERY == 0,
    )
