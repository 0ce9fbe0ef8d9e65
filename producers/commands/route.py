"""`route`: where a prompt goes and why, and `route replay`: where recorded ones would go under other rules."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, ConfigDict, ValidationError
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from producers.commands.context import USAGE, AsJson, clear_errors, context_of, fail, out, print_json, read_lines
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
from routing.policy.platform import Policy, load_policy
from routing.prompt.vocabulary import Vocabulary, load_vocabularies

# Explanations and replays as people read them. A prompt is shown with nothing in it that a terminal would obey.

MAX_MOVES = 20
"""Moves that are listed one by one; `--json` has all."""
_EXCERPT = 60
_OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters but the newline, and what turns the direction of text. Each is shown as one sign: places hold."""


def harmless(text: str) -> str:
    """Return text of the same length that no terminal obeys."""
    return _OBEYED.sub("\N{REPLACEMENT CHARACTER}", text)


def show_explanation(found: Explanation, prompt: str) -> None:
    """Print an explanation, the triggers underlined in the prompt."""
    route = found.route
    shown = Text(harmless(prompt))
    for trigger in (*found.triggers, *found.not_counted):
        shown.stylize("underline", trigger.start, trigger.end)
    out.print(shown, "\n")
    tier = f", tier {route.tier.value}" if route.tier else ""
    _say(
        f"{route.mode.value} ({route.confidence.value}){tier} on queue {route.queue.value}; debate {route.debate.value}"
    )
    _say(f"{route.reason}\n")
    heading = "triggers" if found.triggers else "triggers that a question is not judged by"
    _list(
        heading,
        [
            f"at {trigger.start:>4}  {harmless(prompt[trigger.start : trigger.end])!r}  {trigger.kind}"
            for trigger in found.triggers or found.not_counted
        ],
    )
    _list("the rule that won", [_rule(found.winner)])
    _list("runners-up, in binding order", [_rule(item) for item in found.runners_up])
    _list(
        "what would have changed it",
        [
            f"{harmless(item.change)}: "
            + ", ".join(f"{diff.field} {_word(diff.was)} → {_word(diff.would_be)}" for diff in item.differences)
            for item in found.what_if
        ],
    )
    if found.untried:
        _say(f"{found.untried} more places of the prompt were not left out one by one")


def _say(line: str) -> None:
    out.print(line, markup=False)


def show_evaluation(found: Evaluation) -> None:
    """Print how well decisions match their labels, and every miss with the words that led to it."""
    figures = found.figures()
    _say(f"{found.total} samples")
    for name in FIELDS:
        _say(f"{name:>8}  {figures[name]:7.2%}")
    _say(f"planning debates: precision {found.debate_precision:.2%}, recall {found.debate_recall:.2%}")
    _list("False positives (ACTION where a question was meant)", [_miss(miss) for miss in found.false_actions])
    _list("False negatives (ANSWER where work was meant)", [_miss(miss) for miss in found.false_answers])
    others = (miss for miss in found.misses if miss.field != "mode")
    lines = [f"{miss.field} {_word(miss.got)}, not {_word(miss.accepted[0])}: {_miss(miss)}" for miss in others]
    _list("Other misses", lines)


def _miss(miss: Miss) -> str:
    words = ", ".join(harmless(trigger) for trigger in miss.triggers) or "no trigger"
    return f"{harmless(miss.id)} {_excerpt(miss.prompt)} [{words}]"


def _list(heading: str, lines: Sequence[str]) -> None:
    _say(f"{heading}:" if lines else f"{heading}: none")
    for line in lines:
        _say(f"  {line}")


def _rule(item: MatchedRule) -> str:
    tier = f", tier {item.tier.value}" if item.tier else ""
    return f"{item.rule} ({item.mode.value}{tier}): {item.why}{_words(item.evidence)}"


def _words(evidence: Iterable[Place]) -> str:
    listed = ", ".join(f"{harmless(place.text)!r} at {place.start}" for place in evidence)
    return f" [{listed}]" if listed else ""


def _word(value: object) -> str:
    return "none" if value is None else str(value)


def show_replay(found: Replay) -> None:
    """Print a replay: who moves, what that does, and what the numbers rest on."""
    _say(f"{found.decisions} decisions, {len(found.moves)} would come out otherwise")
    if found.moves:
        out.print(_summary(found.moves))
        for move in found.moves[:MAX_MOVES]:
            _say(f"{move.job_id}  {_place(move.was)} → {_place(move.would_be)}  {_excerpt(move.prompt)}")
            _say(f"  {move.rule}: {move.reason}")
        if len(found.moves) > MAX_MOVES:
            _say(f"and {len(found.moves) - MAX_MOVES} more; --json lists all")
    for queue, average in found.averages.items():
        _say(f"average on {queue}: {average.usd:.4f} USD and {average.seconds:.1f} s, over {average.jobs} jobs")
    for queue, hits in sorted(found.new_hits.items()):
        _say(f"new limits on {queue}: {hits.time} jobs took longer, {hits.cost} cost more than they would allow")
    _show_reservations(found)


def _show_reservations(found: Replay) -> None:
    if claimed := found.site_sources.get("claimed"):
        _say(f"{claimed} decisions hold nothing of their site: it is taken as it was when the job was claimed")
    if now := found.site_sources.get("now"):
        _say(f"{now} decisions hold nothing of their site: it is taken as it is now")
    if found.by_model:
        _say(f"{found.by_model} decisions were made with a model: for these, only the rules are compared")
    if found.unreadable:
        _say(f"{found.unreadable} decisions are in a form that this version cannot read")


def _place(outcome: Outcome) -> str:
    if outcome.is_refused:
        return "refused"
    return f"{outcome.mode.value} {outcome.queue.value}"


def _excerpt(prompt: str) -> str:
    line = " ".join(harmless(prompt).split())
    return line[:_EXCERPT] + "..." if len(line) > _EXCERPT else line


def _summary(moves: Iterable[Move]) -> Table:
    groups: defaultdict[tuple[str, str], list[Move]] = defaultdict(list)
    for move in moves:
        groups[_place(move.was), _place(move.would_be)].append(move)
    table = Table("from", "to", "jobs", "USD", "seconds", box=None, pad_edge=False)
    for (was, would_be), group in sorted(groups.items()):
        usd = _total(move.usd for move in group)
        seconds = _total(move.seconds for move in group)
        table.add_row(
            was,
            would_be,
            str(len(group)),
            "not measured" if usd is None else f"{usd:+.4f}",
            "not measured" if seconds is None else f"{seconds:+.1f}",
        )
    return table


def _total(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


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


route_app = typer.Typer(
    cls=_DefaultCommandGroup,
    help="Decide where a prompt goes, check labelled samples, or rehearse other rules on recorded decisions.",
)


def _rules(ctx: typer.Context) -> Rules:
    """Return the rules that hold in this installation; the shipped ones where it says nothing."""
    config = read_settings(_RouteSettings, context_of(ctx).environment).policy
    return Rules(load_policy(config.path), load_vocabularies(config.vocabulary))


@route_app.command(
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


@route_app.command("check")
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


@route_app.command("replay")
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
    from ledger.decisions import measured_work, recorded_decisions
    from routing.config import redact

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


# `pointsman ladder`: decisions of the ladder over recorded messages, offline.

app = typer.Typer()


@app.command()
def ladder(
    batch: Annotated[Path, typer.Option(help="A JSON-lines file of clarification replies; prints a decision a line.")],
) -> None:
    """Decide what replies to open clarifications mean: offline, with the model's answers given on the lines."""
    from routing.clarify.questions import ladder_line

    try:
        text = batch.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"ladder: {batch}: {error.strerror if isinstance(error, OSError) else 'not UTF-8'}", code=USAGE)
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            recorded = json.loads(line)
            if not isinstance(recorded, dict):
                fail(f"ladder: {batch}, line {number}: not an object", code=USAGE)
            sys.stdout.write(json.dumps(ladder_line(recorded), ensure_ascii=False) + "\n")
        except KeyError as error:
            fail(f"ladder: {batch}, line {number}: the field {error} is missing", code=USAGE)
        except (ValueError, TypeError, AttributeError) as error:
            fail(f"ladder: {batch}, line {number}: {error}", code=USAGE)
