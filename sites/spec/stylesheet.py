"""The stylesheet of a site: the variables of its themes, then the rules that use them, marked as made by Pointsman.

It has the rules of all components, so a change of content never changes it and another tier's edit of it survives.
"""

from __future__ import annotations

import hashlib
import pkgutil
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from sites.spec.fonts.families import font_faces
from sites.spec.theme import Theme, fonts_of, variables_of

BASE_RULES: Final = (pkgutil.get_data(__name__, "base.css") or b"").decode()
_STYLE_RULES: Final = (pkgutil.get_data(__name__, "styles.css") or b"").decode()
"""What some styles set otherwise, so it stands last."""


def stylesheet(theme: Theme, others: Mapping[str, Theme], component_rules: Iterable[str]) -> bytes:
    """Return the stylesheet of a site.

    Args:
        theme: the index page's.
        others: themes of other pages by their class.
        component_rules: the CSS of every component of the catalog, in order.
    """
    themes = {":root": theme, **{f":root.{name}": other for name, other in sorted(others.items())}}
    rules = font_faces(font for each in themes.values() for font in fonts_of(each))
    rules += [variables_of(selector, each) for selector, each in themes.items()]
    variables, plain = "\n".join(rules).encode(), _rules(tuple(component_rules))
    return variables + _MARK % _digest_of(variables + plain) + plain


@lru_cache(maxsize=1)  # there is one catalog
def _rules(styles: tuple[str, ...]) -> bytes:
    """Return the rules that use the variables, the same for every site."""
    plain = (_SPARED.sub("", style).strip() for style in (BASE_RULES, *styles, _STYLE_RULES))
    return "".join([f"\n{style}" for style in plain if style] + ["\n"]).encode()


_SPARED: Final = re.compile(r" */\*.*?\*/|^ +", re.S | re.M)
"""Comments and indentation, which neither browsers nor models need."""
_MARK: Final = b"\n/* Rules of the catalog: %b */"
_MARKED: Final = re.compile(_MARK.replace(b"*", rb"\*") % b"([0-9a-f]{16})")


def _digest_of(rules: bytes) -> bytes:
    return hashlib.sha256(rules).hexdigest()[:16].encode()


def is_as_it_was_made(found: bytes) -> bool:
    """Whether a stylesheet is what some version of Pointsman made: its mark tells that nobody has edited it since."""
    made = _MARKED.search(found)
    return made is not None and made[1] == _digest_of(found[: made.start()] + found[made.end() :])
