"""The rules that a spec or an edit can break, by code, as docs/sites.md lists them."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[4] / "docs" / "sites.md"
_UPSTREAM_PART, _EXTRA_PART = PAGE.read_text().partition("### Upstream's rules")[2].split("### Our own rules")


def _codes(part: str) -> tuple[str, ...]:
    return tuple(re.findall(r"^- `(\w+)`: ", part, re.MULTILINE))


UPSTREAM = _codes(_UPSTREAM_PART)
EXTRA = _codes(_EXTRA_PART)
"""Codes of our own rules, which refuse what upstream accepts."""
WARNINGS = ("broken_link",)
"""Codes of findings that refuse nothing, beside `orphaned_element`."""
BEFORE_UPSTREAM = frozenset(
    {
        "bad_children",
        "bad_number",
        "bad_page_path",
        "bad_props",
        "bad_repeat",
        "bad_root",
        "bad_slots",
        "bad_state",
        "bad_text",
        "duplicate_key",
        "forbidden_key",
        "missing_type",
        "no_index",
        "not_a_spec",
        "not_an_element",
        "not_json",
        "too_large",
    }
)
"""Codes after which no rule of upstream's is looked at: the spec has not even the types that upstream declares."""
