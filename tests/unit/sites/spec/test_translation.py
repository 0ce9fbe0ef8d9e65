from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sites.errors import SpecError
from sites.spec.model import INDEX, parse_site
from sites.spec.quality import is_unchanged
from sites.spec.render import render
from sites.spec.translation import (
    MAX_CHUNK_CHARACTERS,
    MAX_CHUNKS,
    apply_translation,
    chunks,
    entries_of,
    is_translation,
)
from tests.unit.sites.spec.samples import demo_site, every_component

TEXTS = entries_of(demo_site())


@pytest.mark.parametrize(
    "wish",
    [
        "Translate the page to French",
        "Bitte übersetze die Seite",
        "Traduis tout en anglais",
        "Can you put the classes page into French?",
        "Die ganze Seite auf Englisch umstellen",
        "Pon toda la página en inglés",
    ],
)
def test_a_translation_is_known_by_its_verb(wish: str) -> None:
    assert is_translation(wish)
    for other in ("Say that our translators are certified", "Put a sentence in French below the menu"):
        assert not is_translation(other)


def test_a_site_s_own_texts_change_nothing_and_fit_few_calls() -> None:
    for site in (demo_site(), parse_site(every_component())):
        texts = entries_of(site)
        same = [{"n": number, "text": entry.text} for number, entry in enumerate(texts)]
        assert is_unchanged(site, apply_translation(site, texts, [{"texts": same}]))
    parts = chunks(TEXTS)
    assert 1 < len(parts) <= MAX_CHUNKS
    assert all(len(re.sub(r"(?m)^\d+ \[[^]]+\] ", "", part)) < MAX_CHUNK_CHARACTERS * 1.1 for part in parts)
    assert [line.split(" [")[0] for part in parts for line in part.split("\n") if re.match(r"\d+ \[", line)] == [
        str(number) for number in range(len(TEXTS))
    ]


def test_every_text_that_visitors_read_can_be_translated() -> None:
    site = parse_site(every_component())
    texts = entries_of(site)
    marked = [{"n": number, "text": f"ZZ{entry.text}"} for number, entry in enumerate(texts)]
    translated = apply_translation(site, texts, [{"language": "de", "texts": marked}])
    page = render(translated)[INDEX].decode()
    assert '<html lang="de"' in page
    shown = [text for text in re.findall(r">([^<>]+)<", page.partition("<body")[2]) if any(map(str.isalpha, text))]
    ours = [text for text in shown if "ZZ" in text]
    assert len(ours) > 0.75 * len(shown), sorted(set(shown) - set(ours))


@settings(max_examples=50)
@given(
    st.one_of(
        st.none(),
        st.just("text"),
        st.just([[]]),
        st.fixed_dictionaries(
            {"n": st.one_of(st.integers(-3, len(TEXTS) + 3), st.text(), st.booleans()), "text": st.text() | st.none()}
        ),
    )
)
def test_a_hostile_reply_is_refused_or_changes_one_text(step: object) -> None:
    try:
        translated = apply_translation(demo_site(), TEXTS, [{"language": "<x>", "texts": [step]}, {"texts": step}])
    except SpecError:
        return
    before, after = ([entry.text for entry in entries_of(site)] for site in (demo_site(), translated))
    assert sum(one != other for one, other in zip(before, after, strict=False)) <= 1
