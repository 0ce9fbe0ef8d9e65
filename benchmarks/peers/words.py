"""A floor for routing: one pass over a prompt with a regular expression of 60 words, which decides nothing yet."""

import re
from collections.abc import Callable
from itertools import cycle

from benchmarks.inputs import prompts

_WORDS = (
    "add|remove|delete|change|replace|swap|move|make|build|create|fix|repair|rename|update|set|show|"
    "list|find|search|why|what|when|where|who|how|is|are|can|could|should|explain|describe|deploy|"
    "publish|test|debug|refactor|migrate|page|section|header|footer|image|logo|button|form|table|"
    "color|font|style|script|file|code|database|api|server|login|price|menu|team"
)


def operation() -> Callable[[], object]:
    """Return what finds every word in the next prompt."""
    pattern = re.compile(rf"\b(?:{_WORDS})\b", re.IGNORECASE)
    texts = cycle([item.prompt for item in prompts()])
    return lambda: pattern.findall(next(texts))
