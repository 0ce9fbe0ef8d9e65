"""Charts are SVG that a strict page may show: no style, no script, and nothing that a name could smuggle in."""

import re

from hypothesis import given
from hypothesis import strategies as st

from producers.console.charts import Bar, Node, bars, graph

HOSTILE = '"><script>alert(1)</script>'


def node(key: str, *depends_on: str) -> Node:
    return Node(key, key, "pending", "still", depends_on)


def places(picture: str, *, axis: int = 0) -> dict[str, int]:
    found = re.findall(r'<title>([^:]+): [^<]*</title><rect class="[^"]*" x="(\d+)" y="(\d+)"', picture)
    return {title: int(place[axis]) for title, *place in found}


def test_a_step_stands_to_the_right_of_all_that_it_depends_on() -> None:
    x = places(
        graph(
            [node("end", "left", "right"), node("left", "plan"), node("right", "plan", "left"), node("plan")], title="t"
        )
    )
    assert x["plan"] < x["left"] < x["right"] < x["end"]


def test_for_a_phone_a_step_stands_below_what_it_depends_on_and_three_fit_beside_each_other() -> None:
    steps = [node("plan"), *(node(key, "plan") for key in "abc"), node("end", *"abc")]
    picture = graph(steps, title="t", is_tall=True)
    y = places(picture, axis=1)
    assert y["plan"] < y["a"] == y["b"] == y["c"] < y["end"]
    wide = re.search(r'width="(\d+)"', picture)
    assert wide is not None
    assert int(wide[1]) <= 332, "390 less the margins of page and card"


def test_a_circle_of_steps_is_drawn_and_ends() -> None:
    assert graph([node("a", "b"), node("b", "a")], title="t").count("<rect") == 2


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefg"), st.sets(st.sampled_from("abcdefgh"))),
        max_size=7,
        unique_by=lambda one: one[0],
    )
)
def test_any_plan_is_drawn_whole(steps: list[tuple[str, set[str]]]) -> None:
    picture = graph([node(key, *sorted(depends)) for key, depends in steps], title="t")
    assert picture.count('class="node ') == len(steps)


def test_what_people_wrote_stays_text() -> None:
    picture = graph([Node("k", HOSTILE, HOSTILE, "good", ())], title=HOSTILE)
    picture += bars([Bar(HOSTILE, (("good", 1),), HOSTILE)], title=HOSTILE, top_label=HOSTILE)
    assert "<script" not in picture
    assert "style=" not in picture


def test_bars_stand_in_proportion_and_nothing_has_none() -> None:
    picture = bars(
        [Bar("a", (("good", 10),), "10"), Bar("b", (("good", 5), ("bad", 0)), "5")], title="t", top_label="10"
    )
    tall = [float(height) for height in re.findall(r'class="bar good"[^>]*height="([\d.]+)"', picture)]
    assert tall[0] == 2 * tall[1]
    assert 'class="bar bad"' not in picture


def test_no_bars_at_all_still_make_a_chart() -> None:
    assert "<svg" in bars([], title="nothing", top_label="0")


# Every kind of event is told in words, and nothing in an event can break its line.
