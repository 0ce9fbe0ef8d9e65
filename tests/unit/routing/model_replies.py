"""What a model may write into a tool: hostile replies for property tests, and callers that play both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from routing.errors import CallFailedError, CallFailure
from routing.model_call import ConstrainedCall

WORDS = [
    "ANSWER",
    "ACTION",
    "build",
    "fix",
    "question",
    "proceed",
    "revise",
    "stop",
    "RETRY",
    "PIVOT",
    "ESCALATE",
    "low",
]
FIELDS = ["tier", "reason", "estimated_complexity", "mode", "intent", "recommendation", "case", "constraint", "queue"]

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 9)
    | st.floats()
    | st.text(alphabet=st.characters(), max_size=20)
    | st.sampled_from(WORDS)
)
ANY_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | st.text(), inner, max_size=5),
    max_leaves=8,
)


class Stage:
    """A caller that gives prepared replies in their order, and keeps what it was asked."""

    def __init__(self, *replies: object) -> None:
        self._replies = list(replies)
        self.calls: list[ConstrainedCall] = []

    def __call__(self, call: ConstrainedCall) -> Mapping[str, Any]:
        self.calls.append(call)
        reply = self._replies[len(self.calls) - 1]
        if isinstance(reply, CallFailedError):
            raise reply
        return reply  # type: ignore[return-value]  # hostile replies have any shape


def failing(reason: CallFailure) -> CallFailedError:
    return CallFailedError(reason)
