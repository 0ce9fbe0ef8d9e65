"""The command line in the test's own process, on the test's own ledger."""

from collections.abc import Callable

from typer.testing import CliRunner, Result

from producers.cli import app

Run = Callable[..., Result]


def command_line(ledger_url: str, *ending: str, **settings: object) -> Run:
    """Return a call of `pointsman` in an account that knows no installation.

    What `ending` has is put after the arguments of every call; settings are named as in the environment.
    """
    environment = {"HOME": "/nonexistent", "XDG_STATE_HOME": "/nonexistent", "POINTSMAN_LEDGER__URL": ledger_url}
    environment |= {f"POINTSMAN_{name.upper()}": str(value) for name, value in settings.items()}

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(app, [*map(str, arguments), *ending], env=environment, prog_name="pointsman")

    return run
