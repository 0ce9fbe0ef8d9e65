import json
from typing import Any

import pytest

from sites.errors import SpecError
from sites.spec.outline import expand_outline
from sites.spec.outlines.proofreading import corrected, proof_of, proofreading_tool, unsaid
from tests.unit.sites.spec.test_outline import OUTLINE


def test_a_proofreader_sees_the_outline_the_pages_and_the_words_that_no_page_has() -> None:
    """A boat with a wheelchair ramp was to be hired, and no page spoke of the ramp (issue 20)."""
    request = f"{OUTLINE['name']}, and there is a ramp for wheelchairs, 19 euros, no pets. Ramps!"
    proof = proof_of(request, OUTLINE, expand_outline(OUTLINE))
    assert json.dumps(OUTLINE["sections"][0]["heading"]) in proof
    assert f"\n/sections/4: {json.dumps(OUTLINE['sections'][4])}\n" in proof, "a path that nobody has to count"
    assert "Page index.html:" in proof
    assert "](" in proof, "where buttons lead"
    assert proof.endswith("stand nowhere on the site: there, ramp, wheelchairs, 19, euros, pets")


@pytest.mark.parametrize(
    ("word", "read"), [("Wheelchairs", "A wheelchair fits"), ("Öffnet", "öffnen"), ("35", "35,00 EUR"), ("tea", "")]
)
def test_a_word_with_another_ending_is_said(word: str, read: str) -> None:
    assert list(unsaid(word, read)) == []


def test_corrections_are_made_in_their_order_and_the_outline_they_are_of_stays() -> None:
    before = json.dumps(OUTLINE)
    changes: list[dict[str, Any]] = [
        {"op": "add", "path": "/sections/1", "value": {"kind": "RichText", "text": "A ramp leads to the door."}},
        {"op": "replace", "path": "/sections/1/text", "value": "A ramp leads in."},
        {"op": "add", "path": "/summary", "value": "With the ramp."},
    ]
    outline = corrected(OUTLINE, {"corrections": changes})
    assert outline["sections"][1] == {"kind": "RichText", "text": "A ramp leads in."}
    assert outline["sections"][2:] == OUTLINE["sections"][1:]
    assert outline["summary"] == "With the ramp."
    assert json.dumps(OUTLINE) == before
    assert "A ramp leads in." in expand_outline(outline).canonical()


@pytest.mark.parametrize(
    ("correction", "code"),
    [
        ({"op": "replace", "path": "/theme/primary", "value": "#000000"}, "bad_operation"),
        ({"op": "replace", "path": "/drawing", "value": "a boat"}, "bad_operation"),
        ({"op": "move", "path": "/sections/1", "from": "/sections/2"}, "bad_operation"),
        ({"op": "remove", "path": "/sections/90"}, "patch_failed"),
        ({"op": "add", "path": "/sections/x/items/-", "value": {}}, "patch_failed"),
        ("Add the ramp", "bad_operation"),
    ],
)
def test_corrections_that_cannot_be_made_are_refused_whole(correction: Any, code: str) -> None:
    fine = {"op": "replace", "path": "/name", "value": "Another"}
    with pytest.raises(SpecError) as refused:
        corrected(OUTLINE, {"corrections": [fine, correction]})
    assert refused.value.findings[0].code == code


def test_a_proofreader_may_say_that_nothing_is_wrong() -> None:
    schema = proofreading_tool()["input_schema"]
    assert schema["required"] == ["corrections"]
    assert corrected(OUTLINE, {"corrections": []}) == OUTLINE
