from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sites.spec.model import INDEX, MAX_ELEMENTS, Site, parse_site
from sites.spec.validate import auto_fix, validate
from tests.unit.sites.spec.samples import codes, demo_site, element, every_component, findings, holding, nested, page
from tests.unit.sites.spec.test_model import json_values


def test_the_example_of_every_component_is_valid() -> None:
    assert codes(every_component()) == set()


@pytest.mark.req("H-025")
def test_findings_point_at_the_place_in_the_spec() -> None:
    bad = page(hero=element("Hero", heading="Hi", actions=[{"label": "x", "href": "javascript:alert(1)"}]))
    assert [(finding.code, finding.path) for finding in findings(bad)] == [
        ("bad_url", f"/pages/{INDEX}/elements/hero/props/actions/0/href")
    ]
    unknown = page(hero=element("Marquee"))
    assert [(finding.code, finding.path) for finding in findings(unknown)] == [
        ("unknown_type", f"/pages/{INDEX}/elements/hero/type")
    ]


def hero(**fields: Any) -> dict[str, Any]:
    return page(hero={**element("Hero", heading="Hi"), **fields})


def chain(length: int) -> dict[str, Any]:
    links = {f"s{n}": holding("Stack", f"s{n + 1}") for n in range(length)}
    return nested(**links, **{f"s{length}": element("Text", text="end")})


UPSTREAM_RULES: dict[str, Any] = {
    "missing_root": {"root": "", "elements": {"a": element("Text", text="x")}},
    "root_not_found": {"root": "gone", "elements": {"a": element("Text", text="x")}},
    "empty_spec": {"root": "page", "elements": {}},
    "missing_child": {
        "root": "page",
        "elements": {"page": {"type": "Page", "props": {"title": "x"}, "children": ["no"]}},
    },
    "visible_in_props": page(hero=element("Hero", heading="x", visible=True)),
    "on_in_props": page(hero=element("Hero", heading="x", on={})),
    "repeat_in_props": page(hero=element("Hero", heading="x", repeat={})),
    "watch_in_props": page(hero=element("Hero", heading="x", watch={})),
    "children_in_props": page(hero=element("Hero", heading="x", children=[])),
    "invalid_visible": hero(visible={"$state": "/a", "$item": "b"}),
    "repeat_without_children": hero(repeat={"statePath": "/list"}),
    "repeat_item_outside_scope": nested(
        g=holding("Grid", "t", repeat={"statePath": {"$item": "list"}}), t=element("Text", text="x")
    ),
    "repeat_state_mismatch": nested(g=holding("Grid", "t", repeat={"statePath": "/list"}), t=element("Text", text="x"))
    | {"state": {"list": "no list"}},
}
OWN_RULES: dict[str, Any] = {
    "bad_key": {"root": "page", "elements": {"page": element("Page", title="x"), '"><script>': element("Text")}},
    "unknown_field": hero(onclick="alert(1)"),
    "unknown_type": page(x=element("Script", src="x")),
    "unknown_prop": page(hero=element("Hero", heading="x", onload="alert(1)")),
    "missing_prop": page(hero=element("Hero")),
    "bad_prop": page(hero=element("Hero", heading="x" * 1000)),
    "bad_url": page(image=element("Image", src="data:image/svg+xml,<svg onload=alert(1)>", alt="x")),
    "not_a_page": {"root": "a", "elements": {"a": element("Text", text="x")}},
    "misplaced": nested(s=holding("Section", "f"), f=element("Footer", brand="x")),
    "no_children": nested(hero=holding("Hero", "other", props={"heading": "x"}), other=element("Text", text="x")),
    "unknown_slot": hero(slots={"footer": []}),
    "shared_child": page(a=holding("Stack", "c"), c=element("Text", text="x")),
    "cycle": nested(a=holding("Stack", "b"), b=holding("Stack", "a")),
    "too_deep": chain(60),
    "too_large": page(**{f"t{n}": element("Text", text="x") for n in range(MAX_ELEMENTS + 1)}),
    "bad_expression": page(hero=element("Hero", heading={"$state": "/a", "$item": "b"})),
    "unknown_function": page(hero=element("Hero", heading={"$computed": "fetch", "args": {}})),
    "on_unsupported": hero(on={"press": {"action": "setState", "params": {}}}),
    "watch_unsupported": hero(watch={"/a": {"action": "setState"}}),
    "bad_repeat": hero(repeat={"statePath": 7}),
    "bad_colour": {"root": "p", "elements": {"p": element("Page", title="x", theme={"primary": "red;}*{color:red"})}},
}


@pytest.mark.req("H-002")
@pytest.mark.parametrize(("code", "spec"), UPSTREAM_RULES.items(), ids=UPSTREAM_RULES)
def test_what_json_render_refuses_is_refused_under_its_own_code(code: str, spec: Any) -> None:
    assert code in codes(spec)


@pytest.mark.threat("F13")
def test_repeats_cannot_multiply_a_page_without_end() -> None:
    outer, inner = (holding("Grid", key, repeat={"statePath": "/list"}) for key in ("inner", "text"))
    spec = nested(outer=outer, inner=inner, text=element("Text", text="x"))
    assert codes(spec | {"state": {"list": list(range(100))}}) == {"too_many_nodes"}


@pytest.mark.threat("F13")
def test_an_index_far_beyond_a_list_is_only_a_missing_value() -> None:
    spec = page(hero=element("Hero", heading="x", text={"$state": "/list/999999999999"})) | {"state": {"list": [1]}}
    assert codes(spec) == set()


BAD_LINKS = [
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "java\tscript:alert(1)",
    " javascript:alert(1)",
    "data:text/html,x",
    "vbscript:x",
    "blob:https://x",
    "//evil.example",
    "\\\\evil.example",
    "https://good.example@evil.example",
    "https:/\\evil.example",
    "file:///etc/passwd",
    "../secret",
    "a/../../b",
    "a/%2e%2e/b",
    "https://ex\u0430mple.com",
    "https://",
    "http:evil",
    "x" * 2000,
    "",
    "a b",
    'x" onclick="alert(1)',
    "ftp://x.example",
    "tel:alert(1)",
    "mailto:x",
    "mailto:hidden%40bakery.example?bcc=x@evil.example",
    "mailto:x%40evil.example,hello@bakery.example",
    "%6Aavascript:alert(1)",
]


@pytest.mark.threat("F13")
@pytest.mark.parametrize("url", BAD_LINKS)
def test_addresses_that_could_run_or_leave_unseen_are_refused(url: str) -> None:
    assert codes(page(hero=element("Hero", heading="x", actions=[{"label": "go", "href": url}]))) & {
        "bad_url",
        "bad_prop",
        "bad_text",
    }


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example/x?y=1#z",
        "http://a.example",
        "mailto:a@b.example",
        "tel:+44123",
        "sms:+44123",
        "#menu",
        "about.html#x",
        "/a/b.html",
        "a/b.pdf",
    ],
)
def test_plain_addresses_are_accepted(url: str) -> None:
    assert codes(page(hero=element("Hero", heading="x", actions=[{"label": "go", "href": url}]))) == set()


def test_the_demo_site_has_no_findings_at_all() -> None:
    assert validate(demo_site()) == []


def test_links_to_missing_pages_and_sections_are_warnings() -> None:
    links = [{"label": "a", "href": "gone.html"}, {"label": "b", "href": "#gone"}]
    site = parse_site(page(hero=element("Hero", heading="x", actions=links)))
    assert [(finding.code, finding.severity) for finding in validate(site)] == [("broken_link", "warning")] * 2


def test_an_orphan_is_a_warning_and_no_number_of_them_hides_an_error() -> None:
    spec = page(hero=element("Hero", heading="x"))
    spec["elements"] |= {f"orphan-{number}": element("Heading", text="Alone") for number in range(120)}
    warnings = validate(parse_site(spec))
    assert {(finding.code, finding.severity) for finding in warnings} == {("orphaned_element", "warning")}
    assert len(warnings) == 100
    spec["elements"]["hero"]["props"]["heading"] = 1
    assert {(finding.code, finding.severity) for finding in validate(parse_site(spec))} == {("bad_prop", "error")}


def test_props_of_hidden_elements_are_checked_too() -> None:
    assert "unknown_prop" in codes(page(hero={**element("Hero", heading="x", evil=1), "visible": False}))


def test_auto_fix_moves_misplaced_fields_and_drops_nothing() -> None:
    spec = page(hero=element("Hero", heading="x", visible={"$state": "/open"})) | {"state": {"open": True}}
    auto_fix({INDEX: spec})
    assert spec["elements"]["hero"] == element("Hero", heading="x") | {"visible": {"$state": "/open"}}
    assert findings(spec) == ()


@pytest.mark.parametrize("inside", [False, 1])
def test_auto_fix_never_overwrites_a_field_that_is_already_there(inside: object) -> None:
    spec = page(hero={**element("Hero", heading="x", visible=inside), "visible": True})
    auto_fix({INDEX: spec})
    assert spec["elements"]["hero"]["props"]["visible"] is inside


def repeating(child: dict[str, Any], **state: Any) -> dict[str, Any]:
    """A page whose one child is rendered for each entry of a long list."""
    spec = nested(grid=holding("Grid", "one", repeat={"statePath": "/list"}), one=child)
    return spec | {"state": {"list": [0] * 2900, **state}}


def ladder(steps: int) -> dict[str, Any]:
    """Elements with two parents each: as many ways lead through them as there are subsets of steps."""
    rungs = {
        f"{side}{n}": holding("Stack", f"a{n + 1}", f"b{n + 1}", repeat={"statePath": {"$item": side}})
        for n in range(steps)
        for side in "ab"
    }
    ends = {f"{side}{steps}": element("Text", text="x") for side in "ab"}
    return nested(top=holding("Stack", "a0", "b0", repeat={"statePath": "/x"}), **rungs, **ends) | {"state": {"x": []}}


HEAVY: dict[str, Any] = {
    "a template that repeats a long text": page(t=element("Text", text={"$template": "${/b}" * 50_000}))
    | {"state": {"b": "x" * 200_000}},
    "a template of openings": page(t=element("Text", text={"$template": "${" * 200_000})),
    "a repeated template": repeating(element("Text", text={"$template": "${/b}" * 20_000}), b="x"),
    "a repeated reference": repeating(element("Text", text={"$state": "/big"}), big=["x"] * 40_000),
    "a repeated condition": repeating(
        {**element("Text", text="x"), "visible": {"$and": [{"$state": "/n"}] * 10_000}}, n=1
    ),
    "ways without end": ladder(60),
    "twenty pages of repeats": {
        "pages": {path: repeating(element("Text", text="x")) for path in (INDEX, *(f"p{n}.html" for n in range(15)))}
    },
    "addresses that almost match": page(
        **{
            f"h{n}": element("Hero", heading="x", actions=[{"label": "a", "href": f"https://{'a' * 900}!"}])
            for n in range(380)
        }
    ),
    "as many elements as fit": {
        "pages": {
            path: page(**{f"h{n}": element("Hero", heading="x") for n in range(390)})
            for path in (INDEX, *(f"p{n}.html" for n in range(17)))
        }
    },
}


@pytest.mark.slow
@pytest.mark.threat("F13")
@pytest.mark.parametrize("name", HEAVY)
def test_no_spec_within_the_byte_cap_takes_long(name: str) -> None:
    started = time.process_time()
    findings(HEAVY[name])
    assert time.process_time() - started < 6


def shared(of: object) -> dict[str, Any]:
    return {"pages": {INDEX: page(header=element("Header", brand="x")), "b.html": page(top=element("Shared", of=of))}}


def test_a_shared_element_must_exist_below_the_root_of_the_index_page() -> None:
    assert codes(shared("header")) == set()
    assert codes(shared("gone")) == {"shared_missing"}
    assert codes(shared(["header"])) == {"shared_missing"}
    assert codes(page(top=element("Shared", of="top"))) == {"misplaced"}


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from(["root", "elements", "state", "x"]), json_values, max_size=4))
def test_a_page_of_any_shape_is_valid_or_refused(spec: dict[str, Any]) -> None:
    findings(Site({INDEX: spec}))


@settings(max_examples=30)
@given(
    st.dictionaries(
        st.sampled_from(["type", "props", "children", "slots", "visible", "repeat", "on", "watch", "x"]),
        json_values,
        max_size=6,
    ),
    st.sampled_from(["Hero", "Section", "Shared", "Page", "Stack"]),
)
def test_an_element_of_any_shape_is_valid_or_refused(fields: dict[str, Any], kind: str) -> None:
    findings(Site({INDEX: page(one={"type": kind, **fields})}))
