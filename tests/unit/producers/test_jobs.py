from decimal import Decimal
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.ledger.tables import Release
from producers.jobs import PREVIEW_AUDIENCE, PreviewLinks, tier_name, usd_text
from sandbox.preview import PreviewSigner


@pytest.mark.parametrize(
    ("nanousd", "text"),
    [(0, "0.00"), (3_412_500, "0.0034125"), (500_000_000, "0.50"), (1, "0.000000001"), (12 * 10**9, "12.00"),
     (1_100_000_000, "1.10"), (-2_500_000, "-0.0025")],
)  # fmt: skip
def test_money_is_written_exactly_with_at_least_cents(nanousd: int, text: str) -> None:
    assert usd_text(nanousd) == text


@given(st.integers(min_value=-(10**18), max_value=10**18))
def test_no_nanodollar_is_lost_in_writing(nanousd: int) -> None:
    assert Decimal(usd_text(nanousd)) * 10**9 == nanousd


def test_tiers_have_names() -> None:
    assert [tier_name(tier) for tier in (1, 2, 3, None)] == ["spec", "patch", "agent", None]


def test_a_preview_link_names_its_release_and_ends_in_a_directory() -> None:
    signer = PreviewSigner(["a-key-of-at-least-thirty-two-characters"])
    release = Release(site_id=uuid4(), digest="d", preview_generation=3)
    url = PreviewLinks(signer, "https://previews.example.com/").url_of(release)
    token = url.removeprefix("https://previews.example.com/preview/").removesuffix("/")
    claim = signer.verify(token, max_age_seconds=60, audiences=[PREVIEW_AUDIENCE])
    assert (claim.site, claim.release_id, claim.generation) == (str(release.site_id), str(release.id), 3)
