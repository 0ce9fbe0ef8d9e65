"""Decisions and their results, tried out: `route` with its explanations, checks and replays, `ladder`, and `eval`."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from rich.text import Text
from typer.core import TyperGroup

from producers.commands.context import (
    FAILED,
    OK,
    PROVIDER_HELP,
    USAGE,
    AsJson,
    clear_errors,
    context_of,
    decide_lines,
    fail,
    line_errors,
    out,
    print_json,
    print_table,
    read_lines,
    wants_json,
)
from producers.harmless import harmless
from routing.config import PolicyConfig, read_settings
from routing.decision.evaluation import (
    FIELDS,
    Evaluation,
    Miss,
    Move,
    Outcome,
    Replay,
    Rules,
    batch_line,
    replay,
    route_fields,
    signals_of,
)
from routing.decision.explanation import Explanation, MatchedRule, Place, explain
from routing.policy.platform import load_policy
from routing.prompt.vocabulary import load_vocabularies

MAX_MOVES = 20
"""Moves that are listed; `--json` has all."""
_EXCERPT = 60


def show_explanation(explanation: Explanation, prompt: str) -> None:
    """Print an explanation, with the triggers underlined in the prompt."""
    route = explanation.route
    text = Text(harmless(prompt))
    for trigger in (*explanation.triggers, *explanation.not_counted):
        text.stylize("underline", trigger.start, trigger.end)
    out.print(text, "\n")
    tier = f", tier {route.tier.value}" if route.tier else ""
    out.print(
        f"{route.mode.value} ({route.confidence.value}){tier} on queue {route.queue.value}; debate {route.debate.value}"
    )
    out.print(f"{route.reason}\n")
    heading = "triggers" if explanation.triggers else "triggers that do not count in a question"
    _list(
        heading,
        [
            f"at {trigger.start:>4}  {harmless(prompt[trigger.start : trigger.end])!r}  {trigger.kind}"
            for trigger in explanation.triggers or explanation.not_counted
        ],
    )
    _list("winning rule", [_rule(explanation.winner)])
    _list("other matching rules, in order", [_rule(item) for item in explanation.runners_up])
    _list(
        "what would change it",
        [
            f"{harmless(item.change)}: "
            + ", ".join(f"{diff.field} {_word(diff.was)} → {_word(diff.would_be)}" for diff in item.differences)
            for item in explanation.what_if
        ],
    )
    if explanation.untried:
        out.print(f"{explanation.untried} more parts of the prompt were not tried")


def show_evaluation(evaluation: Evaluation) -> None:
    """Print how well decisions match their labels, and every miss with its triggers."""
    figures = evaluation.figures()
    out.print(f"{evaluation.total} samples")
    for name in FIELDS:
        out.print(f"{name:>8}  {figures[name]:7.2%}")
    out.print(f"planning debates: precision {evaluation.debate_precision:.2%}, recall {evaluation.debate_recall:.2%}")
    _list("False positives (ACTION where a question was meant)", [_miss(miss) for miss in evaluation.false_actions])
    _list("False negatives (ANSWER where work was meant)", [_miss(miss) for miss in evaluation.false_answers])
    others = (miss for miss in evaluation.misses if miss.field != "mode")
    lines = [f"{miss.field} {_word(miss.got)}, not {_word(miss.accepted[0])}: {_miss(miss)}" for miss in others]
    _list("Other misses", lines)


def _miss(miss: Miss) -> str:
    words = ", ".join(harmless(trigger) for trigger in miss.triggers) or "no trigger"
    return f"{harmless(miss.id)} {_excerpt(miss.prompt)} [{words}]"


def _list(heading: str, lines: Sequence[str]) -> None:
    out.print(f"{heading}:" if lines else f"{heading}: none")
    for line in lines:
        out.print(f"  {line}")


def _rule(item: MatchedRule) -> str:
    tier = f", tier {item.tier.value}" if item.tier else ""
    return f"{item.rule} ({item.mode.value}{tier}): {item.why}{_words(item.evidence)}"


def _words(evidence: Iterable[Place]) -> str:
    listed = ", ".join(f"{harmless(place.text)!r} at {place.start}" for place in evidence)
    return f" [{listed}]" if listed else ""


def _word(value: object) -> str:
    return "none" if value is None else str(value)


def show_replay(result: Replay) -> None:
    """Print the moves of a replay, their effects, and the limits of the figures."""
    out.print(f"{result.decisions} decisions, {len(result.moves)} would change")
    if result.moves:
        print_table(("from", "to", "jobs", "USD", "seconds"), _sums(result.moves))
        for move in result.moves[:MAX_MOVES]:
            out.print(f"{move.job_id}  {_place(move.was)} → {_place(move.would_be)}  {_excerpt(move.prompt)}")
            out.print(f"  {move.rule}: {move.reason}")
        if len(result.moves) > MAX_MOVES:
            out.print(f"and {len(result.moves) - MAX_MOVES} more; --json lists all")
    for queue, average in result.averages.items():
        out.print(f"average on {queue}: {average.usd:.4f} USD and {average.seconds:.1f} s, over {average.jobs} jobs")
    for queue, hits in sorted(result.new_hits.items()):
        out.print(f"new limits on {queue}: {hits.time} jobs would exceed the time limit, {hits.cost} the budget")
    _show_caveats(result)


def _show_caveats(result: Replay) -> None:
    if claimed := result.site_sources.get("claimed"):
        out.print(f"{claimed} decisions do not record their site; its state at the claim is used")
    if now := result.site_sources.get("now"):
        out.print(f"{now} decisions do not record their site; its present state is used")
    if result.by_model:
        out.print(f"{result.by_model} decisions used a model; for these only the rules are compared")
    if result.unreadable:
        out.print(f"{result.unreadable} decisions cannot be read by this version")


def _place(outcome: Outcome) -> str:
    if outcome.is_refused:
        return "refused"
    return f"{outcome.mode.value} {outcome.queue.value}"


def _excerpt(prompt: str) -> str:
    line = " ".join(harmless(prompt).split())
    return line[:_EXCERPT] + "..." if len(line) > _EXCERPT else line


def _sums(moves: Iterable[Move]) -> Iterator[tuple[object, ...]]:
    groups: defaultdict[tuple[str, str], list[Move]] = defaultdict(list)
    for move in moves:
        groups[_place(move.was), _place(move.would_be)].append(move)
    for (was, would_be), group in sorted(groups.items()):
        usd = _total(move.usd for move in group)
        seconds = _total(move.seconds for move in group)
        dear = "not measured" if usd is None else f"{usd:+.4f}"
        yield was, would_be, len(group), dear, "not measured" if seconds is None else f"{seconds:+.1f}"


def _total(values: Iterable[float | None]) -> float | None:
    amounts = list(values)
    return None if None in amounts else sum(amount for amount in amounts if amount is not None)


_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class _DefaultCommandGroup(TyperGroup):
    """A group whose first command is the default: `route PROMPT`, `route replay`, `route -- replay`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command unless the arguments name one."""
        default, *_ = self.commands
        is_named = bool(args) and args[0] in self.commands and args[0] != default
        return super().parse_args(ctx, args if is_named else [default, *args])


class _RouteSettings(BaseModel, frozen=True):
    policy: PolicyConfig = PolicyConfig()


route_app = typer.Typer(
    cls=_DefaultCommandGroup,
    help="Route a prompt offline, check labelled samples, or replay recorded decisions under other rules.",
)


def _rules(ctx: typer.Context) -> Rules:
    """Return the rules of this installation, by default the shipped ones."""
    config = read_settings(_RouteSettings, context_of(ctx).environment).policy
    return Rules(load_policy(config.path), load_vocabularies(config.vocabulary))


@route_app.command("prompt", epilog="`pointsman route replay --help` explains how to replay recorded decisions.")
def route(
    ctx: typer.Context,
    prompt: Annotated[str | None, typer.Argument(help="The prompt; `-- replay` for that word itself.")] = None,
    batch: Annotated[
        Path | None, typer.Option(help="JSON-lines file of prompts; prints one decision per line.")
    ] = None,
    files: Annotated[int, typer.Option(min=0, help="Number of files of the site.")] = 0,
    has_js: Annotated[bool, typer.Option("--has-js", help="The site has scripts.")] = False,
    has_build: Annotated[bool, typer.Option("--has-build", help="The site has a build step.")] = False,
    has_spec: Annotated[bool, typer.Option("--has-spec", help="The site's pages are rendered from a spec.")] = False,
    preference: Annotated[str | None, typer.Option(help="spec or agent")] = None,
    advanced: Annotated[bool, typer.Option("--advanced", help="Request the code agent.")] = False,
    tenant: Annotated[str, typer.Option(help="Tenant whose own vocabulary counts, too.")] = "",
    explained: Annotated[
        bool, typer.Option("--explain", help="Explain which words and rules decided, and what would change it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Route a prompt: offline, deterministic, with the reason."""
    if (prompt is None) == (batch is None):
        fail("route: give a PROMPT or --batch FILE", code=USAGE)
    if prompt is not None and not prompt.strip():
        fail("route: PROMPT must not be empty", code=USAGE)
    if preference not in (None, "spec", "agent"):
        fail("route: --preference must be spec or agent", code=USAGE)
    with clear_errors():
        rules = _rules(ctx)
        words = rules.vocabularies.of(tenant)
        if batch is not None:
            decide_lines(batch, lambda line: batch_line(line, rules.policy, vocabulary=words), command="route")
            return
        site = {"files": files, "has_js": has_js, "has_build": has_build, "has_spec": has_spec}
        line = {"id": "1", "prompt": prompt, "site": site, "preference": preference, "advanced_edit": advanced}
        if explained:
            _explain(explain(signals_of(line), rules.policy, words), str(prompt))
            return
        decision = batch_line(line, rules.policy, vocabulary=words)
    if as_json:
        print_json(decision)
        return
    for name, value in decision.items():
        if name != "id":
            out.print(f"{name:>11}  {json.dumps(value, ensure_ascii=False)}")


def _explain(explanation: Explanation, prompt: str) -> None:
    if wants_json():
        print_json({"decision": route_fields(explanation.route), **explanation.model_dump(mode="json")})
    else:
        show_explanation(explanation, prompt)


@route_app.command("check")
def check_samples(
    ctx: typer.Context,
    samples: Annotated[Path, typer.Argument(help="JSON lines as for --batch, each with a label `expect`.")],
    vocabulary: Annotated[Path | None, typer.Option(help="Vocabulary to check; default: the installation's.")] = None,
    tenant: Annotated[str, typer.Option(help="Tenant whose own vocabulary counts, too.")] = "",
    as_json: AsJson = False,
) -> None:
    """Compare decisions with labelled samples: accuracy, false positives and negatives. Exit 1 on a miss."""
    with clear_errors():
        rules = _rules(ctx)
        words = (load_vocabularies(vocabulary) if vocabulary else rules.vocabularies).of(tenant)
        evaluation = Evaluation()
        for place, line in read_lines(samples, command="route"):
            with line_errors(place, command="route"):
                evaluation.add(line, batch_line(line, rules.policy, vocabulary=words))
    if as_json:
        print_json({**evaluation.figures(), "misses": [miss._asdict() for miss in evaluation.misses]})
    else:
        show_evaluation(evaluation)
    if evaluation.misses:
        raise typer.Exit(FAILED)


@route_app.command("replay")
def replay_decisions(
    ctx: typer.Context,
    policy: Annotated[Path | None, typer.Option(help="Policy to try; default: the installation's.")] = None,
    vocabulary: Annotated[
        Path | None, typer.Option(help="Vocabulary to try, a file as for POINTSMAN_POLICY__VOCABULARY.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only decisions since: 2026-02-18, 2026-02-18T13:00Z, or 90m, 12h, 7d.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay recorded decisions under other rules: which jobs would change tier or mode, at what cost. Read only."""
    from ledger.decisions import measured_work, recorded_decisions
    from routing.redaction import redact

    with clear_errors():
        current = _rules(ctx)
        changed = Rules(
            load_policy(policy) if policy else current.policy,
            load_vocabularies(vocabulary) if vocabulary else current.vocabularies,
        )
        begin = _begin(since) if since else None
        with closing(context_of(ctx).installation().ledger) as ledger, ledger.begin() as session:
            work = list(measured_work(session, since=begin))
            decisions = recorded_decisions(session, since=begin)
            result = replay(decisions, work, current=current, changed=changed, redact=redact)
    print_json(result) if as_json else show_replay(result)


def _begin(since: str) -> datetime:
    """Parse a time, by default in UTC, or an age."""
    amount, unit = since[:-1], since[-1:]
    if amount.isascii() and amount.isdigit() and unit in _UNITS and len(amount) < 6:
        return datetime.now(UTC) - timedelta(**{_UNITS[unit]: int(amount)})
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        fail("route replay: --since must be a date, a date with a time, or an age such as 90m, 12h or 7d", code=USAGE)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


app = typer.Typer()


class CaseSet(StrEnum):
    """What `eval` runs."""

    SITES = "sites"
    REVIEWS = "reviews"


@app.command()
def ladder(
    batch: Annotated[Path, typer.Option(help="JSON-lines file of replies; prints one decision per line.")],
) -> None:
    """Interpret replies to clarifying questions offline; the lines hold the model's answers."""
    from routing.clarify.questions import ladder_line

    decide_lines(batch, ladder_line, command="ladder")


@app.command("eval")
def evaluate(
    ctx: typer.Context,
    cases: Annotated[
        list[Path] | None, typer.Argument(help="Files or directories of cases; the shipped ones by default.")
    ] = None,
    chosen: Annotated[
        CaseSet, typer.Option("--set", metavar="SET", help="sites: edits of sites; reviews: fixes that agents review.")
    ] = CaseSet.SITES,
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
    browser: Annotated[
        bool | None,
        typer.Option(
            "--browser/--no-browser",
            help="Look (or not: --no-browser) at the results in Chromium: scripts, axe, places that look different. "
            "By default where it and the extra `eval` are installed.",
        ),
    ] = None,
    pictures: Annotated[bool, typer.Option(help="Pictures before and after; needs the browser.")] = False,
    judge: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="A model that scores the results by a rubric, at the provider's account."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run cases on an installation of their own, and report how many came out right. Exit 1 if any did not."""
    from producers.evaluation.browser import can_browse
    from producers.evaluation.report import evaluate_cases
    from producers.evaluation.reviews import evaluate_reviews
    from producers.evaluation.run import Plan
    from producers.local.embedded import account_in

    environment = dict(context_of(ctx).environment)
    with clear_errors():
        account = account_in(environment, provider)
    if account is not None and budget is None:
        fail(f"eval: --provider {provider} needs a --budget", code=USAGE)
    if judge is not None and account is None:
        fail("eval: --judge needs a --provider that is not fake", code=USAGE)
    if chosen is CaseSet.REVIEWS and (browser or pictures or judge):
        fail("eval: --browser, --pictures and --judge are for --set sites", code=USAGE)
    browser = can_browse() if browser is None else browser
    if (browser or pictures) and not (can_browse() and browser):
        fail("eval: a browser needs Chromium and `pip install pointsman[eval]`", code=USAGE)
    logging.disable(logging.WARNING)
    plan = Plan(
        account=account,
        model=model,
        policy=policy,
        budget_usd=budget,
        judge=judge,
        jobs=jobs,
        cases=tuple(path.absolute() for path in cases or ()),
    )
    how: dict[str, Any] = {
        "only": only,
        "kept": keep,
        "resume": resume,
        "environment": environment,
        "tell": (lambda line: None) if as_json else out.print,
    }
    with clear_errors():
        if chosen is CaseSet.REVIEWS:
            report = evaluate_reviews(plan, **how)
        else:
            report = evaluate_cases(plan, browser=browser, pictures=pictures, **how)
    if as_json:
        print_json(report.summary)
    raise typer.Exit(OK if report.is_good else FAILED)
