from __future__ import annotations

import pytest

from routing.policy.platform import platform_policy
from sites.scan.engine import scan
from sites.scan.rules import csp_hash
from sites.spec.live import read_hours, script, sort_keys
from sites.spec.model import INDEX, parse_site
from sites.spec.render import render
from tests.unit.sites.spec.samples import demo_site, element, page

PROFILE = platform_policy().profiles["default"]
WEEK, WEEKEND = {0, 1, 2, 3, 4}, {5, 6}


@pytest.mark.parametrize(
    ("lang", "days", "times", "meant"),
    [
        ("en", "Mon–Fri", "7:00 – 18:00", (WEEK, [(420, 1080)])),
        ("en-GB", "Monday to Friday", "7am to 6.30 pm", (WEEK, [(420, 1110)])),
        ("en", "Sat, Sun", "closed", (WEEKEND, [])),
        ("en", "Saturdays and Sundays", "8:00-12:00", (WEEKEND, [(480, 720)])),
        ("en", "Fri", "18:00–2:00", ({4}, [(1080, 1560)])),
        ("en", "Fri-Mon", "12am–12pm", ({4, 5, 6, 0}, [(0, 720)])),
        ("de", "Mo. bis Fr.", "9–12, 14–18.30 Uhr", (WEEK, [(540, 720), (840, 1110)])),
        ("de", "Sonnabend", "Ruhetag", ({5}, [])),
        ("fr", "Lun au ven", "9h30 – 18h", (WEEK, [(570, 1080)])),
        ("es", "sábado y domingo", "10:00 a 14:00", (WEEKEND, [(600, 840)])),
        ("it", "tutti i giorni", "8–20", (WEEK | WEEKEND, [(480, 1200)])),
        ("nl", "ma t/m vr", "9:00 tot 17:30 uur", (WEEK, [(540, 1050)])),
    ],
)
def test_hours_are_read_as_visitors_read_them(
    lang: str, days: str, times: str, meant: tuple[set[int], list[tuple[int, int]]]
) -> None:
    line, _ = read_hours([(days, times), (days, "9:00–17:00")], lang) or ()
    assert (set(line.days), list(line.spans or ())) == meant


@pytest.mark.parametrize(
    ("lang", "days", "times"),
    [
        ("en", "Mon", "9–5"),
        ("en", "Mon", "2:00–6:00"),
        ("en", "Mon", "9:00–17:00, or by appointment"),
        ("en", "Mon", "9:00–17:00 (winter)"),
        ("en", "Mon", "9–5pm"),
        ("en", "Mon", "13pm–2pm"),
        ("en", "Mon", "25:00–26:00"),
        ("en", "Holidays", "9:00–17:00"),
        ("en", "T", "9:00–17:00"),
        ("de", "Tue", "9:00–17:00"),
        ("de", "Mo", "18–8 Uhr"),
        ("pl", "pon", "9:00–17:00"),
    ],
)
def test_hours_that_may_mean_something_else_are_not_read_at_all(lang: str, days: str, times: str) -> None:
    assert read_hours([("daily" if lang == "en" else days, "9:00–17:00"), (days, times)], lang) is None


def test_a_day_of_which_words_tell_is_known_without_hours() -> None:
    """A restaurant's Monday was "We are in the garden", and none of its hours were read (issue 20)."""
    lines = read_hours([("Wednesday to Sunday", "18:00 – 24:00"), ("Monday, Tuesday", "We are in the garden")], "en")
    assert [line.spans for line in lines or ()] == [((1080, 1440),), None]
    assert read_hours([("Mon", "mornings")], "en") is None, "no line has hours"


@pytest.mark.parametrize(
    ("cells", "keys"),
    [
        (["€38.00", "from €110", "€9.50"], ["38.00", "110", "9.50"]),
        (["1.200,50 €", "950 €", "12,5 €"], ["1200.50", "950", "12.5"]),
        (["1,200 kg", "0.125 kg"], ["1200", "0.125"]),
        ([True, False], ["1", "0"]),
        (["rye", "spelt"], ["rye", "spelt"]),
        (["1 h", "45 min"], None),
        (["€10–12", "€9"], None),
        (["€10", "on request"], None),
        (["Mail", True], None),
    ],
)
def test_a_column_is_sorted_by_amounts_of_one_unit_or_by_words(cells: list[bool | str], keys: list[str] | None) -> None:
    assert sort_keys(cells) == (keys and tuple(keys))


@pytest.mark.parametrize(
    ("ordered", "may_sort"),
    [
        (["0", "5 s", "30 s", True, "auto", "Émile", "set in version 9", "set in version 10", "—"], True),
        (["€9", "from €110", "on request", ""], True),
        (["Mail", "Phone", False], True),
        (["9", "10", "up to 3 of them", "–"], True),
        (["45 min", "1 h", "by agreement"], False),
    ],
)
def test_a_column_of_all_kinds_sorts_amounts_then_words_then_what_is_empty(
    ordered: list[bool | str], *, may_sort: bool
) -> None:
    """A column with numbers, words and dashes had no arrow (issue 20)."""
    keys = sort_keys(ordered[::-1], mixed=True)
    assert (keys is not None) == may_sort
    assert keys is None or [int(key) for key in keys] == [*range(len(ordered))][::-1]
    assert sort_keys(ordered) is None, "tables that were built before keep what they have"
    assert sort_keys(["rye", "spelt"], mixed=True) == ("rye", "spelt")


def test_the_one_script_of_the_builder_is_allowed_by_its_hash_where_a_page_needs_it_and_nowhere_else() -> None:
    rows = [{"label": "Cut", "values": ["€38"]}, {"label": "Beard", "values": ["€9"]}]
    table = element("ComparisonTable", columns=["Price"], corner="For", rows=rows, sortable=True)
    still = element("ComparisonTable", columns=["Price"], rows=rows)
    faked = element("RichText", heading='x data-live="sort"', body="y")
    footer = element("Footer", brand="x", hours=[{"days": "Mon", "time": "9:00–18:00"}], timezone="Europe/Berlin")
    unread = element("ContactForm", hours=[{"days": "Mon", "time": "mornings"}], timezone="Europe/Berlin")
    site = parse_site(
        {
            "pages": {
                INDEX: page(one=table),
                "b.html": page(one=footer),
                "c.html": page(one=still, two=faked, three=unread),
            }
        }
    )
    files = render(site)
    assert len(script()) < 2048
    assert [files[path].count(script().encode()) for path in sorted(site.pages)] == [1, 0, 1]
    assert not any(b"<script" in data for data in render(demo_site()).values())
    report = scan(files, PROFILE, profile_name="default")
    assert report.findings == ()
    source = script().removeprefix("<script>").removesuffix("</script>")
    assert f"script-src 'self' {csp_hash(source)};" in report.csp
    assert report.js_bytes == len(source)
