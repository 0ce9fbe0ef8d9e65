from __future__ import annotations

import pytest

from sites.spec.edit import edit_tool
from sites.spec.languages.translation import translate_tool
from sites.spec.outline import outline_tool
from workers.handlers.cut_replies import Begun

ONE, TWO = ({"op": "remove", "path": f"/pages/index.html/elements/{key}"} for key in ("one", "two"))


def test_whole_entries_of_a_cut_reply_are_kept_and_the_rest_is_put_behind_them() -> None:
    begun = Begun.of({"operations": [ONE, {"op": "add"}]}, edit_tool())
    assert begun is not None
    assert "elements/one" in begun.request()
    assert begun.joined({"operations": [TWO], "summary": "Done."}) == {"operations": [ONE, TWO], "summary": "Done."}
    assert begun.joined({"operations": [], "summary": "Done."})["operations"] == [ONE]


def test_a_reply_that_was_cut_behind_its_list_keeps_all_of_it() -> None:
    begun = Begun.of({"operations": [ONE, TWO], "summary": "Do"}, edit_tool())
    assert begun is not None
    assert begun.joined({"summary": "Done."}) == {"operations": [ONE, TWO], "summary": "Done."}


def test_a_rest_that_says_why_there_is_none_is_the_reply_so_that_no_half_edit_is_shown() -> None:
    begun = Begun.of({"operations": [ONE, TWO]}, edit_tool())
    assert begun is not None
    assert begun.joined({"operations": [], "cannot": "No."}) == {"operations": [], "cannot": "No."}


@pytest.mark.parametrize("reply", [{}, {"operations": [{"op": "add"}]}, {"operations": "x"}, {"summary": "x"}])
def test_of_a_reply_that_was_cut_in_its_first_entry_nothing_is_kept(reply: dict[str, object]) -> None:
    assert Begun.of(reply, edit_tool()) is None


def test_every_tool_of_tier_one_has_one_list_that_holds_the_work() -> None:
    assert Begun.of({"texts": [{"n": 1, "text": "x"}, {}]}, translate_tool()) is not None
    assert Begun.of({"sections": [{"kind": "Hero"}, {}]}, outline_tool()) is not None
