"""The `pointsman` command: its sub-commands, and how `--help` groups and illustrates them.

Besides `workers.main` this is the only module that reads the environment.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

VERSION = "0.1.0"
"""Of the package, too: reading it there would cost more than all else that `--version` does."""

PANELS: Mapping[str, Sequence[str]] = {
    panel: names.split()
    for panel, names in (
        ("Submit", "login logout submit jobs job watch reply cancel resume project run agent"),
        ("Review", "approve undo reject revise gate site"),
        (
            "Operate",
            "doctor queue tenant people key webhook circuit dead replay dismiss audit capacity dashboards "
            "backup restore broker cells",
        ),
        (
            "Run the fleet",
            "up demo worker api router gateway dispatcher exporter mirror fake-provider migrate image box",
        ),
        ("Offline tools", "eval route ladder apply render scan"),
    )
}
"""Panels of the help and their commands, in order of appearance."""

_MODULE_OF = {
    name: module
    for module, names in {
        "servers": "login logout",
        "jobs": "submit jobs job watch reply cancel resume approve undo reject revise",
        "deliveries": "dead replay dismiss webhook",
        "projects": "project",
        "runs": "run agent gate",
        "sites": "site apply render scan",
        "route": "route ladder eval",
        "people": "people",
        "cells": "cells",
        "tenants": "tenant",
        "operate": "key queue audit broker circuit",
        "capacity": "capacity",
        "images": "image",
        "installation": "up demo doctor dashboards backup restore box",
        "programs": "worker api router gateway dispatcher exporter mirror fake-provider migrate",
    }.items()
    for name in names.split()
}
"""The module of `producers.commands` with each command: in its `app` or, for a group of commands, its `NAME_app`."""

EXAMPLES: Mapping[str, Sequence[str]] = {
    "login": (
        "pointsman login https://pointsman.example.com",
        "pointsman login https://pointsman.example.com --key-file key.txt",
    ),
    "submit": (
        "pointsman submit \"Change the hero heading to 'Fresh bread daily'\" --site bakery --wait",
        'pointsman submit "A one-page site for a bike repair shop" --new-site bikes --budget 0.10 --json',
    ),
    "jobs": ("pointsman jobs --state awaiting_approval", "pointsman jobs --json --limit 100"),
    "job": ("pointsman job ID", "pointsman job ID --diff", "pointsman job ID --scan"),
    "watch": ("pointsman watch ID",),
    "reply": ('pointsman reply ID "the second one"',),
    "cancel": ("pointsman cancel ID",),
    "resume": ("pointsman resume ID --budget 0.30 --wait",),
    "project init": ("pointsman project init", "pointsman project init --try --force"),
    "project add": ("pointsman project add shop.yaml",),
    "image build": (
        "pointsman image build",
        "pointsman image build --project shop --dockerfile ci/Dockerfile --tenant acme",
        "pointsman image build --project shop --devcontainer .devcontainer/devcontainer.json",
        "pointsman image build --project shop --packages 'gcc libpq-dev'",
    ),
    "run submit": ("pointsman run submit --project shop --ticket bug.md --wait",),
    "run show": ("pointsman run show ID",),
    "run shell": ("pointsman run shell ID --as ann --author 'Ann Smith <ann@acme.example>' --tenant acme",),
    "agent run": ('pointsman agent run qa --task "Test the cart" --dir .',),
    "approve": (
        "pointsman approve ID",
        "pointsman approve ID --undo-seconds 30",
        "pointsman approve ID --release RELEASE   # this one or none",
    ),
    "undo": ("pointsman undo ID",),
    "reject": ('pointsman reject ID --reason "The logo is too large."',),
    "revise": ('pointsman revise ID "Shorter, please" --wait',),
    "gate pass": ('pointsman gate pass GATE --reason "looks right"',),
    "gate fail": ('pointsman gate fail GATE --reason "not this way"',),
    "site import": ("pointsman site import bakery ./public", "pointsman site import bakery ./public.zip --publish"),
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
    "cells move": ("pointsman cells move acme --to west",),
    "broker acl": ("pointsman broker acl > users.acl",),
    "up": ("pointsman up", "pointsman up --port 9000 --speed max"),
    "worker": ("pointsman worker spec --concurrency 8", "pointsman worker answer tools --concurrency 4"),
    "fake-provider": ("pointsman fake-provider --port 9999 --speed max",),
    "eval": (
        "pointsman eval --jobs 4",
        "pointsman eval ./cases --provider anthropic --model claude-sonnet-4-6 --budget 5",
    ),
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
"""Examples that `--help` shows, by command."""

_AS_JSON = "pointsman.as_json"
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}


class _Commands(Mapping[str, Any]):
    """The commands of the root in the order of the panels; each is imported when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_PANEL_OF)

    def __len__(self) -> int:
        return len(_PANEL_OF)


@cache
def _load(name: str) -> Any:
    module = import_module(f"producers.commands.{_MODULE_OF[name]}")
    group = getattr(module, f"{name}_app", None)
    command: Any = _group_of(group or module.app)
    if group is None:
        command = command.commands[name]
    command.name, command.rich_help_panel = name, _PANEL_OF[name]
    for words, each in _walk_commands(command, name):
        if lines := EXAMPLES.get(words):
            head = "Examples:" if len(lines) > 1 else "Example:"
            each.epilog = "\n\n".join((head, *(f"  {line}" for line in lines)))
    return command


_group_of = cache(typer.main.get_group)
"""A module's commands are made together, once for all of them."""


def _walk_commands(command: Any, words: str) -> Iterator[tuple[str, Any]]:
    yield words, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _walk_commands(below, f"{words} {name}")


class _RootGroup(TyperGroup):
    """The root command."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the sub-commands in their order."""
        return list(self.commands)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note whether JSON is asked for: a command that is not understood cannot know it."""
        ctx.meta[_AS_JSON] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the sub-command; what it does not understand is an object where JSON is asked for."""
        try:
            return super().invoke(ctx)
        except typer.TyperException as error:
            if not ctx.meta[_AS_JSON]:
                raise
            import json

            typer.echo(json.dumps({"error": error.format_message()}, ensure_ascii=False), err=True)
            raise typer.Exit(error.exit_code) from None


def _read_environment() -> Mapping[str, str]:
    return os.environ


app = typer.Typer(
    cls=_RootGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "obj": _read_environment},
    help="Run AI edit jobs on a fleet of queue workers: routed before any model call, limited in time, money and "
    "output, published only after a scan and an approval.",
    epilog="Exit codes: 0 success, 1 the job or check failed, 2 usage error. `--json` prints machine-readable "
    "output. `pointsman --install-completion` adds shell completion for commands, sites and job ids.",
)


def _show_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"pointsman {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    ctx: typer.Context,
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME", help="The server of this `pointsman login`; `local`: none.")
    ] = "",
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""
    from producers.commands.context import choose_json  # every command imports it; `--version` does not

    ctx.call_on_close(lambda: choose_json(False))
    if profile:  # what a command line says is stronger than its environment
        own = {name: value for name, value in ctx.obj().items() if name not in ("POINTSMAN_URL", "POINTSMAN_KEY")}
        ctx.obj = lambda: {**own, "POINTSMAN_PROFILE": profile}


def main() -> None:
    """Run the command line."""
    gc.set_threshold(100_000)  # most of what a command makes are modules; programs set their own
    try:
        app(prog_name="pointsman")
    finally:
        gc.freeze()  # or its end would search all modules for cycles, for a third of a short command's time


if __name__ == "__main__":
    main()
