import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.errors import ProviderError
from routing.model_call import SUMMARY, summary_of, way_out
from routing.policy.platform import platform_policy
from routing.queues import Tier
from sites.spec.drawings.requests import draw_tool
from sites.spec.model import parse_site
from tests.unit.sites.spec.drawings.test_requests import GOAT
from tests.unit.sites.spec.samples import element, page
from workers.attempt import Attempt, HandlerResources, Prompt
from workers.compute import collecting
from workers.handlers.model_task import Poor, Task, _use, by_model, decline, limits_of
from workers.handlers.spec_edit import edit_task
from workers.inputs import Inputs
from workers.outcomes import Answered, Candidate


@pytest.mark.parametrize("way", ["answer", "ask", "cannot"])
@pytest.mark.parametrize("begun", [None, "an earlier round"])
def test_what_follows_an_edit_that_a_model_left_empty_travels_from_the_child_that_computes_it(
    way: str, begun: Any
) -> None:
    inputs = SimpleNamespace(begun=begun, files={"index.html": b"<p>"}, spec=None, may_ask=True)
    declined = decline(cast(Inputs, inputs), {way: "It is so already."}, to=Tier.PATCH)
    assert pickle.loads(pickle.dumps(declined)) == declined
    assert "It is so already." in repr(declined)


def test_a_model_is_told_which_pictures_are_missing() -> None:
    """A page was made to look good without its pictures, and kept the frame of one that was no file (issue 20)."""
    files = {"index.html": b'<img src="assets/room.jpg"><img src="assets/door.jpg">', "assets/door.jpg": b""}
    inputs = SimpleNamespace(policy=platform_policy(), site=SimpleNamespace(profile="default"), files=files)
    assert limits_of(cast(Inputs, inputs)).endswith("Shown by pages, but no files of the site: 'assets/room.jpg'.")


@pytest.mark.parametrize(("page", "is_poor"), [(b'<a href="#none">x</a>', True), (b'<a href="/">x</a>', False)])
def test_a_fault_of_an_outline_is_told_before_its_drawing_is_asked_for(
    page: bytes, is_poor: bool, tmp_path: Path
) -> None:
    """A button led nowhere, and the drawing was refused for it and made twice (issue 20)."""
    site = SimpleNamespace(profile="default", id=None)
    store = SimpleNamespace(root=tmp_path)
    inputs = SimpleNamespace(policy=platform_policy(), site=site, files={}, content_store=store)
    candidate = Candidate(files={"index.html": page}, summary="")
    drawing = Task([], cast(Any, None), otherwise=lambda inputs: candidate)
    with collecting([]):
        result = _use(
            cast(Inputs, inputs), Task([], lambda inputs, replies: drawing), [{}], may_mend=True, known_keys=()
        )
    assert isinstance(result, Poor) is is_poor


@pytest.mark.parametrize("may_mend", [True, False])
def test_buttons_of_another_colour_than_was_asked_for_go_back_once(*, may_mend: bool, tmp_path: Path) -> None:
    """Olive was asked for the buttons, and the first one, on the picture, stood there in terracotta (issue 20)."""
    hero = element("Hero", heading="Bread", actions=[{"label": "Order", "href": "#hero"}], tone="deep")
    document = page(hero=hero)
    document["elements"]["page"]["props"]["theme"] = {"primary": "#5b6530", "accent": "#a34f2c"}
    site, spec = SimpleNamespace(profile="default", id=None), parse_site(document)
    inputs = SimpleNamespace(
        policy=platform_policy(),
        site=site,
        files={},
        content_store=SimpleNamespace(root=tmp_path),
        spec=spec,
        begun=None,
    )
    inputs.words = inputs.asked = "Olivgrün für die Knöpfe"
    made = Candidate(files={}, summary="All olive.", spec=spec.canonical().encode())
    with collecting([]):
        task = replace(edit_task(cast(Inputs, inputs), spec, frozenset()), use=lambda inputs, replies: made)
        result = _use(cast(Inputs, inputs), task, [{}], may_mend=may_mend, known_keys=())
    assert isinstance(result, Poor) is may_mend


def test_an_answer_keeps_its_lines_and_a_question_is_one() -> None:
    """An owner asked for a little list of colours, and got it as one line (issue 20)."""
    text = "Fonts:\n- Georgia\n\n- Gill\x00 Sans\n"
    assert way_out({"answer": text}, "answer") == "Fonts:\n- Georgia\n- Gill Sans"
    assert way_out({"ask": text}, "ask") == "Fonts: - Georgia - Gill Sans"


def test_a_report_to_the_owner_is_whole_up_to_a_thousand_letters() -> None:
    """Of nine changes and what was noticed beside them, 600 letters held a part (issue 20)."""
    said = ("The hours are changed. " * 44)[:998] + "."
    assert SUMMARY["maxLength"] == 1_000
    assert summary_of({"summary": said}, otherwise="") == said


def test_of_calls_side_by_side_those_that_came_whole_are_used() -> None:
    """One drawing of three was cut off, and all were paid for again (read before release)."""
    whole, cut = (
        SimpleNamespace(input={"shapes": GOAT}, is_cut=False),
        SimpleNamespace(input={"shapes": []}, is_cut=True),
    )
    used: list[Any] = []

    def use(_: Inputs, replies: Any) -> Answered:
        used.append(replies)
        return Answered("done")

    def call(*_: Any, until: float | None, **__: Any) -> Any:
        untils.append(until)
        if not replies:
            raise ProviderError(404, "no such model")
        return replies.pop()

    replies, untils = [[whole, cut]], list[float | None]()
    attempt = SimpleNamespace(
        policy=platform_policy(),
        limits=platform_policy().limits_of(Tier.SPEC),
        began=0.0,
        resources=HandlerResources(gateway_url="http://127.0.0.1:1"),
        tool_calls=call,
        compute=lambda work, *values, **named: work(cast(Inputs, None), *values, **named),
    )
    prompt = Prompt("spec_draw", "", draw_tool(), [])
    task = Task([prompt, prompt], use, otherwise=lambda inputs: Answered("none"))
    assert by_model(cast(Attempt, attempt), task) == Answered("done")
    assert used == [[{"shapes": GOAT}, {}]]
    assert by_model(cast(Attempt, attempt), task) == Answered("none")  # what was asked first is there and paid
    with pytest.raises(ProviderError):
        by_model(cast(Attempt, attempt), replace(task, otherwise=None))
    assert untils == [22, 22, None]  # of 25 seconds, so that a site is still built without what takes longer
