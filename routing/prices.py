"""What a model call costs: exact integer arithmetic over a price table.

Money is an integer number of nanodollars (1 USD = 10^9), so that one cached token of the cheapest model (100 of them)
is still a whole number and sums never drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

NANOUSD_PER_USD = 1_000_000_000
NANOUSD_PER_CENT = NANOUSD_PER_USD // 100
TOKENS_PER_PRICE = 1_000_000
"""Prices are stated in USD for this many tokens."""


class Price(BaseModel):
    """USD for a million tokens of one model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_write: float = Field(ge=0)
    cache_read: float = Field(ge=0)


class Usage(NamedTuple):
    """Tokens of one call, as the Messages API reports them: the four kinds are disjoint."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0


def nanousd_per_token(usd_per_million: float) -> int:
    """Turn a listed price into nanodollars for one token."""
    return round(usd_per_million * NANOUSD_PER_USD / TOKENS_PER_PRICE)


def cost_nanousd(price: Price, usage: Usage) -> int:
    """Return what `usage` costs at `price`, in nanodollars."""
    return (
        usage.input_tokens * nanousd_per_token(price.input)
        + usage.output_tokens * nanousd_per_token(price.output)
        + usage.cache_write_tokens * nanousd_per_token(price.cache_write)
        + usage.cache_read_tokens * nanousd_per_token(price.cache_read)
    )


def price_of(prices: Mapping[str, Price], model: str) -> Price:
    """Return the price of `model`, or the dearest known price of each kind for a model that is not listed (A15)."""
    if (listed := prices.get(model)) is not None:
        return listed
    return Price(
        input=max(price.input for price in prices.values()),
        output=max(price.output for price in prices.values()),
        cache_write=max(price.cache_write for price in prices.values()),
        cache_read=max(price.cache_read for price in prices.values()),
    )


def format_usd(nanousd: int) -> str:
    """Print an amount for people: to the cent when it is whole cents, otherwise with as many digits as it needs."""
    dollars, rest = divmod(nanousd, NANOUSD_PER_USD)
    if rest % NANOUSD_PER_CENT == 0:
        return f"${dollars}.{rest // NANOUSD_PER_CENT:02}"
    return f"${dollars}.{rest:09}".rstrip("0")
