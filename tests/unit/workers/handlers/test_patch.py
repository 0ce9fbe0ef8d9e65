from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from routing.jobs import Reason, State
from routing.policy.platform import platform_policy
from routing.queues import Tier
from workers.attempt import Attempt, HandlerResources, Prompt
from workers.compute import collecting
from workers.handlers.patch import _apply, _patch, _show
from workers.inputs import Inputs
from workers.outcomes import Candidate, Ended, Escalate

PAGE = "<h1>{}</h1>\n" + "<p>Bread from an old oven, on the table at eight.</p>\n" * 300
FILES = {f"{name}.html": PAGE.format(name).encode() for name in ("index", "classes", "contact")}


def test_a_file_that_a_model_asks_for_comes_beside_those_that_it_saw() -> None:
    """With the second page, the first one was gone, was asked for in vain, and the job went to tier 3 (issue 20)."""
    inputs = inputs_for("A red strip on the contact page")
    first = _show(inputs)
    assert set(first.seen) == {"contact.html"}
    again = _show(inputs, ["classes.html", *first.pages])
    assert set(again.seen) == {"contact.html", "classes.html"}


def test_a_model_that_asks_again_is_shown_that_too_before_its_last_try() -> None:
    """It got 'no diff, write hunks' instead of the page, and gave up (issue 20)."""
    inputs, seen = inputs_for("A red strip on the contact page"), list[str]()
    edit = "index.html\n<<<<<<< SEARCH\n<h1>index</h1>\n=======\n<h1>Strip</h1>\n>>>>>>> REPLACE\n"
    asking = [{"patch": "", "show": [f"{name}.html"]} for name in ("classes", "index")]
    replies = iter([*asking, {"patch": edit, "summary": "A strip."}])

    def tool_call(prompt: Prompt) -> SimpleNamespace:
        seen[:] = [part.text for part in prompt.parts]
        return SimpleNamespace(input=next(replies), is_cut=False)

    def compute(step: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return step(inputs, *args, **named)

    told: list[Any] = []
    attempt = SimpleNamespace(
        policy=inputs.policy,
        asked=inputs.words,
        resources=HandlerResources(gateway_url="http://127.0.0.1:1"),
        kept=[],
        compute=compute,
        tool_call=tool_call,
        report=lambda kind, data: told.append(data["asked_to_see"]),
    )
    with collecting([]):
        made = _patch(cast(Attempt, attempt), _show(inputs))
    assert isinstance(made, Candidate)
    assert all(f"<h1>{name}</h1>" in seen[0] for name in ("index", "classes", "contact"))
    assert len(seen) == 2, "nothing was refused"
    assert told == [1, 1]


@pytest.mark.req("H-069", "H-122")
def test_a_patch_that_no_repair_mends_goes_to_tier_3_at_once_unless_nothing_may_reach_there() -> None:
    def applied(patch: str) -> object:
        reply = {"patch": patch, "summary": "Renamed."}
        with collecting([]):
            return _apply(inputs_for("Rename it"), reply, seen={}, may_mend=True, known_keys=())

    binary = applied("diff --git a/a.png b/a.png\nindex 1..2 100644\nBinary files a/a.png and b/a.png differ\n")
    assert isinstance(binary, Escalate)
    assert (binary.to, binary.reason) == (Tier.AGENT, Reason.PATCH_INVALID)
    outside = applied("../index.html\n<<<<<<< SEARCH\n=======\nhello\n>>>>>>> REPLACE\n")
    assert isinstance(outside, Ended)
    assert (outside.state, outside.reason) == (State.FAILED, Reason.PATCH_REFUSED)


def inputs_for(words: str) -> Inputs:
    site = SimpleNamespace(profile="default")
    given = SimpleNamespace(words=words, asked=words, files=FILES, start=None, site=site, policy=platform_policy())
    return cast(Inputs, given)
