from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from routing.jobs import Reason
from sites.spec.languages.translation import choose_texts
from sites.spec.outline import expand_outline
from tests.unit.sites.spec.drawings.test_requests import GOAT
from tests.unit.sites.spec.test_outline import OUTLINE
from workers.attempt import Inputs
from workers.handlers.model_task import Poor, Task
from workers.handlers.new_site import _new_site, _with_versions


def test_a_number_that_no_text_has_is_the_models_fault_where_a_new_site_is_translated() -> None:
    site = expand_outline(OUTLINE)
    texts = choose_texts(site, "")
    reply = {"texts": [{"n": 9_999, "text": "Willkommen"}]}
    spec = site.canonical()
    inputs = cast(Inputs, SimpleNamespace(words=""))
    poor = _with_versions(inputs, [reply], spec=spec, texts=texts, further=["de"], summary="")
    assert isinstance(poor, Poor)
    assert poor.reason is Reason.SPEC_INVALID


def test_a_drawing_for_which_a_document_has_no_room_is_refused_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = expand_outline({**OUTLINE, "drawing": "a goat"}).canonical()
    inputs = cast(Inputs, SimpleNamespace(words="", asked="A site", spec=None, site=None))
    task = _new_site(inputs, spec=spec, summary="")
    assert isinstance(task, Task)
    monkeypatch.setattr("sites.spec.model.MAX_SITE_BYTES", len(spec.encode()) + 50)
    refused = task.use(inputs, [{"shapes": GOAT}])
    assert isinstance(refused, Poor)
    assert "holds at most" in refused.detail


def test_of_several_drawings_those_that_came_out_are_shown_and_the_owner_is_told_of_the_others() -> None:
    about = {"kind": "RichText", "text": "We began with two.", "drawing": "two kids in straw"}
    outline = {**OUTLINE, "drawing": "a goat", "sections": [*OUTLINE["sections"], about]}
    inputs = cast(Inputs, SimpleNamespace(words="", asked="A site", spec=None, site=None))
    task = _new_site(inputs, spec=expand_outline(outline).canonical(), summary="")
    assert isinstance(task, Task)
    assert ["The drawing shows: a goat" in part[0].text for part in task.prompts] == [True, False]
    seen: dict[str, Any] = {}
    use = partial(task.use, then=lambda _, **given: seen.update(given))
    assert isinstance(use(inputs, [{}, {}]), Poor)
    use(inputs, [{"shapes": GOAT}, {}])
    assert "M60 500" in seen["spec"]
    assert "two kids" not in seen["spec"]
    assert seen["left"] == ("the drawing did not come out, so ask for it once more",)
    use(inputs, [{"shapes": GOAT}, {"shapes": GOAT}])
    assert not seen["left"]
    more = [{**about, "drawing": f"kid {number}"} for number in range(4)]
    outline["sections"] = [*OUTLINE["sections"], *more]
    task = _new_site(inputs, spec=expand_outline(outline).canonical(), summary="")
    assert isinstance(task, Task)
    partial(task.use, then=lambda _, **given: seen.update(given))(inputs, [{"shapes": GOAT}] * 3)
    assert len(seen["left"]) == 1  # two of five were not drawn
