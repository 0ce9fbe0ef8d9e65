"""Tier 1's limits, and what it makes of an edit that a model left empty."""

import pickle
from types import SimpleNamespace
from typing import Any, cast

import pytest

from routing.jobs import Reason
from routing.model_call import summary_of, way_out
from routing.policy.platform import platform_policy
from routing.queues import Tier
from sites.spec.languages.translation import choose_texts
from sites.spec.model import INDEX
from sites.spec.outline import expand_outline
from sites.spec.render import render
from tests.unit.sites.spec.languages.test_versions import in_french
from tests.unit.sites.spec.samples import demo_site
from tests.unit.sites.spec.test_outline import OUTLINE
from workers.attempt import Inputs
from workers.handlers.spec import _in_language, _Poor, _rendered, _with_versions, decline


@pytest.mark.req("H-088")
def test_the_limits_give_tier_one_no_container() -> None:
    limits = platform_policy().limits_of(Tier.SPEC)
    assert (limits.container, limits.network, limits.shell) == ("none", "none", "none")


@pytest.mark.parametrize("way", ["answer", "ask", "cannot"])
@pytest.mark.parametrize("begun", [None, "an earlier round"])
def test_what_follows_an_edit_that_a_model_left_empty_travels_from_the_child_that_computes_it(
    way: str, begun: Any
) -> None:
    inputs = SimpleNamespace(begun=begun, files={"index.html": b"<p>"}, spec=None, may_ask=True)
    declined = decline(cast(Inputs, inputs), {way: "It is so already."}, to=Tier.PATCH)
    assert pickle.loads(pickle.dumps(declined)) == declined
    assert "It is so already." in repr(declined)


def test_an_answer_keeps_its_lines_and_a_question_is_one() -> None:
    """An owner asked for a little list of colours, and got it as one line (issue 20)."""
    text = "Fonts:\n- Georgia\n\n- Gill\x00 Sans\n"
    assert way_out({"answer": text}, "answer") == "Fonts:\n- Georgia\n- Gill Sans"
    assert way_out({"ask": text}, "ask") == "Fonts: - Georgia - Gill Sans"


def test_a_number_that_no_text_has_is_the_models_fault_where_a_new_site_is_translated() -> None:
    site = expand_outline(OUTLINE)
    texts = choose_texts(site, "")
    reply = {"texts": [{"n": 9_999, "text": "Willkommen"}]}
    spec = site.canonical()
    inputs = cast(Inputs, SimpleNamespace(words=""))
    poor = _with_versions(inputs, [reply], spec=spec, texts=texts, further=["de"], summary="")
    assert isinstance(poor, _Poor)
    assert poor.reason is Reason.SPEC_INVALID


def test_a_page_of_only_some_sections_leaves_the_original_as_it_is_whatever_else_the_reply_says() -> None:
    site = demo_site()
    texts = choose_texts(site, "")
    hero = [n for n, entry in enumerate(texts.entries) if (entry.page, entry.element) == (INDEX, "hero")]
    reply = {"language": "de", "source": "en", "partial": True, "texts": [{"n": n, "text": "Brot"} for n in hero]}
    changed, _, left = _in_language(site, texts, [reply], owner="en")
    assert changed.pages[INDEX] == site.pages[INDEX]
    assert "hero" in changed.pages["de/index.html"]["elements"]
    assert left == []


def test_a_page_without_a_version_leads_to_the_new_language_unless_it_was_edited_by_hand() -> None:
    before, files = demo_site(), render(demo_site())
    site, built = _rendered(before, in_french(INDEX), files)
    assert b'href="fr/index.html"' in built["classes.html"]
    assert built == render(site)
    by_hand = files | {"classes.html": files["classes.html"] + b"<!-- mine -->"}
    site, built = _rendered(before, in_french(INDEX), by_hand)
    assert built["classes.html"] == by_hand["classes.html"]
    assert site == in_french(INDEX)


def test_a_report_to_the_owner_is_whole_up_to_six_hundred_letters() -> None:
    said = ("The hours are changed. " * 26)[:598] + "."
    assert summary_of({"summary": said}, otherwise="") == said
