import pickle
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from routing.jobs import OPEN_QUESTION, Reason
from routing.policy.platform import platform_policy
from sites.spec.languages.translation import choose_texts
from sites.spec.outline import expand_outline
from tests.unit.sites.spec.drawings.test_requests import GOAT
from tests.unit.sites.spec.test_outline import OUTLINE
from workers.compute import collecting
from workers.handlers.model_task import Poor, Task
from workers.handlers.new_site import _new_site, _with_versions, outline_task
from workers.inputs import Inputs
from workers.outcomes import Candidate


def test_a_number_that_no_text_has_is_the_models_fault_where_a_new_site_is_translated() -> None:
    site = expand_outline(OUTLINE)
    texts = choose_texts(site, "")
    reply = {"texts": [{"n": 9_999, "text": "Willkommen"}]}
    spec = site.canonical()
    inputs = cast(Inputs, SimpleNamespace(words=""))
    poor = _with_versions(inputs, [reply], spec=spec, texts=texts, further=["de"], outline={})
    assert isinstance(poor, Poor)
    assert poor.reason is Reason.SPEC_INVALID


def test_an_outline_is_asked_for_as_all_else_is_with_the_day() -> None:
    """A date without its year, or a weekday that is none, could not be seen (issue 20)."""
    (prompt,) = outline_task(cast(Inputs, SimpleNamespace(asked="Today is Monday 2026-11-30. We open in May."))).prompts
    assert [part.text for part in prompt.parts] == ["Today is Monday 2026-11-30. We open in May."]


def test_what_an_outline_asks_stays_open_and_needs_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """A form waited for its address, and policy could have published without it (issue 20)."""
    monkeypatch.setattr("workers.handlers.new_site.candidate_of", lambda *_, **told: Candidate({}, told["summary"]))
    inputs, outline = cast(Inputs, SimpleNamespace(words="")), {**OUTLINE, "ask": "Which address?"}
    made = _new_site(inputs, spec=expand_outline(OUTLINE).canonical(), outline=outline)
    assert isinstance(made, Candidate)
    assert made.facts == {OPEN_QUESTION: "Which address?", "needs_person": True}


def test_a_drawing_for_which_a_document_has_no_room_is_refused_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = expand_outline({**OUTLINE, "drawing": "a goat"}).canonical()
    inputs = cast(Inputs, SimpleNamespace(words="", asked="A site", spec=None, site=None))
    task = _new_site(inputs, spec=spec, outline={})
    assert isinstance(task, Task)
    monkeypatch.setattr("sites.spec.model.MAX_SITE_BYTES", len(spec.encode()) + 50)
    refused = task.use(inputs, [{"shapes": GOAT}])
    assert isinstance(refused, Poor)
    assert "holds at most" in refused.detail


def test_of_several_drawings_those_that_came_out_are_shown_and_the_owner_is_told_of_the_others() -> None:
    about = {"kind": "RichText", "text": "We began with two.", "drawing": "two kids in straw"}
    outline = {**OUTLINE, "drawing": "a goat", "sections": [*OUTLINE["sections"], about]}
    inputs = cast(Inputs, SimpleNamespace(words="", asked="A site", spec=None, site=None))
    task = _new_site(inputs, spec=expand_outline(outline).canonical(), outline=outline)
    assert isinstance(task, Task)
    assert ["The drawing shows: a goat" in prompt.parts[0].text for prompt in task.prompts] == [True, False]
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
    task = _new_site(inputs, spec=expand_outline(outline).canonical(), outline=outline)
    assert isinstance(task, Task)
    partial(task.use, then=lambda _, **given: seen.update(given))(inputs, [{"shapes": GOAT}] * 3)
    assert len(seen["left"]) == 1  # two of five were not drawn


INPUTS = cast(
    Inputs,
    SimpleNamespace(
        words="",
        order="A site for a dentist",
        asked="A site",
        spec=None,
        files={},
        site=SimpleNamespace(profile="default"),
        policy=platform_policy(),
    ),
)
RAMP = {"kind": "RichText", "heading": "Getting in", "text": "A ramp leads to the door."}


def _begun(outline: dict[str, Any]) -> Task:
    with collecting([]):
        task = outline_task(INPUTS).use(INPUTS, [outline])
    assert isinstance(task, Task)
    return cast(Task, pickle.loads(pickle.dumps(task)))  # as it comes from a child


def _candidate(outcome: object) -> Candidate:
    assert isinstance(outcome, Candidate)
    return outcome


def _made(task: Task, replies: list[dict[str, Any]]) -> dict[str, str]:
    with collecting([]):
        made = _candidate(task.use(INPUTS, replies))
    return {"spec": (made.spec or b"").decode(), "how": made.facts["how"]}


@pytest.mark.parametrize("drawing", [{"drawing": "a goat"}, {}])
def test_a_new_site_is_proofread_beside_its_drawings_and_corrected(drawing: dict[str, str]) -> None:
    """Two of five new sites left a fact of their owner's mail out (issue 20)."""
    task = _begun({**OUTLINE, **drawing})
    assert [prompt.purpose for prompt in task.prompts] == ["spec_draw"] * len(drawing) + ["spec_proof"]
    drawn = [{"shapes": GOAT}] * len(drawing)
    done = _made(task, [*drawn, {"corrections": [{"op": "add", "path": "/sections/1", "value": RAMP}]}])
    assert "A ramp leads to the door." in done["spec"]
    assert ("M60 500" in done["spec"]) is bool(drawing)
    assert done["how"] == "a model's outline; corrections of its proofreader: 1"
    for nothing in ({"corrections": []}, {}):
        assert "ramp" not in _made(task, [*drawn, nothing])["spec"]


@pytest.mark.parametrize(
    "correction",
    [
        None,
        {"op": "remove", "path": "/sections/90"},
        {"op": "add", "path": "/sections/1", "value": {**RAMP, "kind": "Nonsense"}},
        {"op": "add", "path": "/sections/1", "value": {**RAMP, "drawing": "a ramp"}},
        {"op": "add", "path": "/sections/1", "value": {**RAMP, "text": "See [the ramp](gone.html)."}},
    ],
)
def test_corrections_that_break_a_new_site_leave_it_as_it_was(correction: dict[str, Any] | None) -> None:
    outline = {**OUTLINE, "drawing": "a goat"}
    done = _made(_begun(outline), [{"shapes": GOAT}, {"corrections": [correction] if correction else 5}])
    assert "corrections of its proofreader that cannot be made" in done["how"]
    assert done["spec"] == _made(_begun(outline), [{"shapes": GOAT}, {}])["spec"]


def test_without_its_proofreader_a_new_site_is_what_its_outline_made_it() -> None:
    task = _begun(OUTLINE)
    assert task.otherwise is not None
    with collecting([]):
        made = _candidate(task.otherwise(INPUTS))
    assert (made.spec or b"").decode() == _made(task, [{}])["spec"]
