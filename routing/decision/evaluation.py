"""Evaluate routing rules: replay recorded decisions under other rules, and score labelled samples.

A replay repeats decisions, not work. It prices a move between queues at their measured averages.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from routing.decision.router import CLASSIFIER, Mode, Route, Signals, SiteSignals, Workflow, decide
from routing.policy.platform import Policy, platform_policy
from routing.policy.prices import NANOUSD_PER_USD
from routing.prompt.vocabulary import Vocabularies, Vocabulary
from routing.queues import QueueName, Tier

SiteSource = Literal["recorded", "claimed", "now"]
"""Source of the site signals: the decision, the release that the job was claimed with, or the site as it is."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Rules(NamedTuple):
    """The rules of a decision."""

    policy: Policy
    vocabularies: Vocabularies

    def decide(self, signals: Signals, tenant: str) -> Route:
        """Decide a request of a tenant by these rules."""
        return decide(signals, self.policy, self.vocabularies.of(tenant))


class Outcome(_Value):
    """The compared fields of a decision."""

    mode: Mode
    tier: Tier | None
    queue: QueueName
    is_refused: bool = False
    """Whether intake refuses it as an unbound order."""


class Recorded(_Value):
    """A recorded decision."""

    job_id: str
    tenant: str
    signals: Signals
    outcome: Outcome
    is_by_model: bool
    """Whether a model took part; then the current rules' decision is compared instead."""
    site_source: SiteSource


class Work(NamedTuple):
    """All ended attempts of one job on one queue."""

    queue: str
    seconds: float
    longest_seconds: float
    """Of a single attempt."""
    cost_nanousd: int


class Average(_Value):
    """Average of the jobs on a queue."""

    jobs: int
    seconds: float
    usd: float


class Move(_Value):
    """A decision that would change. Amounts are None without measurements."""

    job_id: str
    prompt: str
    was: Outcome
    would_be: Outcome
    rule: str
    reason: str
    usd: float | None
    """Additional cost."""
    seconds: float | None
    """Additional time."""


class NewHits(_Value):
    """Jobs within the current limits that exceed the new ones."""

    time: int = 0
    cost: int = 0


class Replay(_Value):
    """Result of a replay."""

    decisions: int
    unreadable: int
    """Decisions that other versions recorded in another form."""
    moves: tuple[Move, ...]
    by_model: int
    site_sources: dict[SiteSource, int]
    averages: dict[str, Average]
    new_hits: dict[str, NewHits]


def read_recorded(
    job_id: str,
    *,
    tenant: str,
    prompt: str,
    request: Mapping[str, Any],
    route: Mapping[str, Any],
    claimed: Mapping[str, Any] | None = None,
    now: Mapping[str, Any] | None = None,
) -> Recorded | None:
    """Parse a decision of the ledger; None if another version recorded it in another form.

    Args:
        job_id: the job.
        tenant: its tenant.
        prompt: its prompt.
        request: its request without the prompt.
        route: the decision.
        claimed: signals of the release that the job was claimed with, for decisions without signals.
        now: signals of the site's active release, for jobs that were not claimed either.
    """
    try:
        site, source = _site(request, route, claimed=claimed, now=now)
        decided = Route.model_validate(route)
    except ValidationError:
        return None
    signals = Signals(
        prompt=prompt,
        site=site,
        new_site="new_site" in request,
        project="project" in request,
        preference=request.get("preference"),
        advanced_edit=bool(request.get("advanced_edit")),
        tier=Tier[request["tier"].upper()] if request.get("tier") else None,
    )
    is_by_model = decided.classifier != CLASSIFIER
    return Recorded(
        job_id=job_id,
        tenant=tenant,
        signals=signals,
        outcome=_outcome(decided),
        is_by_model=is_by_model,
        site_source=source,
    )


def _site(
    request: Mapping[str, Any],
    route: Mapping[str, Any],
    *,
    claimed: Mapping[str, Any] | None,
    now: Mapping[str, Any] | None,
) -> tuple[SiteSignals | None, SiteSource]:
    if "site" in route:
        return SiteSignals.model_validate(route["site"]) if route["site"] is not None else None, "recorded"
    if "site" not in request:
        return None, "recorded"
    if claimed is not None:
        return SiteSignals.model_validate(claimed), "claimed"
    return SiteSignals.model_validate(now or {}), "now"


def _outcome(route: Route) -> Outcome:
    is_refused = route.mode is Mode.ACTION and not route.trivial and route.workflow is Workflow.NONE
    return Outcome(mode=route.mode, tier=route.tier, queue=route.queue, is_refused=is_refused)


def replay(
    recorded: Iterable[Recorded | None],
    work: Iterable[Work],
    *,
    current: Rules,
    changed: Rules,
    redact: Callable[[str], str] = lambda text: text,
) -> Replay:
    """Decide again under changed rules.

    Args:
        recorded: the decisions, None for unreadable ones.
        work: measurements of jobs.
        current: the rules in force.
        changed: the rules to try.
        redact: removes secrets from prompts (A31).
    """
    averages, new_hits = _measure(work, current=current.policy, changed=changed.policy)
    moves: list[Move] = []
    sources: Counter[SiteSource] = Counter()
    decisions = by_model = unreadable = 0
    for one in recorded:
        decisions += 1
        if one is None:
            unreadable += 1
            continue
        by_model += one.is_by_model
        sources[one.site_source] += 1
        was = _outcome(current.decide(one.signals, one.tenant)) if one.is_by_model else one.outcome
        route = changed.decide(one.signals, one.tenant)
        would_be = _outcome(route)
        if (was.mode, was.tier) != (would_be.mode, would_be.tier):
            usd, seconds = _price(was, would_be, averages)
            prompt = redact(one.signals.prompt)
            moves.append(
                Move(
                    job_id=one.job_id,
                    prompt=prompt,
                    was=was,
                    would_be=would_be,
                    rule=route.rule,
                    reason=route.reason,
                    usd=usd,
                    seconds=seconds,
                )
            )
    return Replay(
        decisions=decisions,
        unreadable=unreadable,
        moves=tuple(moves),
        by_model=by_model,
        site_sources=dict(sources),
        averages=averages,
        new_hits=new_hits,
    )


def _price(was: Outcome, would_be: Outcome, averages: Mapping[str, Average]) -> tuple[float | None, float | None]:
    """Return a move's additional cost and time; a refused job takes nothing."""
    nothing = Average(jobs=0, seconds=0, usd=0)
    before = nothing if was.is_refused else averages.get(was.queue)
    after = nothing if would_be.is_refused else averages.get(would_be.queue)
    if before is None or after is None:
        return None, None
    return after.usd - before.usd, after.seconds - before.seconds


def _measure(
    work: Iterable[Work], *, current: Policy, changed: Policy
) -> tuple[dict[str, Average], dict[str, NewHits]]:
    jobs: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    nanousd: Counter[str] = Counter()
    late: Counter[str] = Counter()
    dear: Counter[str] = Counter()
    for one in work:
        jobs[one.queue] += 1
        seconds[one.queue] += one.seconds
        nanousd[one.queue] += one.cost_nanousd
        if one.queue in current.queues and one.queue in changed.queues:
            queue = QueueName(one.queue)
            old, new = current.queues[queue], changed.queues[queue]
            late[one.queue] += new.soft_seconds < one.longest_seconds <= old.soft_seconds
            dear[one.queue] += new.llm_usd < one.cost_nanousd / NANOUSD_PER_USD <= old.llm_usd
    averages = {
        queue: Average(jobs=count, seconds=seconds[queue] / count, usd=nanousd[queue] / count / NANOUSD_PER_USD)
        for queue, count in sorted(jobs.items())
    }
    hits = {queue: NewHits(time=late[queue], cost=dear[queue]) for queue in jobs if late[queue] or dear[queue]}
    return averages, hits


# Labelled samples may accept alternatives: `also` (tier), `also_mode`, `also_intent`, `also_debate`,
# `also_trivial`.

FIELDS = ("mode", "tier", "intent", "debate", "trivial")


class Miss(NamedTuple):
    """A field of a decision that the label does not accept."""

    id: str
    prompt: str
    field: str
    got: Any
    accepted: tuple[Any, ...]
    triggers: tuple[str, ...]
    """The triggers, as `route --explain` shows them."""


@dataclass
class Evaluation:
    """Score of decisions against their labels."""

    total: int = 0
    misses: list[Miss] = field(default_factory=list)
    false_actions: list[Miss] = field(default_factory=list)
    """Questions that would start work."""
    false_answers: list[Miss] = field(default_factory=list)
    """Orders that would only be answered."""
    answers_wanted: int = 0
    debates_wanted: int = 0
    debates_found: int = 0
    debates_made: int = 0
    debates_right: int = 0

    def add(self, line: Mapping[str, Any], decided: Mapping[str, Any]) -> None:
        """Compare one decision with its label.

        Args:
            line: a sample, its label in `expect`.
            decided: the decision, as `route_fields` returns it.

        Raises:
            KeyError: the caller's fault; the line lacks its prompt or a field of its label.
        """
        expect = line["expect"]
        accepted = _accepted(expect)
        got = {**decided, "debate": (decided["debate"], decided["stakes"])}
        is_alternative = got["mode"] != expect["mode"] and got["mode"] in accepted["mode"]
        self.total += 1
        self.answers_wanted += expect["mode"] == "ANSWER"
        for name in FIELDS:
            # The other fields of a label belong to its first mode, not to an alternative.
            if got[name] in accepted[name] or (is_alternative and name != "mode"):
                continue
            triggers = tuple(decided["triggers"])
            miss = Miss(str(line.get("id")), line["prompt"], name, got[name], accepted[name], triggers)
            self.misses.append(miss)
            if name == "mode":
                (self.false_answers if got["mode"] == "ANSWER" else self.false_actions).append(miss)
        self._count_debate(expect["debate"], decided["debate"], {kind for kind, _ in accepted["debate"]})

    def _count_debate(self, wanted: str, got: str, accepted: set[str]) -> None:
        if wanted == "planning":
            self.debates_wanted += 1
            self.debates_found += got in accepted
        if got == "planning":
            self.debates_made += 1
            self.debates_right += "planning" in accepted

    def accuracy(self, name: str) -> float:
        """Return the share of correct decisions of a field; 1 without samples."""
        wrong = sum(miss.field == name for miss in self.misses)
        return 1 - wrong / self.total if self.total else 1.0

    @property
    def debate_precision(self) -> float:
        """The share of planning debates held that were wanted."""
        return self.debates_right / self.debates_made if self.debates_made else 1.0

    @property
    def debate_recall(self) -> float:
        """The share of wanted planning debates that were held."""
        return self.debates_found / self.debates_wanted if self.debates_wanted else 1.0

    def figures(self) -> dict[str, float]:
        """Return all measures by name."""
        return {
            "samples": self.total,
            **{name: round(self.accuracy(name), 4) for name in FIELDS},
            "debate_precision": round(self.debate_precision, 4),
            "debate_recall": round(self.debate_recall, 4),
            "false_actions": len(self.false_actions),
            "false_answers": len(self.false_answers),
        }


def _accepted(expect: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the values that a label accepts, preferred first; a debate includes its stakes."""
    debates = (expect, *expect.get("also_debate", ()))
    return {
        "mode": (expect["mode"], *expect.get("also_mode", ())),
        "tier": (expect["tier"], *expect.get("also", ())),
        "intent": (expect["intent"], *expect.get("also_intent", ())),
        "debate": tuple((debate["debate"], debate["stakes"]) for debate in debates),
        "trivial": (expect["trivial"], *expect.get("also_trivial", ())),
    }


def signals_of(line: dict[str, Any]) -> Signals:
    """Return the signals of one line of `pointsman route --batch`; other fields are ignored."""
    site = line.get("site")
    return Signals(
        prompt=line["prompt"],
        site=SiteSignals.model_validate(site) if site is not None else None,
        new_site=bool(line.get("new_site")),
        project=bool(line.get("project")),
        preference=line.get("preference"),
        advanced_edit=bool(line.get("advanced_edit")),
        tier=line.get("tier"),
    )


def route_fields(route: Route) -> dict[str, Any]:
    """Return the fields that `pointsman route` prints."""
    return {
        "mode": route.mode.value,
        "confidence": route.confidence.value,
        "intent": route.intent.value,
        "tier": route.tier.value if route.tier is not None else None,
        "queue": route.queue.value,
        "debate": route.debate.value,
        "stakes": route.stakes.value if route.stakes is not None else None,
        "trivial": route.trivial,
        "triggers": [trigger.shown for trigger in route.triggers],
        "reason": route.reason,
        "classifier": route.classifier,
    }


def batch_line(
    line: dict[str, Any], policy: Policy | None = None, *, vocabulary: Vocabulary | None = None
) -> dict[str, Any]:
    """Decide one line of a batch, by the shipped rules unless others are given.

    Raises:
        KeyError: the caller's fault: the line has no prompt.
        pydantic.ValidationError: the caller's fault: a signal has the wrong type.
    """
    return {"id": line.get("id"), **route_fields(decide(signals_of(line), policy or platform_policy(), vocabulary))}
