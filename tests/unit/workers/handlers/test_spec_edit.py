from types import SimpleNamespace
from typing import cast

import pytest

from routing.policy.platform import platform_policy
from sites.spec.render import render
from tests.unit.sites.spec.samples import demo_site
from workers.attempt import Inputs
from workers.handlers.spec_edit import edit_task

FILES = render(demo_site()) | {"assets/preise.pdf": b"%PDF", "fonts/bitter-1-LICENSE.txt": b"Copyright"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("Link to the price list I've put in as assets/preise.pdf", 'name these files: "assets/preise.pdf"'),
        (
            "Link to the price list I've put in as assets/menu.pdf",
            'leads nowhere and the owner has to be told: "assets/menu',
        ),
    ],
)
def test_an_edit_knows_the_files_of_its_site_and_whether_one_that_the_owner_names_is_there(
    words: str, told: str
) -> None:
    """A link to a price list could only be guessed (issue 20)."""
    site = SimpleNamespace(profile="default")
    given = SimpleNamespace(words=words, asked=words, files=FILES, site=site, policy=platform_policy())
    ((document, request),) = edit_task(cast(Inputs, given), demo_site(), frozenset()).prompts
    assert 'beside its pages: "assets/preise.pdf"\n' in document.text
    assert told in request.text
