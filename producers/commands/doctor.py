"""`doctor`: what of an installation is well, and what to do about the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from producers.commands.context import FAILED, AsJson, Context, context_of, out, print_json
from routing.config import read_settings, without_settings

if TYPE_CHECKING:
    from producers.bootstrap import Installation
    from producers.doctor.findings import Finding

app = typer.Typer()


@app.command()
def doctor(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Look at every part of an installation: OK, WARN or FAIL, and what to do. Exit 1 where one fails."""
    from producers.doctor.findings import Verdict, worst

    findings = []
    for finding in _examine(context_of(ctx)):
        findings.append(finding)
        if not as_json:
            out.print(finding.line, markup=False, soft_wrap=True)
    verdict = worst(findings)
    if as_json:
        print_json({"verdict": verdict.value, "findings": [finding._asdict() for finding in findings]})
    raise typer.Exit(FAILED if verdict is Verdict.FAIL else 0)


def _examine(context: Context) -> Iterator[Finding]:
    """Look at one part after another: a configuration that cannot be read ends it, nothing else does."""
    from producers.doctor.findings import fail, ok
    from routing.errors import PolicyError

    try:
        installation = context.installation()
        policy = installation.policy
        _ = installation.vocabularies
    except (PolicyError, OSError) as error:
        yield fail("configuration", str(error), "mend it: every program refuses to start with it")
        return
    yield ok("configuration", f"policy {policy.prices_as_of}")
    try:
        yield from _examine_installation(installation, context)
    finally:
        installation.close()


def _examine_installation(installation: Installation, context: Context) -> Iterator[Finding]:
    from producers.doctor import record, surroundings

    environment = dict(context.environment)
    yield from surroundings.check_policy(installation.policy)
    yield from record.check_ledger(installation)
    yield from surroundings.check_broker(installation)
    yield from surroundings.check_transport(installation)
    yield from surroundings.check_files(installation)
    yield from surroundings.check_secrets(installation)
    yield from surroundings.check_gateway(installation.settings.worker.gateway_url, environment)
    yield from surroundings.check_exporter(installation)
    yield from _check_boxes(installation, context)


def _check_boxes(installation: Installation, context: Context) -> Iterator[Finding]:
    """Boxes are for code agents and builds alone: without them everything else works."""
    from producers.commands.image import BoxSettings
    from producers.doctor.findings import fail, ok, warn
    from routing.errors import PolicyError
    from routing.queues import QUEUES
    from sandbox.checks import check_boxes
    from sandbox.mirror.checks import check_mirror

    mirror = installation.settings.mirror
    found = [*check_mirror(mirror.npm, without_settings(installation.environment()), npmrc=mirror.npmrc)]
    try:
        found += [*check_boxes(read_settings(BoxSettings, context.environment).box)]
    except PolicyError as error:
        engines = ", ".join(name for name, queue in QUEUES.items() if queue.needs_box)
        yield fail("boxes", str(error), f"mend it in the environment of the workers of {engines}")
    for name, hint in found:
        yield warn(name, hint, "only code agents and builds need it") if hint else ok(name)
