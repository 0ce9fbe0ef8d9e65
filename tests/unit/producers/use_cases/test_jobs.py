from types import SimpleNamespace
from uuid import uuid4

import pytest

from ledger.tables import Job, Release
from producers.use_cases.jobs import PREVIEW_AUDIENCE, PreviewLinks, View, queue_of, tier_name
from sites.preview import PreviewSigner


def test_tiers_have_names() -> None:
    assert [tier_name(tier) for tier in (1, 2, 3, None)] == ["spec", "patch", "agent", None]


@pytest.mark.parametrize(
    ("state", "queue", "tier", "shown"),
    [
        ("published", "control", 2, "patch"),
        ("awaiting_approval", "control", 1, "spec"),
        ("publishing", "control", 2, "control"),
        ("failed", "control", 2, "control"),
        ("running", "spec", 1, "spec"),
        ("answered", "answer", None, "answer"),
    ],
)
def test_a_result_shows_the_queue_that_made_it_and_not_the_one_that_published_it(
    state: str, queue: str, tier: int | None, shown: str
) -> None:
    assert queue_of(Job(state=state, queue=queue, tier=tier, request={})) == shown


def test_a_run_is_on_the_queue_that_advances_it() -> None:
    assert queue_of(Job(state="published", queue="control", tier=3, request={"project": "shop"})) == "control"


def test_a_preview_link_names_its_release_and_ends_in_a_directory() -> None:
    signer = PreviewSigner(["a-key-of-at-least-thirty-two-characters"])
    release = Release(site_id=uuid4(), digest="d", preview_generation=3)
    url = PreviewLinks(signer, "https://previews.example.com/").url_of(release)
    token = url.removeprefix("https://previews.example.com/preview/").removesuffix("/")
    claim = signer.verify(token, max_age_seconds=60, audiences=[PREVIEW_AUDIENCE])
    assert (claim.site, claim.release_id, claim.generation) == (str(release.site_id), str(release.id), 3)


def test_a_view_takes_a_rows_columns_unless_something_else_is_given_and_guesses_none() -> None:
    class JobLine(View):
        state: str
        tier: str | None = None

    row = SimpleNamespace(state="queued", tier=2, secret="not shown")
    assert JobLine.of(row, tier="patch").model_dump() == {"state": "queued", "tier": "patch"}
    with pytest.raises(AttributeError, match="tier"):
        JobLine.of(SimpleNamespace(state="queued"))
