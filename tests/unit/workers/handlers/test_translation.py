from types import SimpleNamespace
from typing import Any, cast

import pytest

from routing.policy.platform import platform_policy
from sites.spec.languages.translation import choose_texts
from sites.spec.languages.translation_requests import is_translation
from sites.spec.model import INDEX, Site, parse_site
from sites.spec.render import render
from tests.unit.sites.spec.samples import demo_site, element, page
from workers.compute import collecting
from workers.handlers.model_task import Task
from workers.handlers.translation import _in_language, _translated, _with_terms, translation_task
from workers.inputs import Inputs
from workers.outcomes import Candidate


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
    terms, _ = task.prompts[0].parts
    assert " [recurs] Classes" in terms.text
    number = int(next(line.split()[0] for line in terms.text.splitlines() if line.endswith("] Classes")))
    parts = task.use(inputs, [{"language": "de", "texts": [{"n": number, "text": "Kurse"}]}])
    assert isinstance(parts, Task)
    assert sum('"Classes": "Kurse"' in prompt.parts[0].text for prompt in parts.prompts) > 1
    assert task.otherwise is not None
    bare = task.otherwise(inputs)
    assert isinstance(bare, Task)
    assert len(bare.prompts) == len(parts.prompts)


def _inputs(site: Site, words: str) -> Inputs:
    profile, policy = SimpleNamespace(profile="default"), platform_policy()
    given = SimpleNamespace(
        spec=site, words=words, asked=words, files=render(site), site=profile, policy=policy, begun=None
    )
    return cast(Inputs, given)


@pytest.mark.parametrize("terms", [[], [{"n": 0, "text": "Kurse"}]])
def test_a_request_that_only_sounded_like_a_translation_is_an_edit_after_its_first_call(terms: list[Any]) -> None:
    """Each of three parts was asked for 'a privacy page in German', after the first call had declined (issue 20)."""
    site = demo_site()
    inputs, texts = _inputs(site, "A privacy page in German"), choose_texts(site, "")
    task = _with_terms(
        inputs, [{"texts": terms, "cannot": "No such page."}], texts=texts, detached=frozenset(), terms={}
    )
    assert isinstance(task, Task)
    assert task.prompts[0].tool["name"] == "edit_site"


def test_what_is_wanted_beside_a_translation_is_an_edit_of_the_new_page() -> None:
    """A translation with one new sentence was written anew as a whole page, for which there was no room (issue 20)."""
    site = demo_site()
    inputs, texts = _inputs(site, "In German, too, and say there that we speak German"), choose_texts(site, "")
    title = next(n for n, entry in enumerate(texts.entries) if entry.page == INDEX and entry.keys == ("title",))
    reply = {"language": "de", "source": "en", "beside": True, "texts": [{"n": title, "text": "Brot"}]}
    also = {"also": "Say on the new page that we speak German.", "summary": "Now in German.", "ask": "Who?"}
    with collecting([]):
        edit = _translated(inputs, [{**reply, **also}], texts=texts, detached=frozenset())
        assert isinstance(edit, Task)
        document, request = edit.prompts[0].parts
        assert '"de/index.html"' in document.text
        assert request.text.endswith("Only this is left to do: Say on the new page that we speak German.")
        path = "/pages/de~1index.html/elements/hero/props/heading"
        operation = {"op": "replace", "path": path, "value": "Wir!"}
        done = edit.use(inputs, [{"operations": [operation], "summary": "Said.", "ask": ""}])
        asked = edit.use(inputs, [{"operations": [], "ask": "Since when?"}])
        assert edit.otherwise is not None
        alone = edit.otherwise(inputs)
    assert isinstance(done, Candidate)
    assert isinstance(alone, Candidate)
    assert b"Wir!" in done.files["de/index.html"]
    assert done.summary.startswith("Now in German. Who? Said.")
    assert done.facts["open_question"] == "Who?"
    assert isinstance(asked, Candidate)
    assert (asked.summary.partition(" Note:")[0], asked.files) == ("Now in German. Who? Since when?", alone.files)
    assert asked.facts["open_question"] == "Who? Since when?"
    assert b"Brot" in alone.files["de/index.html"]
    assert "Note: not done yet: Say on the new page that we speak German." in alone.summary


def test_another_address_of_visitors_is_made_as_a_translation_into_the_same_language() -> None:
    words = "Bitte überall du statt Sie"
    spec = page(hero=element("Hero", heading="Besuchen Sie uns"), contact=element("ContactForm", email="a@b.de"))
    spec["elements"]["page"]["props"]["lang"] = "de"
    site = parse_site(spec)
    texts = choose_texts(site, words)
    assert is_translation(words, site)
    task = translation_task(_inputs(site, words), site, texts, frozenset())
    assert "informally" in task.prompts[0].parts[0].text
    number = next(n for n, entry in enumerate(texts.entries) if entry.element == "hero")
    reply = {"language": "de", "source": "de", "beside": False, "summary": "Wir sagen jetzt du."}
    with collecting([]):
        done = task.use(
            _inputs(site, words), [{**reply, "texts": [{"n": number, "text": "Besuch uns, wir zeigen dir alles"}]}]
        )
    assert isinstance(done, Candidate)
    assert done.summary == "Wir sagen jetzt du."
    assert all(text in done.files[INDEX].decode() for text in ("Besuch uns", "Dein Name"))
