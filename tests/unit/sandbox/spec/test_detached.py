"""A page that was edited by hand is never overwritten, and the rest of its site stays managed by the spec."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.spec.model import Site
from sandbox.spec.render import STYLESHEET, DetachedPagesError, detached_files, render, render_onto
from sandbox.spec.rules.direct import apply_direct, parse_direct
from tests.unit.sandbox.spec.direct_corpus import spec_site

YOGA = spec_site("yoga")
FILES = render(YOGA) | {"assets/room.jpg": b"\xff"}


def edited(prompt: str) -> Site:
    edit = parse_direct(prompt, YOGA)
    assert edit is not None
    return apply_direct(YOGA, edit)


def by_hand(*paths: str) -> dict[str, bytes]:
    return FILES | {path: FILES[path] + b"<!-- by hand -->" for path in paths}


def test_only_what_differs_from_its_render_is_detached() -> None:
    assert detached_files(YOGA, FILES) == frozenset()
    assert detached_files(YOGA, by_hand("classes.html")) == {"classes.html"}
    gone = {path: data for path, data in FILES.items() if path != "contact.html"}
    assert detached_files(YOGA, gone) == {"contact.html"}


def test_a_detached_page_and_foreign_files_keep_their_bytes() -> None:
    files = by_hand("classes.html")
    after = render_onto(YOGA, edited("Change the hero heading to 'Breathe'"), files)
    assert b"Breathe" in after["index.html"]
    assert {path: data for path, data in after.items() if path != "index.html"} == {
        path: data for path, data in files.items() if path != "index.html"
    }


@pytest.mark.parametrize(
    ("prompt", "detached"),
    [
        ("Change the hero heading to 'Breathe'", "index.html"),
        ("Rename the studio to 'Deep Water Yoga'", "contact.html"),
        ("Change the primary colour to navy", STYLESHEET),
        ("Remove the footer", "classes.html"),
    ],
)
def test_a_change_that_needs_a_detached_file_is_refused_and_names_it(prompt: str, detached: str) -> None:
    with pytest.raises(DetachedPagesError, match=detached):
        render_onto(YOGA, edited(prompt), by_hand(detached))


@settings(max_examples=25)
@given(st.sets(st.sampled_from(sorted(render(YOGA)))), st.sampled_from(
    ["Change the hero heading to 'Breathe'", "Remove the stats", "Change the primary colour to navy",
     "Change the monthly price to £85", "Rename the studio to 'Deep Water Yoga'"]
))  # fmt: skip
def test_no_render_ever_changes_a_detached_file(paths: set[str], prompt: str) -> None:
    files = by_hand(*paths)
    try:
        after = render_onto(YOGA, edited(prompt), files)
    except DetachedPagesError:
        return
    assert {path: after[path] for path in paths} == {path: files[path] for path in paths}


def test_a_page_that_the_spec_drops_goes_and_one_that_it_adds_never_covers_a_file() -> None:
    smaller = Site({path: page for path, page in YOGA.pages.items() if path != "contact.html"})
    assert "contact.html" not in render_onto(YOGA, smaller, FILES)
    assert "contact.html" in render_onto(smaller, YOGA, render(smaller))
    with pytest.raises(DetachedPagesError, match=r"contact\.html"):
        render_onto(smaller, YOGA, render(smaller) | {"contact.html": b"mine"})
