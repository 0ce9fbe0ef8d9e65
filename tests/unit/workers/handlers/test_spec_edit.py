import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from routing.policy.platform import platform_policy
from sites.spec.edit import apply_edit
from sites.spec.model import Site, parse_site
from sites.spec.render import render
from tests.unit.sites.spec.samples import demo_site, element, page
from workers.compute import collecting
from workers.handlers.model_task import Poor
from workers.handlers.spec_edit import _edited, edit_task
from workers.inputs import Inputs
from workers.outcomes import Candidate

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
        ({"preset": "clay", "deep": {"$state": "/night"}}, "background #f6efe6, deep #123524; buttons and links"),
    ],
)
def test_an_edit_knows_the_colours_that_a_preset_chose(theme: Mapping[str, Any], told: str) -> None:
    """'The green buttons' stayed green: that green is the preset's accent, which no document names (issue 20)."""
    document = page(hero=element("Hero", heading="Rooms"))
    document["elements"]["page"]["props"]["theme"] = theme
    document["state"] = {"night": "#123524"}
    assert told in prompt_of("Make the green buttons red", parse_site(document))[0]


def test_a_round_knows_what_would_undo_the_work_before_it() -> None:
    """'Put the plan back to how it looked before' could only be guessed (issue 20)."""
    live, path = demo_site(), "/pages/index.html/elements/hero/props/heading"
    site = apply_edit(live, [{"op": "replace", "path": path, "value": "Bread"}])
    heading = live.pages["index.html"]["elements"]["hero"]["props"]["heading"]
    assert json.dumps([{"op": "replace", "path": path, "value": heading}]) in undone_of(live, site, edited=site)


def test_a_round_is_not_told_to_undo_its_own_job_s_work_or_nothing() -> None:
    live = demo_site()
    begun = apply_edit(live, [{"op": "replace", "path": "/pages/index.html/elements/hero/props/heading", "value": "B"}])
    translated = parse_site({"pages": {**begun.pages, "de/index.html": live.pages["index.html"]}})
    told = undone_of(live, begun, edited=translated)
    assert "would be undone" in told
    assert "de/index.html" not in told.replace("~1", "/")
    assert "would be undone" not in undone_of(live, live, edited=translated)


def undone_of(live: Site, begun: Site, *, edited: Site) -> str:
    base = SimpleNamespace(spec_sha256="live")
    store = SimpleNamespace(get={"live": live.canonical()}.__getitem__)
    round_of = inputs_of(words="x", asked="x", begun=base, base=base, content_store=store, spec=begun)
    (prompt,) = edit_task(round_of, edited, frozenset()).prompts
    return prompt.parts[1].text


@pytest.mark.parametrize(
    ("beside", "facts"),
    [
        ({"ask": "Who teaches on 8 May?"}, {"open_question": "Who teaches on 8 May?", "needs_person": True}),
        ({"cannot": "A calculator is none of the parts."}, {}),
    ],
)
def test_what_is_clear_is_done_and_the_rest_is_told_or_asked_with_the_preview(
    beside: dict[str, str], facts: dict[str, Any]
) -> None:
    """A request of nine parts stood still for one open fact (issue 20)."""
    path = "/pages/index.html/elements/hero/props/heading"
    reply = {"operations": [{"op": "replace", "path": path, "value": "Bread"}], "summary": "A new heading.", **beside}
    with collecting([]):
        made = _edited(inputs_of(words="x", spec=demo_site()), [reply])
    assert isinstance(made, Candidate)
    assert made.summary == f"A new heading. {next(iter(beside.values()))}"
    assert {name: made.facts[name] for name in facts} == facts


def test_a_picture_that_a_person_wants_off_the_web_goes_from_the_site_s_files_too() -> None:
    """ "Take down the picture, the person in it has asked me to": its address still showed it (issue 20)."""
    gallery = "/pages/index.html/elements/gallery/props/images"
    operations = [{"op": "remove", "path": f"{gallery}/1"}]
    reply = {"operations": operations, "summary": "It is gone.", "withdraw": ["assets/rye.svg", "index.html", "a.svg"]}
    pictures = {"assets/rye.svg": b"<svg/>", "assets/bun.svg": b"<svg/>"}
    with collecting([]):
        gone = _edited(inputs_of(words="x", spec=demo_site(), files=FILES | pictures), [reply])
        shown = _edited(
            inputs_of(words="x", spec=demo_site(), files=FILES | pictures), [{**reply, "withdraw": ["assets/bun.svg"]}]
        )
    assert isinstance(gone, Candidate)
    assert (FILES | pictures).keys() - gone.files.keys() == {"assets/rye.svg"}
    assert isinstance(shown, Poor)
    assert "assets/bun.svg" in shown.detail


def prompt_of(words: str, site: Site) -> tuple[str, str]:
    (prompt,) = edit_task(inputs_of(words=words, asked=words), site, frozenset()).prompts
    document, request = prompt.parts
    return document.text, request.text


def inputs_of(**given: Any) -> Inputs:
    site = SimpleNamespace(profile="default")
    known = {"files": FILES, "site": site, "policy": platform_policy(), "begun": None}
    return cast(Inputs, SimpleNamespace(**{**known, **given}))
