"""What long work needs: containers, and teams of agents with people at their gates."""

from __future__ import annotations

from monitoring.dashboards.panels import RATE, Board, Panel, Query, Row, quantiles, share

_STEPS = '{queue_name="steps"}'
_TIERED = 'tier=~"spec|patch|agent"'

_CONTAINERS = Row("Containers", (
    Panel(title="Edits without a container", why="The promise of tiers 1 and 2 (H-118): 70 to 80 % need none.",
          shape="number", unit="percentunit", width=6, queries=(
              Query(share(f'sum(increase(pointsman_jobs_by_box_total{{box="none",{_TIERED}}}[1d]))',
                          f"sum(increase(pointsman_jobs_by_box_total{{{_TIERED}}}[1d]))")),)),
    Panel(title="Warm starts", why="Low: keep more boxes ready (POINTSMAN_BOX__WARM).", shape="number",
          unit="percentunit", width=6, queries=(
              Query(share('sum(increase(pointsman_boxes_opened_total{start="warm"}[1d]))',
                          "sum(increase(pointsman_boxes_opened_total[1d]))")),)),
    Panel(title="Boxes at work", why="In which a session with a model runs now.", shape="number", width=6,
          queries=(Query("sum(pointsman_boxes_working)"),)),
    Panel(title="Orphans removed", why="What dead workers left on engines; more than a few: find out why they die.",
          shape="number", width=6, warn=1, queries=(Query("sum(increase(pointsman_orphans_reaped_total[1d]))"),)),
    Panel(title="Boxes opened", why="By queue, and whether they stood ready.", unit="ops", shape="stack", queries=(
        Query(f"sum by (queue_name, start) (rate(pointsman_boxes_opened_total{RATE}))", "{{queue_name}} {{start}}"),)),
    Panel(title="Jobs by container", why="By tier, with and without.", unit="ops", shape="stack", queries=(
        Query(f"sum by (tier, box) (rate(pointsman_jobs_by_box_total{RATE}))", "{{tier}} {{box}}"),)),
    Panel(title="Steps of a session take", why="Which of the steps grew.", unit="s", width=24,
          queries=quantiles("pointsman_step_seconds", "step")),
))  # fmt: skip

_PACKAGES = Row("Packages", (
    Panel(title="Requests to the mirror", why="Refused ones are packages that no registry of yours has.", unit="ops",
          shape="stack",
          queries=(Query(f"sum by (result) (rate(pointsman_mirror_requests_total{RATE}))", "{{result}}"),)),
    Panel(title="Bytes into boxes", why="What builds fetch.", unit="bytes",
          queries=(Query(f"sum(rate(pointsman_mirror_bytes_total{RATE}))", "bytes a second"),)),
))  # fmt: skip

SANDBOX = Board(
    uid="pointsman-sandbox", title="Pointsman / Sandbox",
    why="How much work needs a container, and do boxes start well?", rows=(_CONTAINERS, _PACKAGES),
)  # fmt: skip

_RUNS = Row("Runs", (
    Panel(title="Runs that ended", why="What runs come to.", unit="ops", shape="stack", queries=(
        Query(f"sum by (state) (rate(pointsman_gates_per_run_count{RATE}))", "{{state}}"),)),
    Panel(title="Steps waiting and running", why="Steps are the long jobs: they need slots of their own.", queries=(
        Query(f"sum(pointsman_queue_depth{_STEPS})", "waiting"),
        Query(f"sum(pointsman_attempts_running{_STEPS})", "running"))),
    Panel(title="Steps take", why="Against their agents' limits.", unit="s",
          queries=quantiles("pointsman_attempt_duration_seconds", "queue_name", _STEPS)),
    Panel(title="Outcomes of steps", why="Steps that fail make their run re-plan or wait for a person.", unit="ops",
          shape="stack", queries=(
              Query(f"sum by (outcome) (rate(pointsman_job_attempts_total{_STEPS}{RATE}))", "{{outcome}}"),)),
))  # fmt: skip

_CONDUCT = Row("Conduct and people", (
    Panel(title="The orchestrator's share of tokens", why="About a fifth is expected (S-022).", unit="percentunit",
          warn=0.2, queries=(
              Query(share('sum(increase(pointsman_run_tokens_total{part="orchestrator"}[1d]))',
                          "sum(increase(pointsman_run_tokens_total[1d]))"), "orchestrator"),)),
    Panel(title="Gates per run", why="None: nobody looks; many: autonomy defeats its purpose (S-099).", queries=(
        Query(share("sum(increase(pointsman_gates_per_run_sum[1d]))",
                    "sum(increase(pointsman_gates_per_run_count[1d]))"), "gates"),)),
    Panel(title="Gates", why="Opened, and how people decided.", unit="ops", shape="stack", queries=(
        Query(f"sum by (kind, state) (rate(pointsman_run_gates_total{RATE}))", "{{kind}} {{state}}"),)),
    Panel(title="Tokens of runs", why="Of the orchestrator with its subtasks, and of all other agents.", unit="ops",
          shape="stack", queries=(Query(f"sum by (part) (rate(pointsman_run_tokens_total{RATE}))", "{{part}}"),)),
))  # fmt: skip

RUNS = Board(
    uid="pointsman-runs", title="Pointsman / Runs", why="Do teams of agents finish, and what does their conduct cost?",
    rows=(_RUNS, _CONDUCT),
)  # fmt: skip
