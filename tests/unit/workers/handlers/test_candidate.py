from types import SimpleNamespace
from typing import cast

from sites.spec.model import INDEX, parse_site
from sites.spec.render import render
from tests.unit.sites.spec.languages.test_versions import in_french
from tests.unit.sites.spec.samples import demo_site, element, page
from workers.handlers.candidate import _notes_of, _rendered, missing_files_note
from workers.inputs import Inputs


def test_a_page_without_a_version_leads_to_the_new_language_unless_it_was_edited_by_hand() -> None:
    before, files = demo_site(), render(demo_site())
    site, built = _rendered(before, in_french(INDEX), files)
    assert b'href="fr/index.html"' in built["classes.html"]
    assert built == render(site)
    by_hand = files | {"classes.html": files["classes.html"] + b"<!-- mine -->"}
    site, built = _rendered(before, in_french(INDEX), by_hand)
    assert built["classes.html"] == by_hand["classes.html"]
    assert site == in_french(INDEX)


def test_the_owner_is_told_by_which_columns_a_table_cannot_be_sorted() -> None:
    """ "Visitors can sort it" was told of a table that had no arrow (issue 20)."""
    rows = [{"label": "Cut", "values": ["1 h", "€9"]}, {"label": "Beard", "values": ["45 min", "on request"]}]
    before, after = (
        parse_site(page(prices=element("ComparisonTable", columns=["Takes", "Price"], rows=rows, **sortable)))
        for sortable in ({}, {"sortable": "all"})
    )
    (note,) = _notes_of(before, after, "en")
    assert "sort by Takes," in note
    assert _notes_of(after, after, "en") == []


def test_a_file_that_the_owner_names_and_the_site_does_not_have_is_told() -> None:
    given = {"words": "Mach aus dem Link bitte assets/preise.pdf", "files": {"assets/menu.pdf": b""}}
    assert missing_files_note(cast(Inputs, SimpleNamespace(**given)), demo_site()) == [
        "die Website hat keine Datei assets/preise.pdf"
    ]
    given["files"] = {"assets/preise.pdf": b""}
    assert missing_files_note(cast(Inputs, SimpleNamespace(**given)), demo_site()) == []
