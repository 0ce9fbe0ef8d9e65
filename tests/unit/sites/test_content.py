import json

import pytest

from sites.content import content_of
from sites.errors import SpecError, TreeRefusedError

SPEC = {
    "root": "page",
    "elements": {
        "page": {"type": "Page", "props": {"title": "Bakery"}, "children": ["hero"]},
        "hero": {"type": "Hero", "props": {"heading": "Fresh bread"}, "children": []},
    },
}


def test_plain_files_stay_as_they_are() -> None:
    files = {"index.html": b"<h1>x</h1>", "data.json": b"{}"}
    content = content_of(files)
    assert (content.files, content.spec) == (files, None)


def test_a_spec_is_rendered_and_travels_beside_its_assets_but_is_not_published() -> None:
    content = content_of({"site.json": json.dumps(SPEC).encode(), "assets/a.svg": b"<svg/>"})
    assert {"index.html", "styles.css", "assets/a.svg"} == set(content.files)
    assert b"Fresh bread" in content.files["index.html"]
    assert content.spec is not None
    assert json.loads(content.spec)["pages"]["index.html"]["root"] == "page"


def test_equal_specs_give_equal_content_however_they_are_written() -> None:
    one = content_of({"site.json": json.dumps(SPEC).encode()})
    two = content_of({"site.json": json.dumps(SPEC, indent=4, sort_keys=True).encode()})
    assert (one.files, one.spec) == (two.files, two.spec)


def test_an_exported_site_is_read_back_although_its_pages_stand_beside_the_spec() -> None:
    first = content_of({"site.json": json.dumps(SPEC).encode(), "a.txt": b"a"})
    assert first.spec is not None
    again = content_of({**first.files, "site.json": first.spec})
    assert (again.files, again.spec) == (first.files, first.spec)


def test_a_page_that_differs_from_its_render_is_refused_by_name() -> None:
    with pytest.raises(TreeRefusedError, match=r"'styles\.css' is refused: not_its_render"):
        content_of({"site.json": json.dumps(SPEC).encode(), "styles.css": b"body {}"})


def test_nothing_and_nonsense_are_refused() -> None:
    with pytest.raises(TreeRefusedError, match="at least one file"):
        content_of({})
    with pytest.raises(SpecError):
        content_of({"site.json": b"[]"})
