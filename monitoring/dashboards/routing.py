"""Whether the rules decide well, and how often a person has to say what was meant."""

from __future__ import annotations

from monitoring.dashboards.panels import RATE, Board, Panel, Query, Row
from monitoring.ratios import RATIOS

_RATIOS = Row("The router's ratios", tuple(
    Panel(title=ratio.name, why=ratio.meaning, shape="number", unit="percentunit", width=6,
          queries=(Query(ratio.promql("1d")),))
    for ratio in RATIOS
))  # fmt: skip

_DECISIONS = Row("Decisions", (
    Panel(title="Routes", why="Mode and confidence over time.", unit="ops", shape="stack", queries=(
        Query(f"sum by (mode, confidence) (rate(pointsman_routes_total{RATE})) > 0", "{{mode}} {{confidence}}"),)),
    Panel(title="Tiers of actions", why="A shift to higher tiers is a shift to higher cost.", unit="ops",
          shape="stack", queries=(
              Query(f'sum by (tier) (rate(pointsman_routes_total{{mode="action"}}{RATE}))', "{{tier}}"),)),
    Panel(title="Escalations", why="Work that a lower tier could not do; its cost there is wasted.", unit="ops",
          queries=(Query(f"sum by (origin, target, reason) (rate(pointsman_tier_escalations_total{RATE}))",
                         "{{origin}} to {{target}}: {{reason}}"),)),
    Panel(title="Doors", why="How work comes in.", unit="ops", shape="stack",
          queries=(Query(f"sum by (door) (rate(pointsman_jobs_accepted_total{RATE}))", "{{door}}"),)),
    Panel(title="Requests refused", why="Callers' mistakes, by the field at fault, and budgets and queues that are "
          "full.", unit="ops", shape="stack", queries=(
              Query(f"sum by (field) (rate(pointsman_requests_refused_total{RATE})) > 0", "{{field}}"),)),
))  # fmt: skip

_PEOPLE = Row("Questions and debates", (
    Panel(title="Questions to owners", why="By the decision that was in doubt.", unit="ops", queries=(
        Query(f"sum by (mode, confidence) (rate(pointsman_clarifications_total{RATE})) > 0",
              "{{mode}} {{confidence}}"),)),
    Panel(title="The ladder", why="Replies understood without a model (bypassed), with one, or not at all.",
          unit="ops", shape="stack",
          queries=(Query(f"sum by (event) (rate(pointsman_ladder_events_total{RATE}))", "{{event}}"),)),
    Panel(title="Debates", why="What planning and failure debates end in.", unit="ops", shape="stack", queries=(
        Query(f"sum by (kind, verdict) (rate(pointsman_debates_total{RATE}))", "{{kind}}: {{verdict}}"),)),
))  # fmt: skip

ROUTING = Board(
    uid="pointsman-routing", title="Pointsman / Routing",
    why="Do the rules decide well, and how often does a person have to say what was meant?",
    rows=(_RATIOS, _DECISIONS, _PEOPLE),
)  # fmt: skip
