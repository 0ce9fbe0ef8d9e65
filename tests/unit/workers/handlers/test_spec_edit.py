from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from routing.policy.platform import platform_policy
from sites.spec.model import Site, parse_site
from sites.spec.render import render
from tests.unit.sites.spec.samples import demo_site, element, page
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
    document, request = prompt_of(words, demo_site())
    assert 'beside its pages: "assets/preise.pdf"\n' in document
    assert told in request


@pytest.mark.parametrize(
    ("theme", "told"),
    [
        ({"preset": "clay"}, "primary #a8502f, accent #5f7a61, background #f6efe6, deep #2d1b13, made of primary"),
        ({"preset": "clay", "deep": "#123524"}, "background #f6efe6, deep #123524; buttons and links on deep"),
    ],
)
def test_an_edit_knows_the_colours_that_a_preset_chose(theme: Mapping[str, str], told: str) -> None:
    """'The green buttons' stayed green: that green is the preset's accent, which no document names (issue 20)."""
    document = page(hero=element("Hero", heading="Rooms"))
    document["elements"]["page"]["props"]["theme"] = theme
    assert told in prompt_of("Make the green buttons red", parse_site(document))[0]


def prompt_of(words: str, site: Site) -> tuple[str, str]:
    asked = SimpleNamespace(
        words=words, asked=words, files=FILES, site=SimpleNamespace(profile="default"), policy=platform_policy()
    )
    ((document, request),) = edit_task(cast(Inputs, asked), site, frozenset()).prompts
    return document.text, request.text
