"""Cost of a model call, and the text of amounts and spent budgets.

Money is an integer number of nanodollars (1 USD = 10^9), so that even a cached token of the cheapest model (100 of
them) is a whole number and sums never drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

NANOUSD_PER_USD = 1_000_000_000
_CENT_DIGITS = 2
TOKENS_PER_PRICE = 1_000_000
"""Prices are stated in USD for this many tokens."""


class Price(BaseModel):
    """USD for a million tokens of one model, and the sizes by which it counts what is not text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_write: float = Field(ge=0)
    cache_read: float = Field(ge=0)
    image_tokens: int = Field(default=4784, gt=0)
    """Most tokens of an image, which the provider scales down to that."""
    context_tokens: int = Field(default=1_000_000, gt=0)
    """Most tokens of a call's input, and so of a document that is not in the call."""

    def times(self, factor: float) -> Price:
        """Return the price of somebody who pays a multiple of it."""
        if factor == 1:
            return self
        return self.model_copy(update={name: factor * getattr(self, name) for name in _KINDS})


_KINDS = ("input", "output", "cache_write", "cache_read")


class Usage(NamedTuple):
    """Tokens of one call; the four kinds are disjoint."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0


def nanousd_per_token(usd_per_million: float) -> int:
    """Convert a listed price to nanodollars per token."""
    return round(usd_per_million * NANOUSD_PER_USD / TOKENS_PER_PRICE)


def cost_nanousd(price: Price, usage: Usage) -> int:
    """Return the cost of `usage` in nanodollars."""
    return (
        usage.input_tokens * nanousd_per_token(price.input)
        + usage.output_tokens * nanousd_per_token(price.output)
        + usage.cache_write_tokens * nanousd_per_token(price.cache_write)
        + usage.cache_read_tokens * nanousd_per_token(price.cache_read)
    )


def price_of(prices: Mapping[str, Price], model: str) -> Price:
    """Return the price of `model`; for an unlisted one the highest that is listed of each kind (A15)."""
    if (listed := prices.get(model)) is not None:
        return listed
    return Price(**{kind: max(getattr(price, kind) for price in prices.values()) for kind in Price.model_fields})


class BudgetExceeded(NamedTuple):
    """A budget that cannot cover a request; the only text about that."""

    scope: str
    left_nanousd: int = 0
    needed_nanousd: int | None = None
    """The least that was requested, if known."""
    limit_nanousd: int | None = None
    """The whole budget, if all of it is spent."""

    def __str__(self) -> str:
        budget = f"the {_SCOPES.get(self.scope, self.scope)} budget"
        if self.limit_nanousd is not None:
            return f"{budget} of {format_usd(self.limit_nanousd)} is spent"
        if self.needed_nanousd is None:
            return f"{budget} has no room for another model call"
        left, needed = format_usd(max(0, self.left_nanousd)), format_usd(self.needed_nanousd)
        return f"{budget} has {left} left, and at least {needed} is needed"


_SCOPES = {"tenant_day": "tenant's daily", "key_day": "provider key's daily", "fleet_day": "installation's daily"}
"""Scopes whose name does not fit a sentence."""


def decimal_usd(nanousd: int) -> str:
    """Return USD as an exact decimal with at least two decimal places, for programs."""
    sign, rest = ("-", -nanousd) if nanousd < 0 else ("", nanousd)
    whole, fraction = divmod(rest, NANOUSD_PER_USD)
    digits = f"{fraction:09d}".rstrip("0").ljust(_CENT_DIGITS, "0")
    return f"{sign}{whole}.{digits}"


def nanousd_of(usd: float | str) -> int:
    """Convert USD, a number or an exact decimal, to nanodollars."""
    return round(Decimal(usd) * NANOUSD_PER_USD)


def format_usd(nanousd: int, *, digits: int | None = None) -> str:
    """Format an amount for people, exactly or with `digits` decimal places."""
    if digits is None:
        digits = len(decimal_usd(nanousd).partition(".")[2])
    return f"{'-' if nanousd < 0 else ''}${Decimal(abs(nanousd)) / NANOUSD_PER_USD:,.{digits}f}"
