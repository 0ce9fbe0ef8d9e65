"""What commands share: the installation they act on, how they print, and how they end.

Exit codes: 0 ok, 1 the job or check failed, 2 usage (DESIGN.md section 7).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer
from pydantic import BaseModel
from rich.console import Console
from sqlalchemy.exc import OperationalError

from monitoring.errors import MonitoringError
from producers.bootstrap import Installation, Settings
from producers.errors import ProducerError
from routing.config import read_settings
from routing.errors import InvalidJobError, RoutingError
from sandbox.errors import SandboxError

OK, FAILED, USAGE = 0, 1, 2

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

Tenant = Annotated[str, typer.Option("--tenant", help="Whose sites and jobs.")]
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
    except RoutingError as error:
        fail(str(error), code=USAGE)
    except (ProducerError, MonitoringError, SandboxError) as error:
        fail(str(error))
    except OperationalError:
        fail("the ledger cannot be reached; is `pointsman up` running, or is POINTSMAN_LEDGER__URL right?")


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))
