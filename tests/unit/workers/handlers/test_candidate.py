from sites.spec.model import INDEX
from sites.spec.render import render
from tests.unit.sites.spec.languages.test_versions import in_french
from tests.unit.sites.spec.samples import demo_site
from workers.handlers.candidate import _rendered


def test_a_page_without_a_version_leads_to_the_new_language_unless_it_was_edited_by_hand() -> None:
    before, files = demo_site(), render(demo_site())
    site, built = _rendered(before, in_french(INDEX), files)
    assert b'href="fr/index.html"' in built["classes.html"]
    assert built == render(site)
    by_hand = files | {"classes.html": files["classes.html"] + b"<!-- mine -->"}
    site, built = _rendered(before, in_french(INDEX), by_hand)
    assert built["classes.html"] == by_hand["classes.html"]
    assert site == in_french(INDEX)
