"""`route`: where a prompt goes and why, and `route replay`: where recorded ones would go under other rules."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ConfigDict, ValidationError
from typer.core import TyperGroup

from producers.commands.context import USAGE, AsJson, clear_errors, context_of, fail, out, print_json
from producers.commands.lines import read_lines
from producers.commands.routes_shown import show_evaluation, show_explanation, show_replay
from routing.batch import batch_line, route_fields, signals_of
from routing.config import PolicyConfig, read_settings
from routing.evaluation import Evaluation
from routing.explain import Explanation, explain
from routing.policy import Policy, load_policy
from routing.replay import Rules, replay
from routing.vocabularies import load_vocabularies
from routing.vocabulary import Vocabulary

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class _DefaultCommandGroup(TyperGroup):
    """A group whose first command is meant when none is named: `route PROMPT`, `route replay`, `route -- replay`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the first command's name in front of arguments that begin with no command's name."""
        default, *_ = self.commands
        named = bool(args) and args[0] in self.commands and args[0] != default
        return super().parse_args(ctx, args if named else [default, *args])


class _RouteSettings(BaseModel):
    model_config = ConfigDict(frozen=True)

    policy: PolicyConfig = PolicyConfig()


app = typer.Typer(
    cls=_DefaultCommandGroup,
    help="Decide where a prompt goes, check labelled samples, or rehearse other rules on recorded decisions.",
)


def _rules(ctx: typer.Context) -> Rules:
    """Return the rules that hold in this installation; the shipped ones where it says nothing."""
    config = read_settings(_RouteSettings, context_of(ctx).environment).policy
    return Rules(load_policy(config.path), load_vocabularies(config.vocabulary))


@app.command(
    "prompt", epilog="`pointsman route replay --help` tells how to rehearse other rules on recorded decisions."
)
def route(
    ctx: typer.Context,
    prompt: Annotated[str | None, typer.Argument(help="What to decide on; `-- replay` for the word itself.")] = None,
    batch: Annotated[Path | None, typer.Option(help="A JSON-lines file of prompts; prints a decision a line.")] = None,
    files: Annotated[int, typer.Option(min=0, help="Files of the site.")] = 0,
    has_js: Annotated[bool, typer.Option("--has-js", help="The site has scripts.")] = False,
    has_build: Annotated[bool, typer.Option("--has-build", help="The site has a build step.")] = False,
    preference: Annotated[str | None, typer.Option(help="spec or agent")] = None,
    advanced: Annotated[bool, typer.Option("--advanced", help="Ask for the code agent.")] = False,
    tenant: Annotated[str, typer.Option(help="Whose own words count, beside those for all.")] = "",
    explained: Annotated[
        bool, typer.Option("--explain", help="Say which words and rules decided, and what would have changed it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Decide where a prompt goes: offline, deterministic, with the reason."""
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
            _route_batch(batch, rules.policy, words)
            return
        site = {"files": files, "has_js": has_js, "has_build": has_build}
        line = {"id": "1", "prompt": prompt, "site": site, "preference": preference, "advanced_edit": advanced}
        if explained:
            _explain(explain(signals_of(line), rules.policy, words), str(prompt), as_json=as_json)
            return
        decision = batch_line(line, rules.policy, vocabulary=words)
    if as_json:
        print_json(decision)
        return
    for name, value in decision.items():
        if name != "id":
            out.print(f"{name:>11}  {json.dumps(value, ensure_ascii=False)}", markup=False)


def _explain(found: Explanation, prompt: str, *, as_json: bool) -> None:
    if not as_json:
        show_explanation(found, prompt)
        return
    body = found.model_dump(mode="json")
    print_json({"decision": route_fields(found.route), **body})


def _route_batch(path: Path, policy: Policy, words: Vocabulary) -> None:
    for place, line in read_lines(path, command="route"):
        with _named(place):
            decision = batch_line(line, policy, vocabulary=words)
        sys.stdout.write(json.dumps(decision, ensure_ascii=False) + "\n")


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Name the place of what is wrong with a line."""
    try:
        yield
    except KeyError as error:
        fail(f"route: {place}: the field {error} is missing", code=USAGE)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        fail(f"route: {place}: {'.'.join(str(part) for part in first['loc'])}: {first['msg']}", code=USAGE)
    except (ValueError, TypeError) as error:
        fail(f"route: {place}: {error}", code=USAGE)


@app.command("check")
def check_samples(
    ctx: typer.Context,
    samples: Annotated[Path, typer.Argument(help="JSON lines as for --batch, each with its label `expect`.")],
    vocabulary: Annotated[Path | None, typer.Option(help="The words to check; without it those in force.")] = None,
    tenant: Annotated[str, typer.Option(help="Whose own words count, beside those for all.")] = "",
    as_json: AsJson = False,
) -> None:
    """Hold decisions against labelled samples: accuracy, false positives and false negatives. Exit 1 on a miss."""
    with clear_errors():
        rules = _rules(ctx)
        words = (load_vocabularies(vocabulary) if vocabulary else rules.vocabularies).of(tenant)
        found = Evaluation()
        for place, line in read_lines(samples, command="route"):
            with _named(place):
                found.add(line, batch_line(line, rules.policy, vocabulary=words))
    if as_json:
        print_json({**found.figures(), "misses": [miss._asdict() for miss in found.misses]})
    else:
        show_evaluation(found)
    if found.misses:
        raise typer.Exit(1)


@app.command("replay")
def replay_decisions(
    ctx: typer.Context,
    policy: Annotated[Path | None, typer.Option(help="The policy to rehearse; without it the one in force.")] = None,
    vocabulary: Annotated[
        Path | None, typer.Option(help="The words to rehearse, a file as POINTSMAN_POLICY__VOCABULARY names it.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="From when on: 2026-02-18, 2026-02-18T13:00Z, or 90m, 12h, 7d.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Decide recorded jobs again under other rules: who would move tier or mode, at what cost. Changes nothing."""
    from monitoring.ledger.decisions import measured_work, recorded_decisions
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
            found = replay(decisions, work, current=current, changed=changed, redact=redact)
    print_json(found) if as_json else show_replay(found)


def _begin(since: str) -> datetime:
    """Read a moment, or an age; without a time zone it is UTC."""
    amount, unit = since[:-1], since[-1:]
    if amount.isascii() and amount.isdigit() and unit in _UNITS and len(amount) < 6:
        return datetime.now(UTC) - timedelta(**{_UNITS[unit]: int(amount)})
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        fail("route replay: --since must be a date, a date with a time, or an age such as 90m, 12h or 7d", code=USAGE)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
