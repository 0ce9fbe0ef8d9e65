"""What commands share: the installation they act on, how they print, and how they end.

Exit codes: 0 ok, 1 the job or check failed, 2 usage (DESIGN.md section 7). What only some commands need (the ledger's
SQLAlchemy, the broker's Celery) is imported where it is used: `pointsman route` starts in a fraction of the time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from monitoring.errors import MonitoringError, SchemaMismatchError, TracingUnavailableError
from producers.errors import ProducerError, UnknownTenantError
from routing.config import read_settings
from routing.errors import InvalidJobError, RoutingError
from sandbox.errors import SandboxError, TreeRefusedError

if TYPE_CHECKING:
    from producers.bootstrap import Installation

OK, FAILED, USAGE = 0, 1, 2
INTERRUPTED = 130
_MIN_CUT = 12
"""A cut column keeps this many characters, however narrow the terminal is."""
_NAMED_WRONGLY = frozenset({"not_a_directory", "not_empty"})

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

_STYLES = {
    "answered": "green", "published": "green", "delivered": "green",
    "failed": "red", "timed_out": "red", "budget_exceeded": "red", "output_exceeded": "red", "undelivered": "red",
    "refused": "red", "awaiting_approval": "yellow", "clarifying": "yellow", "paused": "yellow", "pending": "yellow",
    "running": "cyan", "scanning": "cyan", "publishing": "cyan", "debating": "cyan",
}  # fmt: skip
"""How a terminal shows the words for how something stands."""

_HINTS = {
    "JobNotFoundError": "`pointsman jobs` lists a tenant's jobs, and --tenant NAME names another tenant",
    "SiteNotFoundError": "`pointsman site list` shows a tenant's sites, and --tenant NAME names another tenant",
    "ReleaseNotFoundError": "`pointsman site releases NAME` lists them",
    "ProjectNotFoundError": "`pointsman project list` shows them, and `pointsman project add FILE` adds one",
    "GateNotFoundError": "`pointsman gate list` shows those that wait",
    "ClusterNotFoundError": "`pointsman dead` lists the signatures that there are",
    "WrongStateError": "`pointsman job ID` says what it waits for",
    "ApprovalRefusedError": "`pointsman job ID` says how it stands",
}
"""What a user does next, by the error's name: a class is imported only by whoever raises it."""

Tenant = Annotated[str, typer.Option("--tenant", metavar="NAME", help="Whose sites and jobs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


class Context:
    """Handed to every command by the entry point, which alone reads the environment."""

    def __init__(self, environment: Callable[[], Mapping[str, str]]) -> None:
        self._environment = environment

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment that this installation's programs get."""
        return self._environment()

    def installation(self) -> Installation:
        """Return the installation that the environment describes."""
        from producers.bootstrap import Installation, Settings

        return Installation(read_settings(Settings, self.environment), environment=self._environment)


def context_of(ctx: typer.Context) -> Context:
    """Return the context that the entry point made."""
    found = ctx.find_root().obj
    assert isinstance(found, Context)
    return found


def fail(message: str, *, code: int = FAILED) -> NoReturn:
    """Say why on stderr and end."""
    err.print(f"pointsman: {message}", markup=False)
    raise typer.Exit(code)


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn the errors that a user can cause or mend into one clear line and the right exit code."""
    try:
        yield
    except InvalidJobError as error:
        fail("\n  ".join(["the job is refused", *(f"{item.field}: {item.rule}" for item in error.errors)]), code=USAGE)
    except (RoutingError, UnknownTenantError, SchemaMismatchError, TracingUnavailableError) as error:
        fail(str(error), code=USAGE)
    except TreeRefusedError as error:
        if error.reason in _NAMED_WRONGLY:
            fail(f"{error.shown}: {error.detail}", code=USAGE)
        fail(str(error))
    except (ProducerError, MonitoringError, SandboxError) as error:
        fail(f"{error}{_hint_for(error)}")
    except _database_error("ArgumentError"):
        fail("POINTSMAN_LEDGER__URL: must be a URL such as postgresql://user@host/database", code=USAGE)
    except _database_error("OperationalError"):
        fail("the ledger cannot be reached; is `pointsman up` running, or is POINTSMAN_LEDGER__URL right?")


def _hint_for(error: Exception) -> str:
    """Say what to do about an error that a user meets often."""
    return next((f"; {_HINTS[kind.__name__]}" for kind in type(error).__mro__ if kind.__name__ in _HINTS), "")


def _database_error(name: str) -> type[Exception]:
    """Return an error of SQLAlchemy's. An `except` clause calls this only once something has failed."""
    from sqlalchemy import exc

    found: type[Exception] = getattr(exc, name)
    return found


@contextmanager
def installed(ctx: typer.Context) -> Iterator[Installation]:
    """Give the installation that the environment describes, within `clear_errors`, and close what it opened."""
    with clear_errors():
        installation = context_of(ctx).installation()
        try:
            yield installation
        finally:
            installation.close()


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print named values in lines, without those that are empty."""
    shown = [(name, str(value)) for name, value in facts if str(value)]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        out.print(Text.assemble((f"{name:>{width}}", "dim"), "  ", (value, _STYLES.get(value, ""))))


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns. Ids are never cut, as they are copied from here; a terminal cuts the last column alone."""
    lines = [tuple(heads), *(tuple(row) for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(heads))]
    room = max(_MIN_CUT, out.width - sum(widths[:-1]) - 2 * (len(heads) - 1)) if out.is_terminal else widths[-1]
    for place, line in enumerate(lines):
        last = line[-1] if len(line[-1]) <= room else f"{line[-1][: room - 1]}…"
        shown = Text(style="bold" if place == 0 else "")
        for cell, width in zip(line[:-1], widths[:-1], strict=True):
            shown.append(cell.ljust(width) + "  ", style=_STYLES.get(cell, ""))
        shown.append(last, style=_STYLES.get(last, ""))
        shown.rstrip()
        out.print(shown)
