"""Commands that examine an installation: `doctor`, `dashboards` and `capacity`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from producers.commands.context import (
    FAILED,
    OK,
    USAGE,
    AsJson,
    Context,
    context_of,
    fail,
    installed,
    out,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from monitoring.capacity.limits import Component
    from monitoring.capacity.plan import Plan, QueuePlan
    from monitoring.capacity.queueing import Waits
    from producers.findings import Finding
    from producers.use_cases.capacity import Answer


app = typer.Typer()


@app.command()
def doctor(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Check every part of an installation: OK, WARN or FAIL, and what to do. Exit 1 if one fails."""
    from producers.findings import Verdict, worst

    findings = []
    for finding in _examine(context_of(ctx)):
        findings.append(finding)
        if not as_json:
            out.print(finding.line, markup=False, soft_wrap=True)
    verdict = worst(findings)
    if as_json:
        print_json({"verdict": verdict.value, "findings": [finding._asdict() for finding in findings]})
    raise typer.Exit(FAILED if verdict is Verdict.FAIL else OK)


def _examine(context: Context) -> Iterator[Finding]:
    """Check every part; only an invalid configuration stops this."""
    from producers.findings import examine, fail, ok
    from routing.errors import PolicyError

    try:
        installation = context.installation()
        policy = installation.policy
        if installation.settings.policy.vocabulary is not None:  # the shipped one is tested, and takes long to read
            _ = installation.vocabularies
    except (PolicyError, OSError) as error:
        yield fail("configuration", str(error), "fix it: no program starts with it")
        return
    yield ok("configuration", f"policy {policy.prices_as_of}")
    from producers.doctor import checks_of  # takes longer than all before it

    try:
        yield from examine(checks_of(installation, dict(context.environment)))
    finally:
        installation.close()


@app.command("dashboards")
def write_dashboards(
    directory: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory of the dashboards.")],
    rules: Annotated[
        Path | None, typer.Option("--rules", metavar="FILE", help="Also write the alert rules to this file.")
    ] = None,
    docs: Annotated[
        str, typer.Option("--docs", metavar="URL", help="Where the documentation is; alerts link to its runbooks.")
    ] = "",
    grafana: Annotated[
        str, typer.Option("--grafana", metavar="URL", help="Where Grafana is; alerts link to its dashboards.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Write the dashboards as JSON for Grafana's file provisioning; no running installation is needed.

    Point a provider of type `file` (grafana/provisioning/dashboards/*.yml) at DIR. Viewers choose the Prometheus data
    source of each dashboard. With --rules the alert rules go to FILE, for `rule_files` of prometheus.yml.
    """
    texts = {directory / name: text for name, text in read_dashboards().items()}
    if rules is not None:
        texts[rules] = read_alert_rules(docs=docs, grafana=grafana)
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    except OSError as error:
        fail(f"dashboards: {error.filename}: {error.strerror}")
    if as_json:
        print_json({"written": [str(path) for path in texts]})
        return
    for path in texts:
        out.print(str(path), markup=False)


def read_dashboards() -> dict[str, str]:
    """Return Grafana's dashboards by file name."""
    folder = resources.files("monitoring") / "dashboards"
    return {file.name: file.read_text() for file in sorted(folder.iterdir(), key=lambda file: file.name)}


def read_alert_rules(*, docs: str = "", grafana: str = "") -> str:
    """Return the alert rules for Prometheus.

    Args:
        docs: base URL of the documentation; empty leaves links to runbooks relative.
        grafana: base URL of Grafana; empty leaves links to dashboards relative.
    """
    text = (resources.files("monitoring") / "alerts" / "rules.yaml").read_text()
    if docs:
        text = text.replace("runbook_url: ", f"runbook_url: {docs.rstrip('/')}/")
    if grafana:
        text = text.replace("dashboard_url: ", f"dashboard_url: {grafana.rstrip('/')}")
    return text


def _repeatable(metavar: str, words: str) -> object:
    return typer.Option(metavar=metavar, help=f"{words}; repeatable.")


Texts = list[str] | None


@app.command()
def capacity(
    ctx: typer.Context,
    rate: Annotated[Texts, _repeatable("RATE", "New jobs: 5/s, 3000000/day, or spec=2/s; default: as measured")] = None,
    wait: Annotated[Texts, _repeatable("SECONDS", "Longest wait of 95 % of attempts, or spec=10")] = None,
    ceiling: Annotated[
        float | None,
        typer.Option(metavar="USD", min=0, help="Daily cost limit; default: the policy's budget."),
    ] = None,
    slots: Annotated[Texts, _repeatable("QUEUE=N", "Fix the size of a pool; or `now`: all pools as they are")] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="WHERE", help="ledger, defaults, or a file of --save; default: the ledger."),
    ] = None,
    hours: Annotated[int, typer.Option(metavar="N", min=1, max=8_760, help="How far back to read the ledger.")] = 24,
    peak: Annotated[
        float | None,
        typer.Option(
            metavar="FACTOR", min=1, max=100, help="Peak over the daily mean; default: 2.5 for daily rates, else 1."
        ),
    ] = None,
    burstiness: Annotated[
        float,
        typer.Option(
            metavar="RATIO", min=1, max=100, help="Variance of arrivals over their mean; random arrivals have 1."
        ),
    ] = 1.0,
    slot_usd: Annotated[float, typer.Option(metavar="USD", min=0, help="Hourly cost of a worker slot.")] = 0.0,
    busy: Annotated[
        float, typer.Option(metavar="SHARE", min=0.05, max=0.99, help="Maximum utilisation of a planned slot.")
    ] = 0.9,
    apis: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="API processes.")] = 1,
    gateways: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="Gateway processes.")] = 1,
    tenants: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Tenants with work; default: as measured.")
    ] = None,
    limits: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Limits of the other components, as make bench ONLY=capacity writes."),
    ] = None,
    limit: Annotated[Texts, _repeatable("NAME=VALUE", "Override one limit")] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Save the measurements for --from.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit 1 if a target, the cost limit or a component fails.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Size the worker pools with a queueing formula, and name the next bottleneck.

    Durations, escalations and costs come from the ledger's attempts; what was not measured has defaults, and the answer
    says so. docs/scaling.md explains the formula and its limits.
    """
    from ledger.errors import CapacityError
    from producers.use_cases.capacity import CapacityOptions, answer, save_workload

    options = CapacityOptions(
        rates=rate or (),
        waits=wait or (),
        slots=slots or (),
        limits=limit or (),
        limits_file=limits,
        source=source,
        hours=hours,
        peak=peak,
        burstiness=burstiness,
        ceiling_usd=ceiling,
        slot_usd_hour=slot_usd,
        most_busy=busy,
        apis=apis,
        gateways=gateways,
        tenants=tenants,
    )
    with installed(ctx) as installation:
        try:
            result = answer(installation, options)
            if save is not None:
                save_workload(result.workload, save)
        except CapacityError as error:
            fail(str(error), code=USAGE)
    if as_json:
        print_json(_view(result))
    else:
        _show(result)
    if check and not result.plan.is_good:
        raise typer.Exit(FAILED)


def _show(answer: Answer) -> None:
    plan = answer.plan
    rate = sum(answer.question.arriving.values())
    out.print(f"{plan.jobs_per_day:,.0f} jobs a day, {rate:.4g}/s at the peak", markup=False)
    out.print(f"work: {answer.workload.source}\n", markup=False)
    heads = ("queue", "attempts/s", "mean", "slots", "now", "busy", "target", "wait p50/p95/p99", "work")
    print_table(heads, (_row(answer, queue) for queue in plan.queues))
    out.print()
    parts = (
        (
            part.name,
            f"{part.load:,.4g}",
            f"{part.limit:,.4g}",
            part.unit,
            f"{part.headroom:.2f}x",
            f"{part.headroom * plan.jobs_per_day:,.0f}",
            part.basis,
        )
        for part in plan.components
    )
    print_table(("component", "load", "limit", "unit", "headroom", "jobs/day", "source"), parts)
    out.print()
    for sentence in _sentences(answer):
        out.print(sentence, markup=False)


def _row(answer: Answer, queue: QueuePlan) -> tuple[str, ...]:
    work = answer.workload.queues[queue.queue]
    return (
        queue.queue.value,
        f"{queue.load.rate:.3g}",
        f"{work.mean_seconds:.3g} s",
        str(queue.slots),
        str(answer.slots_now.get(queue.queue, 0)) if answer.slots_now else "-",
        f"{queue.busy:.0%}",
        f"{queue.target_seconds:g} s" + ("" if queue.is_met else " MISSED"),
        _waits(queue.waits),
        f"{work.attempts:,} measured" if work.source == "measured" else "default",
    )


def _waits(waits: Waits) -> str:
    return f"{waits.p50:.2f}/{waits.p95:.2f}/{waits.p99:.2f} s" if waits.is_bounded else "unbounded"


def _sentences(answer: Answer) -> Iterator[str]:
    """Yield what an operator can act on."""
    plan = answer.plan
    missed = [queue.queue.value for queue in plan.queues if not queue.is_met]
    yield f"targets: missed on {', '.join(missed)}" if missed else "targets: all met"
    verdict = "respected" if plan.is_affordable else f"exceeded: it pays for {plan.affordable_jobs:,.0f} jobs a day"
    split = f"models ${plan.model_usd_day:,.2f}, workers ${plan.worker_usd_day:,.2f}"
    yield f"cost: ${plan.usd_day:,.2f} a day ({split}); the limit of ${plan.ceiling_usd:,.2f} is {verdict}"
    yield f"next bottleneck: {_describe(plan, plan.bottleneck)}"
    if plan.bottleneck != plan.bottleneck_measured:
        yield f"beyond workers and the policy's own limits: {_describe(plan, plan.bottleneck_measured)}"
    yield f"components measured on: {answer.limits.machine} ({answer.limits.at})"
    yield from (f"note: {note}" for note in plan.notes)


def _describe(plan: Plan, part: Component) -> str:
    limit = f"handles {part.headroom * plan.jobs_per_day:,.0f} jobs a day ({part.headroom:.2f} times this load)"
    return f"{part.name}, which {limit}{'; more slots help' if part.is_elastic else ''}"


def _view(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON data."""
    plan = answer.plan
    return {
        "jobs_per_day": plan.jobs_per_day,
        "arriving_per_second": {queue.value: rate for queue, rate in answer.question.arriving.items()},
        "burstiness": answer.question.burstiness,
        "work": answer.workload.source,
        "queues": [_queue_view(answer, queue) for queue in plan.queues],
        "cost": {
            "usd_day": plan.usd_day,
            "model_usd_day": plan.model_usd_day,
            "worker_usd_day": plan.worker_usd_day,
            "ceiling_usd": plan.ceiling_usd,
            "is_kept": plan.is_affordable,
            "affordable_jobs_day": _or_none(plan.affordable_jobs),
        },
        "bottleneck": plan.bottleneck.name,
        "bottleneck_beyond_workers_and_policy": plan.bottleneck_measured.name,
        "parts": [
            asdict(part) | {"headroom": part.headroom, "jobs_per_day": part.headroom * plan.jobs_per_day}
            for part in plan.components
        ],
        "limits": answer.limits.model_dump(),
        "notes": list(plan.notes),
        "is_good": plan.is_good,
    }


def _queue_view(answer: Answer, queue: QueuePlan) -> dict[str, Any]:
    work = answer.workload.queues[queue.queue]
    return {
        "queue": queue.queue.value,
        "attempts_per_second": queue.load.rate,
        "slots": queue.slots,
        "slots_now": answer.slots_now.get(queue.queue),
        "is_fixed": queue.is_fixed,
        "busy": queue.busy,
        "target_p95_seconds": _or_none(queue.target_seconds),
        "is_met": queue.is_met,
        "mean_seconds": work.mean_seconds,
        "variability": work.variability,
        "pickup_seconds": work.pickup_seconds,
        "turnaround_seconds": work.turnaround_seconds,
        "work": work.source,
        "measured_attempts": work.attempts,
        "wait_seconds": {name: _or_none(value) for name, value in asdict(queue.waits).items()},
    }


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
