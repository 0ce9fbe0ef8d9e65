"""Explanations and replays as people read them. A prompt is shown with nothing in it that a terminal would obey."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from producers.commands.context import out
from routing.evaluation import FIELDS, Evaluation, Miss
from routing.explain import Explanation, MatchedRule, Place
from routing.replay import Move, Outcome, Replay

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
    _list(heading, [
        f"at {trigger.start:>4}  {harmless(prompt[trigger.start : trigger.end])!r}  {trigger.kind}"
        for trigger in found.triggers or found.not_counted
    ])  # fmt: skip
    _list("the rule that won", [_rule(found.winner)])
    _list("runners-up, in binding order", [_rule(item) for item in found.runners_up])
    _list("what would have changed it", [
        f"{harmless(item.change)}: "
        + ", ".join(f"{diff.field} {_word(diff.was)} → {_word(diff.would_be)}" for diff in item.differences)
        for item in found.what_if
    ])  # fmt: skip
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
            was, would_be, str(len(group)), "not measured" if usd is None else f"{usd:+.4f}",
            "not measured" if seconds is None else f"{seconds:+.1f}",
        )  # fmt: skip
    return table


def _total(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)
