"""What a process remembers of a tenant, while its other threads learn more of it."""

import sys
from types import FrameType
from typing import Any

from producers.intake.decisions import SeenTenant, limits_of
from routing.jobs import JobRequest
from routing.policy.platform import platform_policy


def test_a_site_never_seen_is_decided_on_while_another_thread_learns_of_sites() -> None:
    policy = platform_policy()
    seen = SeenTenant({}, policy, limits_of(policy), {"first": {}})

    def learn(frame: FrameType, _event: str, _arg: Any) -> Any:
        """Learn of a site wherever another thread may come in between."""
        frame.f_trace_opcodes = True
        if frame.f_code.co_name == "context_of":
            seen.signals[f"site-{len(seen.signals)}"] = {}
        return learn

    before = sys.gettrace()
    sys.settrace(learn)
    try:
        context = seen.context_of(JobRequest(prompt="x", site="never-seen"), "t")
    finally:
        sys.settrace(before)
    assert context is not None
    assert context.sites["never-seen"].signals == {}
    assert len(seen.signals) > 2
