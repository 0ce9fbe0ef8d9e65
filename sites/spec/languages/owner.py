"""The language of an owner's request, in which the builder writes its own notes.

Models write to owners in their language; its notes beside that, in the site's, were read as a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_COMMON: Final = {
    "cs": "není jsou prosím nebo také že při máme ale které který jsme už dobrý chceme potřebuju potřebujeme přidejte",
    "da": "og ikke jeg det på også som skal vores må hvor venligst hej holder længst kl",
    "de": "der die das den dem des ein eine einen und oder ist sind nicht bitte wir ich sie uns auf für mit von auch "
    "noch bei zum zur im am als wie nur du dein mir mich kannst",
    "en": "the and or is are not please we our you your it on for with of to from also at in as that this can put make "
    "i do a me my new",
    "es": "el la los las un una y o es son no por favor nosotros para con del también al como que se lo más está en mi "
    "nueva nuevo",
    "fr": "le la les un une et ou est sont pas nous vous pour avec du des aussi au aux dans que qui sur il je plus ce "
    "en de tu mon ma",
    "it": "il la gli in un una e o è sono non per favore noi con del della anche al alla come che di nel più lo questo",
    "nl": "het een en of is zijn niet graag wij we u voor met van ook bij op aan als dat die nog de er naar",
    "pl": "i lub jest są nie proszę my na dla z w do się także jak że to od po przy może tylko",
    "pt": "os um uma e ou é são não por favor nós para com da também ao como que em mais está isso na no",
}
"""Words that hardly any sentence of a language does without."""
_BY_LANGUAGE: Final[Mapping[str, frozenset[str]]] = {lang: frozenset(words.split()) for lang, words in _COMMON.items()}
_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_QUOTED: Final = re.compile(r"[\"“„«][^\"“”„«»]*[\"”“»]")


def written_in(text: str, *, otherwise: str) -> str:
    """Return the language (BCP 47) that a text is written in, its quotations aside.

    Args:
        text: what an owner wrote.
        otherwise: the answer where no language has more of its words than every other one.
    """
    words = _WORD.findall(_QUOTED.sub(" ", text).lower())
    counts = {lang: sum(word in common for word in words) for lang, common in _BY_LANGUAGE.items()}
    most = max(counts.values())
    found = [lang for lang, count in counts.items() if count == most]
    return found[0] if len(found) == 1 else otherwise
