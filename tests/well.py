"""A gateway that says it is well and nothing else: for workers that cannot reach the one in the box's own network."""

from contextlib import AbstractContextManager

from tests.http_server import Handler, served


class _Well(Handler):
    def answer(self) -> None:
        self.say(b"{}")


def well_gateway() -> AbstractContextManager[str]:
    """Serve in a thread; the value is the URL."""
    return served(_Well)
