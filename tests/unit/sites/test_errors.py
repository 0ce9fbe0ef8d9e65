from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sites.errors import SpecError
from sites.spec.drawings.requests import shapes_of
from sites.spec.edit import apply_edit
from sites.spec.model import INDEX
from sites.spec.outline import expand_outline
from sites.spec.structure import MISPLACED_FIELDS
from tests.unit.sites.spec.rulebook import EXTRA, UPSTREAM, WARNINGS
from tests.unit.sites.spec.samples import codes, demo_site, element, page
from tests.unit.sites.spec.test_model import HOSTILE_TEXTS
from tests.unit.sites.spec.test_validate import OWN_RULES, UPSTREAM_RULES, shared

ROOT = Path(__file__).parents[3]
_FIRST_CODE = re.compile(r'(?:Finding|refuse|Complaint|PydanticCustomError)\(\s*"(\w+)"')


def hero(**fields: Any) -> dict[str, Any]:
    return page(hero={**element("Hero", heading="Hi"), **fields})


def in_elements(value: Any) -> dict[str, Any]:
    return page() | {"elements": {**page()["elements"], "odd": value}}


SPECS: dict[str, Any] = {
    **OWN_RULES,
    **HOSTILE_TEXTS,
    "bad_root": page() | {"root": 5},
    "bad_state": page() | {"state": []},
    "not_an_element": in_elements("Text"),
    "missing_type": in_elements({"props": {}}),
    "bad_props": hero(props=None),
    "bad_children": hero(children="hero"),
    "bad_slots": hero(slots={"aside": "hero"}),
    "bad_page_path": {"pages": {INDEX: page(), "../x.html": page()}},
    "no_index": {"pages": {"about.html": page()}},
    "hidden_root": page() | {"elements": {"page": {**page()["elements"]["page"], "visible": False}}},
    "shared_missing": shared("gone"),
    "children_in_props": UPSTREAM_RULES["children_in_props"],
    "too_many_nodes": {
        "root": "page",
        "state": {"list": [0] * 3001},
        "elements": {
            "page": {"type": "Page", "props": {"title": "x"}, "children": ["g"]},
            "g": {"type": "Grid", "props": {}, "children": ["t"], "repeat": {"statePath": "/list"}},
            "t": element("Text", text="x"),
        },
    },
}
EDITS: dict[str, Callable[[], object]] = {
    "bad_operation": lambda: apply_edit(demo_site(), "no edit at all"),
    "patch_failed": lambda: apply_edit(demo_site(), [{"op": "remove", "path": "/pages/gone.html"}]),
    "bad_drawing": lambda: shapes_of({}),
    "bad_outline": lambda: expand_outline({"sections": 5}),
}


@pytest.mark.threat("F13")
@pytest.mark.parametrize("code", [code for code in EXTRA if code not in EDITS])
def test_each_named_rule_refuses_a_spec_by_its_code(code: str) -> None:
    assert code in codes(SPECS[code])


@pytest.mark.parametrize("code", EDITS)
def test_each_rule_for_edits_refuses_one_by_its_code(code: str) -> None:
    with pytest.raises(SpecError) as caught:
        EDITS[code]()
    assert caught.value.code == code


def test_the_page_about_json_render_lists_every_code_of_the_engine_once_and_no_other() -> None:
    spec = ROOT / "sites" / "spec"
    source = "".join(path.read_text() for path in (*spec.glob("*.py"), spec / "drawings" / "requests.py"))
    listed = [code for table in (UPSTREAM, EXTRA, WARNINGS) for code in table]
    assert len(listed) == len(set(listed))
    assert set(_FIRST_CODE.findall(source)) <= set(listed)
    computed = {
        f"{field}_{kind}" for field in (*MISPLACED_FIELDS, "on", "watch") for kind in ("in_props", "unsupported")
    }
    assert [code for code in listed if f'"{code}"' not in source and code not in computed] == []


def test_the_page_and_the_comparison_name_the_same_version_of_upstream() -> None:
    version = re.search(r"@json-render/core@([\d.]+)", (ROOT / "tests/acceptance/test_json_render.py").read_text())
    assert version is not None
    for path in ("docs/sites.md", "sites/spec/structure.py"):
        assert f"`@json-render/core` {version[1]}" in (ROOT / path).read_text(), path
