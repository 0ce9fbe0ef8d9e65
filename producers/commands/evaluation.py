"""`eval`: run cases through a whole installation of their own, and report what came out right."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from producers.commands.context import (
    FAILED,
    OK,
    PROVIDER_HELP,
    USAGE,
    AsJson,
    clear_errors,
    context_of,
    fail,
    out,
    print_json,
)

app = typer.Typer()


@app.command("eval")
def evaluate(
    ctx: typer.Context,
    cases: Annotated[
        list[Path] | None, typer.Argument(help="Files or directories of cases; the shipped ones by default.")
    ] = None,
    provider: Annotated[str, typer.Option(metavar="NAME", help=PROVIDER_HELP)] = "fake",
    model: Annotated[str | None, typer.Option(help="For every call, instead of the policy's models.")] = None,
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="A policy to try.")] = None,
    budget: Annotated[
        float | None, typer.Option(min=0.01, metavar="USD", help="For all cases together; needed with a real provider.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=32, metavar="N", help="Cases at a time.")] = 4,
    only: Annotated[str, typer.Option(metavar="GLOB", help="Only the cases with such an id.")] = "*",
    resume: Annotated[bool, typer.Option("--resume", help="Continue the last run, if it did not end.")] = False,
    keep: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where runs are kept; by default the state directory.")
    ] = None,
    pictures: Annotated[bool, typer.Option(help="Pictures before and after, where Chromium is installed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run cases from router to preview, and report how many came out right. Exit 1 if any did not."""
    from producers.evaluation.report import evaluate_cases
    from producers.evaluation.run import Plan
    from producers.local.embedded import account_in

    environment = dict(context_of(ctx).environment)
    with clear_errors():
        account = account_in(environment, provider)
    if account is not None and budget is None:
        fail(f"eval: --provider {provider} needs a --budget", code=USAGE)
    logging.disable(logging.WARNING)
    with clear_errors():
        report = evaluate_cases(
            Plan(
                account=account,
                model=model,
                policy=policy,
                budget_usd=budget,
                jobs=jobs,
                cases=tuple(path.absolute() for path in cases or ()),
            ),
            only=only,
            kept=keep,
            resume=resume,
            pictures=pictures,
            environment=environment,
            tell=(lambda line: None) if as_json else (lambda line: out.print(line, markup=False)),
        )
    if as_json:
        print_json(report.summary)
    raise typer.Exit(OK if report.is_good else FAILED)
