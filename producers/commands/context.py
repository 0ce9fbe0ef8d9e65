"""What commands share: the installation they act on, output, errors, exit codes, and shell completion.

Exit codes: 0 success, 1 the job or check failed, 2 usage error. What only some commands need (the ledger's SQLAlchemy,
the broker's Celery) is imported where it is used, so that `pointsman route` starts in a fraction of the time.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar
from uuid import UUID

import typer
from pydantic import BaseModel, ValidationError
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from producers.errors import ServerChoiceError
from producers.harmless import harmless
from producers.servers import LOCAL, chosen_server, configures_installation, with_up_file

if TYPE_CHECKING:
    from pointsman_client.models import Comparison as SentComparison
    from pointsman_client.models import Problem

    from producers.bootstrap import Installation
    from producers.intake.submit import Requester
    from producers.use_cases.changes import Comparison


OK, FAILED, USAGE = 0, 1, 2
INTERRUPTED = 130
MAX_FILE_BYTES = 128 * 1024
"""Of a file that a person wrote: a project's or a ticket."""
_MIN_CUT = 12
"""A truncated column keeps this many characters, however narrow the terminal is."""
_WRONG_PATH = frozenset({"not_a_directory", "not_empty"})


class _Terminal(Console):
    """A console that no text controls: prompts, answers and agents' words are shown here."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield what is shown; rich's own control codes stand apart from the text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))


out = _Terminal(highlight=False, soft_wrap=True, markup=False, emoji=False)
err = _Terminal(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)

_STYLES = {
    **dict.fromkeys(("answered", "published", "delivered"), "green"),
    **dict.fromkeys(("failed", "timed_out", "budget_exceeded", "output_exceeded", "undelivered", "refused"), "red"),
    **dict.fromkeys(("awaiting_approval", "clarifying", "paused", "pending"), "yellow"),
    **dict.fromkeys(("running", "scanning", "publishing", "debating"), "cyan"),
}
"""Terminal styles by state."""

_HINTS = {
    "JobNotFoundError": "`pointsman jobs` lists the jobs; --tenant NAME selects another tenant",
    "SiteNotFoundError": "`pointsman site list` lists the sites; --tenant NAME selects another tenant",
    "ProjectNotFoundError": "`pointsman project list` lists them; `pointsman project add FILE` adds one",
    "ClusterNotFoundError": "`pointsman dead` lists the signatures",
}
"""What a user can do next, by the error's name: its class may not be imported."""

Tenant = Annotated[str, typer.Option("--tenant", metavar="NAME", help="The tenant.")]
OperatorTenant = Annotated[
    str | None,
    typer.Option("--tenant", metavar="NAME", help="The tenant, for an operator; elsewhere the key names it."),
]
_as_json: ContextVar[bool] = ContextVar("as_json", default=False)


def choose_json(is_json: bool) -> bool:
    """Print the results and errors of the command that runs as JSON, or in words."""
    _as_json.set(is_json)
    return is_json


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.", callback=choose_json)]
PROVIDER_HELP = (
    "fake: recorded and improvised replies, at no cost. anthropic: with ANTHROPIC_API_KEY. Any other: the account of "
    "that name in POINTSMAN_GATEWAY__PROVIDERS__<NAME>__..., of Bedrock, Vertex or an OpenAI-compatible server."
)


IdsT = TypeVar("IdsT", str, str | None, list[str] | None)


class Context:
    """What the entry point, which alone reads the environment, passes to every command."""

    def __init__(self, environment: Callable[[], Mapping[str, str]]) -> None:
        self._environment = environment

    @property
    def given(self) -> Mapping[str, str]:
        """The environment as it was given."""
        return self._environment()

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of the installation's processes, those of a running `pointsman up` if it names no other."""
        return with_up_file(self.given)

    def installation(self) -> Installation:
        """Return the installation that the environment describes.

        Raises:
            ServerChoiceError: the user's fault: they chose a server, which is reached by its API alone.
        """
        if not configures_installation(self.given) and (server := chosen_server(self.given)) is not None:
            raise ServerChoiceError(
                f"this acts on the installation itself, which {server.origin} does not reach: run it beside the "
                f"ledger, with POINTSMAN_LEDGER__URL, or with `--profile {LOCAL}` for a `pointsman up` of this machine"
            )
        from producers.bootstrap import Installation, Settings
        from routing.config import read_settings

        environment = self.environment  # a live view: its switches are read for every decision
        return Installation(read_settings(Settings, environment), environment=lambda: environment)


def context_of(ctx: typer.Context) -> Context:
    """Return the context with the environment as the entry point reads it."""
    return Context(ctx.find_root().obj)


def fail(message: str, *, code: int = FAILED, problem: Problem | None = None) -> NoReturn:
    """Print an error on stderr, with the API's problem (RFC 9457) where that is the cause, and exit."""
    if _as_json.get():
        told = {"error": message} | ({} if problem is None else {"problem": problem})
        typer.echo(json.dumps(told, ensure_ascii=False, default=_to_json), err=True)
    else:
        err.print(f"pointsman: {message}")
    raise typer.Exit(code)


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn errors that a user can cause or fix into one clear line and the right exit code."""
    try:
        yield
    except ServerChoiceError as error:
        fail(str(error), code=USAGE)
    except _known_errors() as error:
        _explain(error)


def _known_errors() -> tuple[type[Exception], ...]:
    """Return the errors that have a clear line. An `except` clause calls this only once something has failed."""
    from sqlalchemy.exc import ArgumentError, OperationalError

    from gateway.errors import GatewayError
    from ledger.errors import LedgerError
    from producers.errors import ProducerError
    from routing.errors import RoutingError
    from sandbox.errors import SandboxError
    from sites.errors import SiteError

    own = (RoutingError, ProducerError, LedgerError, SandboxError, GatewayError, SiteError)
    return (*own, ArgumentError, OperationalError)


def _explain(error: Exception) -> NoReturn:
    from sqlalchemy.exc import ArgumentError, OperationalError

    from ledger.errors import SchemaMismatchError, TracingUnavailableError
    from producers.errors import InvalidInputError, UnknownTenantError
    from routing.errors import InvalidJobError, RoutingError
    from sites.errors import TreeRefusedError

    match error:
        case InvalidJobError():
            fail("\n  ".join(["refused", *(f"{item.field}: {item.rule}" for item in error.errors)]), code=USAGE)
        case RoutingError() | InvalidInputError() | UnknownTenantError():
            fail(str(error), code=USAGE)
        case SchemaMismatchError() | TracingUnavailableError():
            fail(str(error), code=USAGE)
        case TreeRefusedError() if error.reason in _WRONG_PATH:
            fail(f"{error.shown}: {error.detail}", code=USAGE)
        case TreeRefusedError():
            fail(str(error))
        case ArgumentError():
            fail("POINTSMAN_LEDGER__URL: must be a URL such as postgresql://user@host/database", code=USAGE)
        case OperationalError():
            fail("the ledger cannot be reached; is `pointsman up` running, or is POINTSMAN_LEDGER__URL right?")
        case _:
            fail(f"{error}{_hint_for(error)}")


def _hint_for(error: Exception) -> str:
    """Return what to do about a common error."""
    return next((f"; {_HINTS[kind.__name__]}" for kind in type(error).__mro__ if kind.__name__ in _HINTS), "")


@contextmanager
def installed(ctx: typer.Context) -> Iterator[Installation]:
    """Yield the installation that the environment describes, within `clear_errors`, and close it afterwards."""
    with clear_errors():
        installation = context_of(ctx).installation()
        try:
            yield installation
        finally:
            installation.close()


def become(ctx: typer.Context, module: str, *arguments: str, options: Mapping[str, object]) -> NoReturn:
    """Run a module of the installation's in place of this command, without the options that are None or False."""
    given = [(f"--{name}", value) for name, value in options.items() if value is not None and value is not False]
    told = [name if value is True else f"{name}={value}" for name, value in given]
    command = [sys.executable, "-m", module, *told, "--", *arguments]
    os.execve(sys.executable, command, dict(context_of(ctx).environment))


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout; models may stand anywhere in it."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=_to_json))


def _to_json(value: object) -> object:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)


def wants_json() -> bool:
    """Whether the running command was asked for JSON."""
    return _as_json.get()


def print_result(value: Any, *lines: str) -> None:
    """Print a result in words, or as JSON where that is asked for."""
    if _as_json.get():
        print_json(value)
    elif lines:
        out.print(*lines, sep="\n")


def print_rows(values: Any, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a list as rows in columns, or as JSON where that is asked for."""
    print_json(values) if _as_json.get() else print_table(heads, rows)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print named values, one per line, leaving out the empty ones."""
    shown = [(name, str(value)) for name, value in facts if str(value)]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        out.print(Text.assemble((f"{name:>{width}}", "dim"), "  ", (value, _STYLES.get(value, ""))))


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows in columns. Only the last column is truncated, and only at a terminal: ids are copied from here."""
    lines = [tuple(map(str, row)) for row in (heads, *rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(heads))]
    room = max(_MIN_CUT, out.width - sum(widths[:-1]) - 2 * (len(heads) - 1)) if out.is_terminal else widths[-1]
    for place, line in enumerate(lines):
        last = cut(line[-1], room)
        shown = Text(style="bold" if place == 0 else "")
        for cell, width in zip(line[:-1], widths[:-1], strict=True):
            shown.append(cell.ljust(width) + "  ", style=_STYLES.get(cell, ""))
        shown.append(last, style=_STYLES.get(last, ""))
        shown.rstrip()
        out.print(shown)


def cut(text: str, most: int) -> str:
    """Return a text, cut to that many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def read_plain_file(path: Path, *, command: str, limit: int) -> bytes:
    """Return a file's first bytes; exit with a usage error if it is none: a device has no end, a FIFO no beginning."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return stream.read(limit)
    except IsADirectoryError:
        pass
    except OSError as error:
        fail(f"{command}: {path}: {error.strerror}", code=USAGE)
    fail(f"{command}: {path}: is no plain file", code=USAGE)


def read_text_file(path: Path) -> str:
    """Return the text of a file that a person wrote; exit with a usage error if it is none, or too large."""
    try:
        data = path.read_bytes()[: MAX_FILE_BYTES + 1]
        if len(data) > MAX_FILE_BYTES:
            fail(f"{path}: exceeds {MAX_FILE_BYTES} bytes", code=USAGE)
        return data.decode("utf-8")
    except OSError as error:
        fail(f"{path}: cannot be read: {error.strerror}", code=USAGE)
    except UnicodeDecodeError:
        fail(f"{path}: is not UTF-8", code=USAGE)


def read_lines(path: Path, *, command: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSON-lines file, each with its place for messages; a bad line is a usage error."""
    for place, line in _numbered_lines(path, command):
        with line_errors(place, command=command):
            value = _parse_object(line)
        yield place, value


@contextmanager
def line_errors(place: str, *, command: str) -> Iterator[None]:
    """Exit with a usage error that names an invalid line's place."""
    try:
        yield
    except _BAD_LINE as error:
        fail(f"{command}: {place}: {_line_error(error)}", code=USAGE)


def decide_lines(path: Path, decide: Callable[[dict[str, Any]], object], *, command: str) -> None:
    """Print one decision per line of a JSON-lines file; a bad line is reported and fails the command at the end."""
    is_bad = False
    for place, line in _numbered_lines(path, command):
        try:
            decision = decide(_parse_object(line))
        except _BAD_LINE as error:
            is_bad = True
            err.print(f"pointsman: {command}: {place}: {_line_error(error)}")
        else:
            sys.stdout.write(json.dumps(decision, ensure_ascii=False) + "\n")
    if is_bad:
        raise typer.Exit(USAGE)


_BAD_LINE = (KeyError, ValueError, TypeError, AttributeError, RecursionError)


def _numbered_lines(path: Path, command: str) -> Iterator[tuple[str, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        fail(f"{command}: {path}: {error.strerror}", code=USAGE)
    except UnicodeDecodeError:
        fail(f"{command}: {path}: must be UTF-8", code=USAGE)
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"{path}, line {number}", line


def _parse_object(line: str) -> dict[str, Any]:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise TypeError("must be an object")
    return value


def _line_error(error: Exception) -> str:
    match error:
        case KeyError():
            return f"the field {error} is missing"
        case ValidationError():
            first = error.errors(include_url=False)[0]
            return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return str(error)


def show_comparison(comparison: Comparison | SentComparison) -> None:
    """Print which files differ, with their unified diffs; control characters are masked."""
    out.print(f"from {comparison.before or 'nothing'} to {comparison.after}")
    out.print(f"{comparison.added} added, {comparison.removed} removed, {comparison.changed} changed")
    for change in comparison.changes:
        sizes = " -> ".join(str(size) for size in (change.before_bytes, change.after_bytes) if size is not None)
        what = "" if change.is_served else ", a source"
        out.print(f"\n{change.status} {harmless(change.path)} ({sizes} bytes{what})")
        if change.diff:
            out.print("\n".join(harmless(line) for line in change.diff.rstrip("\n").split("\n")))


def requester_of(tenant: str) -> Requester:
    """Return the author of orders at a terminal."""
    from producers.intake.submit import Requester
    from routing.jobs import Source

    return Requester(tenant=tenant, source=Source.CLI, actor="cli")


_PART_OF_ID = re.compile(r"[0-9a-fA-F][0-9a-fA-F-]{3,35}")


def check_ids(given: IdsT) -> IdsT:
    """Refuse, as a callback of arguments and options, what is neither an id nor the start or end of one."""
    for text in [given] if isinstance(given, str) else given or ():
        if not _PART_OF_ID.fullmatch(text):
            raise typer.BadParameter("must be an id, or at least its first or last 4 characters")
    return given


def whole_id(text: str, known: Callable[[str], Iterable[UUID]], *, kind: str, listed_by: str) -> UUID:
    """Return an id from itself or from its start or end, which must be that of one of the known ids alone.

    Args:
        text: what `check_ids` let pass.
        known: returns ids, among them all that start or end as its argument does.
        kind: what has the id, for messages.
        listed_by: the command that lists such ids.
    """
    try:
        return UUID(text)
    except ValueError:
        part = text.lower()
    found = [one for one in known(part) if str(one).startswith(part) or str(one).endswith(part)]
    if len(found) > 1:
        fail(f"{len(found)} ids begin or end with {text}: " + ", ".join(map(str, found[:5])), code=USAGE)
    if not found:
        fail(f"no {kind}'s id begins or ends with {text}; `{listed_by}` lists the {kind}s")
    return found[0]


OwnJobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id, or its start or end.", callback=check_ids)]


def job_id_here(installation: Installation, text: str, *, tenant: str) -> UUID:
    """Return a job's id from itself or its start or end, by the ledger beside this command."""
    from producers.use_cases.job_search import JobFilter, find_jobs

    def known(part: str) -> list[UUID]:
        with installation.ledger.begin() as session:
            found = find_jobs(session, JobFilter(tenant=tenant, text=part), limit=MOST_ALIKE)
            return [job.id for job in found.jobs]

    return whole_id(text, known, kind="job", listed_by="pointsman jobs")


MOST_ALIKE = 200
"""Jobs that are looked at for a part of an id."""
GOOD_ENDS = frozenset({"answered", "published"})
