"""What commands share: the installation they act on, how they print, and how they end.

Exit codes: 0 ok, 1 the job or check failed, 2 usage (DESIGN.md section 7). What only some commands need (the ledger's
SQLAlchemy, the broker's Celery) is imported where it is used: `pointsman route` starts in a fraction of the time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup
from typer.models import CommandInfo

from gateway.errors import GatewayError
from ledger.errors import MonitoringError, SchemaMismatchError, TracingUnavailableError
from producers.errors import ProducerError, UnknownTenantError
from routing.config import read_settings
from routing.errors import InvalidJobError, RoutingError
from sandbox.errors import SandboxError
from sites.errors import SiteError, TreeRefusedError

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
    "answered": "green",
    "published": "green",
    "delivered": "green",
    "failed": "red",
    "timed_out": "red",
    "budget_exceeded": "red",
    "output_exceeded": "red",
    "undelivered": "red",
    "refused": "red",
    "awaiting_approval": "yellow",
    "clarifying": "yellow",
    "paused": "yellow",
    "pending": "yellow",
    "running": "cyan",
    "scanning": "cyan",
    "publishing": "cyan",
    "debating": "cyan",
}
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
    except (ProducerError, MonitoringError, SandboxError, GatewayError, SiteError) as error:
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


# JSON-lines files that commands are given: an object a line, and whatever is wrong is told with its place.


def read_lines(path: Path, *, command: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSON-lines file, each with its place for messages; the command fails where there is none.

    Args:
        path: the file.
        command: which command was given it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        fail(f"{command}: {path}: {error.strerror}", code=USAGE)
    except UnicodeDecodeError:
        fail(f"{command}: {path}: must be UTF-8", code=USAGE)
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            given = json.loads(line)
        except (ValueError, RecursionError) as error:
            fail(f"{command}: {place}: {error}", code=USAGE)
        if not isinstance(given, dict):
            fail(f"{command}: {place}: must be an object", code=USAGE)
        yield place, given


# What `--help` shows around each command: the panel that it is in, and examples that can be copied.
#
# Here and not beside each command, since a reader of the help reads it as one page: what comes first, and what
# belongs
# together, is decided in one place.

PANELS: Mapping[str, Sequence[str]] = {
    "Submit": ("submit", "jobs", "job", "watch", "reply", "cancel", "resume", "project", "run", "agent"),
    "Review": ("approve", "reject", "revise", "gate", "site"),
    "Operate": (
        "doctor",
        "queue",
        "tenant",
        "key",
        "webhook",
        "lane",
        "lanes",
        "dead",
        "replay",
        "dismiss",
        "audit",
        "capacity",
        "dashboards",
        "backup",
        "restore",
        "broker",
    ),
    "Run the fleet": (
        "up",
        "demo",
        "worker",
        "api",
        "gateway",
        "dispatcher",
        "exporter",
        "mirror",
        "rehearsal",
        "migrate",
        "image",
        "box",
    ),
    "Offline tools": ("route", "ladder", "apply", "render", "scan"),
}
"""Panels and their commands, in the order in which the help shows them."""

EXAMPLES: Mapping[str, Sequence[str]] = {
    "submit": (
        "pointsman submit \"Change the hero heading to 'Fresh bread daily'\" --site bakery --wait",
        'pointsman submit "A one-page site for a bike repair shop" --new-site bikes --budget 0.10 --json',
    ),
    "jobs": ("pointsman jobs --state awaiting_approval", "pointsman jobs --json --limit 100"),
    "job": ("pointsman job ID", "pointsman job ID --diff"),
    "watch": ("pointsman watch ID",),
    "reply": ('pointsman reply ID "the second one"',),
    "cancel": ("pointsman cancel ID",),
    "resume": ("pointsman resume ID --budget 0.30 --wait",),
    "project add": ("pointsman project add shop.yaml",),
    "run submit": ("pointsman run submit --project shop --ticket bug.md --wait",),
    "run show": ("pointsman run show ID",),
    "agent run": ('pointsman agent run qa --task "Test the cart" --dir .',),
    "approve": ("pointsman approve ID", "pointsman approve ID --release RELEASE   # this one or none"),
    "reject": ('pointsman reject ID --reason "The logo is too large."',),
    "revise": ('pointsman revise ID "Shorter, please" --wait',),
    "gate pass": ('pointsman gate pass GATE --reason "looks right"',),
    "gate fail": ('pointsman gate fail GATE --reason "not this way"',),
    "site import": ("pointsman site import bakery ./public",),
    "site export": ("pointsman site export bakery ./copy",),
    "site rollback": ("pointsman site rollback bakery",),
    "site diff": ("pointsman site diff bakery",),
    "queue pause": ("pointsman queue pause agent",),
    "dashboards": (
        "pointsman dashboards --out /etc/grafana/dashboards --rules /etc/prometheus/rules/pointsman.yaml "
        "--grafana https://grafana.example.com",
    ),
    "queue list": ("pointsman queue list --json",),
    "tenant limit": ("pointsman tenant limit acme 20",),
    "key create": (
        "pointsman key create --tenant acme --provider anthropic --name ci",
        "pointsman key create --scope read --name dashboard",
    ),
    "key revoke": ("pointsman key revoke ci --tenant acme",),
    "webhook secret": ("pointsman webhook secret --tenant acme",),
    "webhook show": ("pointsman webhook show ID",),
    "webhook replay": ("pointsman webhook replay ID", "pointsman webhook replay --undelivered"),
    "dead": ("pointsman dead", "pointsman dead --signature 2f1d0c9b8a"),
    "replay": ("pointsman replay ID", "pointsman replay --signature 2f1d0c9b8a --limit 10"),
    "audit verify": ("pointsman audit verify --archive ./archive",),
    "audit export": ("pointsman audit export > audit.jsonl",),
    "backup": ("pointsman backup ./backup-monday",),
    "restore": ("pointsman restore ./backup-monday",),
    "broker acl": ("pointsman broker acl > users.acl",),
    "up": ("pointsman up", "pointsman up --port 9000 --speed max"),
    "worker": ("pointsman worker spec --concurrency 8", "pointsman worker answer tools --concurrency 4"),
    "rehearsal": ("pointsman rehearsal --port 9999 --speed max",),
    "route prompt": (
        'pointsman route "Make the headline bigger" --explain',
        'pointsman route "Convert it to a blog" --files 40 --has-js --json',
        "pointsman route --batch prompts.jsonl",
    ),
    "route check": ("pointsman route check samples.jsonl",),
    "route replay": ("pointsman route replay --policy new.yaml --since 7d",),
    "ladder": ("pointsman ladder --batch cases.jsonl",),
    "apply": ("pointsman apply ./site change.diff --out ./new --json",),
    "render": ("pointsman render site.json --out ./page",),
    "scan": ("pointsman scan ./page --json",),
}
"""By the command's words."""

_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}
_ORDER = [name for names in PANELS.values() for name in names]


class Panels(TyperGroup):
    """The root command: lists what it can do in the order of the panels."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names; one that no panel has comes last."""
        return sorted(
            super().list_commands(ctx), key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER)
        )


def panel_of(name: str) -> str | None:
    """Return the panel of a command of the root."""
    return _PANEL_OF.get(name)


def dress(app: typer.Typer) -> None:
    """Give every command its examples, and those of the root their panel."""
    for words, info in _commands(app, ()):
        if len(words) == 1:
            info.rich_help_panel = panel_of(words[0]) or info.rich_help_panel
        if lines := EXAMPLES.get(" ".join(words)):
            info.epilog = "\n\n".join(("Examples:" if len(lines) > 1 else "Example:", *(f"  {line}" for line in lines)))


def _commands(app: typer.Typer, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], CommandInfo]]:
    for info in app.registered_commands:
        assert info.callback is not None
        yield (*above, info.name or info.callback.__name__), info
    for group in app.registered_groups:
        assert group.typer_instance is not None
        named = (*above, group.name) if isinstance(group.name, str) else above
        yield from _commands(group.typer_instance, named)
