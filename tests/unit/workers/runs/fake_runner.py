"""A runner that plays: it leaves the files that it was made with, and needs neither a model nor a box."""

from collections.abc import Mapping

from workers.attempt import Attempt
from workers.runs.step_context import AgentOrder, AgentRun, Failed


class Played:
    """Leaves given files on top of those of the order; None takes one away."""

    def __init__(self, files: Mapping[str, bytes | None], *, failed: Failed | None = None) -> None:
        self._files = files
        self._failed = failed

    def __call__(self, order: AgentOrder, attempt: Attempt) -> AgentRun:
        files = {**order.files, **self._files}
        return AgentRun({path: data for path, data in files.items() if data is not None}, self._failed)
