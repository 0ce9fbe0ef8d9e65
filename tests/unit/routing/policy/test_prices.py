"""Money is exact: whole nanodollars, never a float that drifts."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.policy.platform import platform_policy
from routing.policy.prices import (
    BudgetExceeded,
    Price,
    Usage,
    cost_nanousd,
    decimal_usd,
    format_usd,
    nanousd_of,
    nanousd_per_token,
    price_of,
)

CHEAP_IN = Price(input=1, output=50, cache_write=2, cache_read=0.4)
CHEAP_OUT = Price(input=10, output=5, cache_write=1, cache_read=0.1)
TOKENS = st.integers(0, 10**9)


@given(TOKENS, TOKENS, TOKENS, TOKENS)
def test_a_call_costs_its_four_kinds_of_tokens_to_the_nanodollar(a: int, b: int, c: int, d: int) -> None:
    for name, price in platform_policy().prices.items():
        exact = sum(
            Decimal(str(usd)) * 1000 * tokens
            for usd, tokens in zip(
                (price.input, price.output, price.cache_write, price.cache_read), (a, b, c, d), strict=True
            )
        )
        assert cost_nanousd(price, Usage(a, b, c, d)) == exact, name


def test_the_shipped_prices_are_whole_nanodollars() -> None:
    for price in platform_policy().prices.values():
        for usd in price.model_dump().values():
            assert nanousd_per_token(usd) == Decimal(str(usd)) * 1000


def test_a_listed_model_costs_its_own_price() -> None:
    assert price_of({"a": CHEAP_IN, "b": CHEAP_OUT}, "a") == CHEAP_IN


def test_an_unlisted_model_costs_the_dearest_known_price_of_each_kind() -> None:
    assert price_of({"a": CHEAP_IN, "b": CHEAP_OUT}, "c") == Price(input=10, output=50, cache_write=2, cache_read=0.4)


@pytest.mark.parametrize(
    ("nanousd", "text"),
    [
        (0, "$0.00"),
        (1, "$0.000000001"),
        (100, "$0.0000001"),
        (10_000_000, "$0.01"),
        (12_500_000, "$0.0125"),
        (999_999_999, "$0.999999999"),
        (1_000_000_000, "$1.00"),
        (25_100_000_000, "$25.10"),
        (-2_500_000, "-$0.0025"),
        (9_007_199_254_740_993, "$9,007,199.254740993"),
    ],
)
def test_an_amount_is_printed_to_the_cent_or_exactly(nanousd: int, text: str) -> None:
    assert format_usd(nanousd) == text


def test_an_amount_is_rounded_where_it_has_to_line_up() -> None:
    assert format_usd(1_234_567_890_123, digits=2) == "$1,234.57"
    assert format_usd(3_412_500, digits=4) == "$0.0034"


@pytest.mark.parametrize(
    ("nanousd", "text"),
    [
        (0, "0.00"),
        (3_412_500, "0.0034125"),
        (500_000_000, "0.50"),
        (1, "0.000000001"),
        (12 * 10**9, "12.00"),
        (1_100_000_000, "1.10"),
        (-2_500_000, "-0.0025"),
    ],
)
def test_money_is_written_exactly_with_at_least_cents(nanousd: int, text: str) -> None:
    assert decimal_usd(nanousd) == text


@given(st.integers(min_value=-(10**18), max_value=10**18))
def test_no_nanodollar_is_lost_in_writing(nanousd: int) -> None:
    assert Decimal(decimal_usd(nanousd)) * 10**9 == nanousd


@given(st.integers(min_value=-(10**18), max_value=10**18))
def test_an_exact_decimal_is_read_back(nanousd: int) -> None:
    assert nanousd_of(decimal_usd(nanousd)) == nanousd


@pytest.mark.parametrize(
    ("exceeded", "text"),
    [
        (BudgetExceeded("job"), "job budget has no room for another model call"),
        (BudgetExceeded("tier", -5, 10**7), "tier budget has $0.00 left, and at least $0.01 is needed"),
        (
            BudgetExceeded("fleet_day", 0, 10**8),
            "installation's daily budget has $0.00 left, and at least $0.10 is needed",
        ),
        (BudgetExceeded("tenant_day", limit_nanousd=5 * 10**9), "tenant's daily budget of $5.00 is spent"),
    ],
)
def test_a_spent_budget_is_worded_in_one_place(exceeded: BudgetExceeded, text: str) -> None:
    assert str(exceeded) == f"the {text}"
