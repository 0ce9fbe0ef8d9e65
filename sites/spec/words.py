"""The builder's own words ("Get in touch", "Your email") in the language of a page."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache

import yaml


def say(phrase: str, lang: str) -> str:
    """Return one of the builder's English phrases in a language (BCP 47), or as it is where it is not translated."""
    return _words().get(lang.partition("-")[0].lower(), {}).get(phrase, phrase)


@cache
def _words() -> Mapping[str, Mapping[str, str]]:
    words: Mapping[str, Mapping[str, str]] = yaml.safe_load(pkgutil.get_data(__name__, "words.yaml") or b"")
    return words
