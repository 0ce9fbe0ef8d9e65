from types import SimpleNamespace
from typing import cast

from sites.spec.languages.translation import choose_texts
from sites.spec.model import INDEX
from tests.unit.sites.spec.samples import demo_site
from workers.attempt import Inputs
from workers.handlers.model_task import Task
from workers.handlers.translation import _in_language, translation_task


def test_a_page_of_only_some_sections_leaves_the_original_as_it_is_whatever_else_the_reply_says() -> None:
    site = demo_site()
    texts = choose_texts(site, "")
    hero = [n for n, entry in enumerate(texts.entries) if (entry.page, entry.element) == (INDEX, "hero")]
    reply = {"language": "de", "source": "en", "partial": True, "texts": [{"n": n, "text": "Brot"} for n in hero]}
    changed, _, left = _in_language(site, texts, [reply], owner="en")
    assert changed.pages[INDEX] == site.pages[INDEX]
    assert "hero" in changed.pages["de/index.html"]["elements"]
    assert left == []


def test_parts_side_by_side_know_how_the_others_translate_the_words_that_recur() -> None:
    """A term came one way in the first part and another way in the second (issue 20)."""
    site = demo_site()
    inputs = cast(Inputs, SimpleNamespace(spec=site, words="Translate it into German", asked="Translate it"))
    task = translation_task(inputs, site, choose_texts(site, ""), frozenset())
    ((terms, _),) = task.prompts
    assert " [recurs] Classes" in terms.text
    number = int(next(line.split()[0] for line in terms.text.splitlines() if line.endswith("] Classes")))
    parts = task.use(inputs, [{"language": "de", "texts": [{"n": number, "text": "Kurse"}]}])
    assert isinstance(parts, Task)
    assert sum('"Classes": "Kurse"' in text.text for text, _ in parts.prompts) > 1
    assert task.otherwise is not None
    bare = task.otherwise(inputs)
    assert isinstance(bare, Task)
    assert len(bare.prompts) == len(parts.prompts)
