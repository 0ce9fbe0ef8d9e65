from sites.spec.languages.translation import choose_texts
from sites.spec.model import INDEX
from tests.unit.sites.spec.samples import demo_site
from workers.handlers.translation import _in_language


def test_a_page_of_only_some_sections_leaves_the_original_as_it_is_whatever_else_the_reply_says() -> None:
    site = demo_site()
    texts = choose_texts(site, "")
    hero = [n for n, entry in enumerate(texts.entries) if (entry.page, entry.element) == (INDEX, "hero")]
    reply = {"language": "de", "source": "en", "partial": True, "texts": [{"n": n, "text": "Brot"} for n in hero]}
    changed, _, left = _in_language(site, texts, [reply], owner="en")
    assert changed.pages[INDEX] == site.pages[INDEX]
    assert "hero" in changed.pages["de/index.html"]["elements"]
    assert left == []
