"""What `--help` shows around each command: the panel that it is in, and examples that can be copied.

Here and not beside each command, since a reader of the help reads it as one page: what comes first, and what belongs
together, is decided in one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperGroup
from typer.models import CommandInfo

PANELS: Mapping[str, Sequence[str]] = {
    "Submit": ("submit", "jobs", "job", "watch", "reply", "cancel", "resume", "project", "run", "agent"),
    "Review": ("approve", "reject", "revise", "gate", "site"),
    "Operate": (
        "doctor", "queue", "tenant", "key", "webhook", "lane", "lanes", "dead", "replay", "dismiss", "audit",
        "capacity", "dashboards", "backup", "restore", "broker",
    ),
    "Run the fleet": (
        "up", "demo", "worker", "api", "gateway", "dispatcher", "exporter", "mirror", "rehearsal", "migrate", "image",
        "box",
    ),
    "Offline tools": ("route", "ladder", "apply", "render", "scan"),
}  # fmt: skip
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
