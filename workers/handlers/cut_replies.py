"""A reply that was cut at its token limit: its whole entries are kept, and the next call writes those that follow.

A page that is written anew takes up to 2,700 tokens. Two calls have time for 1,725 each, so the second one goes on
where the first was cut, and does not begin again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Self


class Begun(NamedTuple):
    """What is there of a reply whose rest is missing."""

    reply: Mapping[str, Any]
    listed: str
    """The list that was cut."""

    @classmethod
    def of(cls, reply: Mapping[str, Any], tool: Mapping[str, Any]) -> Self | None:
        """Return the whole entries of a cut reply, and its other fields; None if there are none.

        Args:
            reply: the tool's input, as far as it goes.
            tool: its definition, whose one required list holds the work.
        """
        schema = tool["input_schema"]
        listed = next(name for name in schema["required"] if schema["properties"][name]["type"] == "array")
        entries = reply.get(listed)
        if not isinstance(entries, list):
            return None
        whole = entries[:-1] if [*reply][-1] == listed else entries
        return cls({**reply, listed: whole}, listed) if whole else None

    def request(self) -> str:
        """Return what asks the model for the rest."""
        kept = json.dumps(self.reply[self.listed], ensure_ascii=False)
        return (
            f"Your last reply was cut off at its limit. These `{self.listed}` of it are kept:\n{kept}\n\n"
            f"Send only the `{self.listed}` that follow, and the other fields."
        )

    def joined(self, rest: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the whole reply; a second part that only says why it has no entries is returned alone."""
        entries = rest.get(self.listed)
        if not entries and any(rest.get(way) for way in ("answer", "ask", "cannot")):
            return rest
        more = entries if isinstance(entries, list) else []
        said = {name: value for name, value in rest.items() if value}
        return {**self.reply, **said, self.listed: [*self.reply[self.listed], *more]}
