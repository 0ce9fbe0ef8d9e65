"""The six dashboards of an installation."""

from __future__ import annotations

from monitoring.dashboards.panels import RATE, Board, Panel, Query, Row, quantiles

_Q = '{queue_name=~"$queue_name"}'

FLEET = Board(
    uid="pointsman-fleet", title="Pointsman / Fleet overview",
    why="Is the fleet working, and who or what is waited for?",
    rows=(
        Row("Now", (
            Panel(title="Waiting", why="Jobs that wait for a worker.", shape="number", width=4,
                  queries=(Query("sum(pointsman_queue_depth)"),)),
            Panel(title="Running", why="Attempts under way.", shape="number", width=4,
                  queries=(Query("sum(pointsman_attempts_running)"),)),
            Panel(title="Oldest wait", why="Above a queue's wait target: add workers or look for a stuck queue.",
                  shape="number", unit="s", width=4, warn=60, bad=600,
                  queries=(Query("max(pointsman_queue_oldest_age_seconds)"),)),
            Panel(title="Ended well, one hour", why="Share of jobs that ended answered or published.",
                  shape="number", unit="percentunit", width=4,
                  queries=(Query('sum(increase(pointsman_jobs_finished_total{state=~"answered|published"}[1h])) / '
                                 "sum(increase(pointsman_jobs_finished_total[1h]))"),)),
            Panel(title="Spent today", why="Of the fleet's budget for the day.", shape="number", unit="currencyUSD",
                  width=4, queries=(Query('pointsman_budget_spent_usd{scope="fleet_day"}'),)),
            Panel(title="Dispatcher leads", why="0: nothing new goes to the queues; start a dispatcher.",
                  shape="number", width=4, queries=(Query("pointsman_dispatcher_leader_present"),)),
        )),
        Row("Flow", (
            Panel(title="Accepted and ended", why="Apart for long: the backlog grows.", unit="ops", queries=(
                Query(f"sum(rate(pointsman_jobs_accepted_total{RATE}))", "accepted"),
                Query(f"sum(rate(pointsman_jobs_finished_total{RATE}))", "ended"))),
            Panel(title="Ends by state", why="What jobs come to.", shape="stack", unit="ops", queries=(
                Query(f"sum by (state) (rate(pointsman_jobs_finished_total{RATE}))", "{{state}}"),)),
            Panel(title="Waiting by queue", why="Which pool is too small.", shape="stack", queries=(
                Query("sum by (queue_name) (pointsman_queue_depth)", "{{queue_name}}"),)),
            Panel(title="Oldest wait by queue", why="Rises steadily while nothing starts: the queue is stuck.",
                  unit="s", queries=(Query("pointsman_queue_oldest_age_seconds", "{{queue_name}}"),)),
        )),
        Row("What went wrong", (
            Panel(title="Failures by reason", why="One reason rising is one cause; its dead letters can be replayed.",
                  unit="ops", shape="stack", queries=(
                      Query('sum by (reason) (rate(pointsman_jobs_finished_total{state=~"failed|timed_out|'
                            f'budget_exceeded|output_exceeded|escalated"}}{RATE}))', "{{reason}}"),)),
            Panel(title="Limits hit", why="Time, cost or output: is a limit too tight, or the work too large?",
                  unit="ops", shape="stack", queries=(
                      Query(f"sum by (limit, phase) (rate(pointsman_limit_hits_total{RATE}))",
                            "{{limit}} {{phase}}"),)),
            Panel(title="Attempts lost", why="Workers that died in the middle of a job; the job goes on.", unit="ops",
                  queries=(Query(f'sum by (queue_name) (rate(pointsman_job_attempts_total{{outcome="lost"}}{RATE}))',
                                 "{{queue_name}}"),)),
            Panel(title="Duplicates fenced", why="Second copies of messages that were refused: proof, not trouble.",
                  unit="ops", queries=(
                      Query(f"sum by (queue_name) (rate(pointsman_duplicates_fenced_total{RATE}))",
                            "{{queue_name}}"),)),
        )),
        Row("The record itself", (
            Panel(title="Age of what is not counted yet", why="Above a minute: the exporter cannot keep up.", unit="s",
                  warn=10, bad=60, queries=(Query("pointsman_fold_lag_seconds"),)),
            Panel(title="Age of what is not sealed yet", why="Above a minute: no dispatcher seals the audit trail.",
                  unit="s", warn=30, bad=120, queries=(Query("pointsman_audit_unsealed_age_seconds"),)),
        )),
    ),
)  # fmt: skip

QUEUE = Board(
    uid="pointsman-queue", title="Pointsman / Queue", why="How does one queue do, and how many workers does it need?",
    by_queue=True,
    rows=(
        Row("Waiting", (
            Panel(title="Waiting", why="Jobs that wait for a worker.",
                  queries=(Query(f"sum by (queue_name) (pointsman_queue_depth{_Q})", "{{queue_name}}"),)),
            Panel(title="Backlog in seconds of work", why="Divide by the slots: so long until it is worked off.",
                  unit="s", queries=(Query(f"pointsman:queue_backlog_seconds{_Q}", "{{queue_name}}"),)),
            Panel(title="Backlog in dollars", why="What the waiting jobs will probably cost.", unit="currencyUSD",
                  queries=(Query(f"pointsman:queue_backlog_usd{_Q}", "{{queue_name}}"),)),
            Panel(title="Time in queue", why="The wait that callers feel.", unit="s",
                  queries=quantiles("pointsman_queue_wait_seconds", "queue_name", _Q)),
        )),
        Row("Work", (
            Panel(title="Started and ended", why="Started above ended for long: slots fill up.", unit="ops", queries=(
                Query(f"sum by (queue_name) (rate(pointsman_jobs_started_total{_Q}{RATE}))", "{{queue_name}} started"),
                Query(f"sum by (queue_name) (rate(pointsman_job_attempts_total{_Q}{RATE}))", "{{queue_name}} ended"))),
            Panel(title="Attempts under way", why="At the number of slots: the pool is full.",
                  queries=(Query(f"sum by (queue_name) (pointsman_attempts_running{_Q})", "{{queue_name}}"),)),
            Panel(title="Attempts take", why="All outcomes: a rise towards the limit comes before time-outs.", unit="s",
                  queries=quantiles("pointsman_attempt_duration_seconds", "queue_name", _Q)),
            Panel(title="Outcomes", why="What attempts come to.", unit="ops", shape="stack", queries=(
                Query(f"sum by (outcome) (rate(pointsman_job_attempts_total{_Q}{RATE}))", "{{outcome}}"),)),
            Panel(title="Limits hit", why="Which limit, and whether before or during work.", unit="ops", queries=(
                Query(f"sum by (limit, phase) (rate(pointsman_limit_hits_total{_Q}{RATE}))", "{{limit}} {{phase}}"),)),
            Panel(title="Paused", why="1 while operators hold it.",
                  queries=(Query(f"pointsman_queue_paused{_Q}", "{{queue_name}}"),)),
        )),
    ),
)  # fmt: skip

COST = Board(
    uid="pointsman-cost", title="Pointsman / Cost and budgets", why="Where does the money go, and when is it gone?",
    rows=(
        Row("Budgets", (
            Panel(title="The fleet's day", why="Reserved is held for calls under way; high for long is a leak.",
                  unit="currencyUSD", queries=(
                      Query('pointsman_budget_spent_usd{scope="fleet_day"}', "spent"),
                      Query('pointsman_budget_reserved_usd{scope="fleet_day"}', "reserved"),
                      Query('pointsman_budget_limit_usd{scope="fleet_day"}', "limit"))),
            Panel(title="Fullest budget", why="At 1 its jobs end budget_exceeded.", unit="percentunit", warn=0.8,
                  bad=0.95, queries=(Query("pointsman_budget_used_ratio_max", "{{scope}}"),)),
        )),
        Row("Spending", (
            Panel(title="USD per hour by tier and model", why="What a change of models or prompts does to the bill.",
                  unit="currencyUSD", shape="stack", queries=(
                      Query(f"3600 * sum by (tier, model) (rate(pointsman_cost_usd_total{RATE}))",
                            "{{tier}} {{model}}"),)),
            Panel(title="USD for each job that ended well", why="The price of a result.", unit="currencyUSD", queries=(
                Query("sum(increase(pointsman_cost_usd_total[1h])) / "
                      'sum(increase(pointsman_jobs_finished_total{state=~"answered|published"}[1h]))'),)),
            Panel(title="Cost of a job", why="By tier, over all its attempts.", unit="currencyUSD",
                  queries=quantiles("pointsman_job_cost_usd", "tier")),
            Panel(title="Wasted share", why="Paid for attempts whose result was not used.", unit="percentunit",
                  warn=0.15, queries=(Query("sum(increase(pointsman_cost_wasted_usd_total[1h])) / "
                                 "sum(increase(pointsman_cost_usd_total[1h]))"),)),
            Panel(title="Tokens by kind", why="Cache reads are cheap: a fall of theirs is a rise of the bill.",
                  unit="ops", shape="stack",
                  queries=(Query(f"sum by (kind) (rate(pointsman_tokens_total{RATE}))", "{{kind}}"),)),
            Panel(title="Cost limits hit", why="Before a call (admit), or in the middle of one (stream).", unit="ops",
                  queries=(Query(f'sum by (tier, phase) (rate(pointsman_limit_hits_total{{limit="cost"}}{RATE}))',
                                 "{{tier}} {{phase}}"),)),
        )),
    ),
)  # fmt: skip

ROUTING = Board(
    uid="pointsman-routing", title="Pointsman / Routing",
    why="Do the rules decide well, and how often does a person have to say what was meant?",
    rows=(
        Row("The router's ratios", (
            Panel(title="ANSWER rate", why="Share of decisions that went to a direct response.", shape="number",
                  unit="percentunit", width=6, queries=(
                      Query('sum(increase(pointsman_routes_total{mode="answer"}[1d])) / '
                            "sum(increase(pointsman_routes_total[1d]))"),)),
            Panel(title="ACTION rate", why="Share of decisions that went to the swarm.", shape="number",
                  unit="percentunit", width=6, queries=(
                      Query('sum(increase(pointsman_routes_total{mode="action",confidence=~"strong|weak"}[1d])) / '
                            "sum(increase(pointsman_routes_total[1d]))"),)),
            Panel(title="STRONG among ACTION", why="The rest is WEAK: the rules were less sure.", shape="number",
                  unit="percentunit", width=6, queries=(
                      Query('sum(increase(pointsman_routes_total{mode="action",confidence="strong"}[1d])) / '
                            'sum(increase(pointsman_routes_total{mode="action",confidence=~"strong|weak"}[1d]))'),)),
            Panel(title="Override rate", why="How often a WEAK ACTION led to a question to the owner.", shape="number",
                  unit="percentunit", width=6, queries=(
                      Query('sum(increase(pointsman_clarifications_total{mode="action",confidence="weak"}[1d])) / '
                            'sum(increase(pointsman_routes_total{mode="action",confidence="weak"}[1d]))'),)),
        )),
        Row("Decisions", (
            Panel(title="Routes", why="Mode and confidence over time.", unit="ops", shape="stack", queries=(
                Query(f"sum by (mode, confidence) (rate(pointsman_routes_total{RATE}))", "{{mode}} {{confidence}}"),)),
            Panel(title="Tiers of actions", why="A shift to higher tiers is a shift to higher cost.", unit="ops",
                  shape="stack", queries=(
                      Query(f'sum by (tier) (rate(pointsman_routes_total{{mode="action"}}{RATE}))', "{{tier}}"),)),
            Panel(title="Escalations", why="Work that a lower tier could not do; its cost there is wasted.", unit="ops",
                  queries=(Query(f"sum by (origin, target, reason) (rate(pointsman_tier_escalations_total{RATE}))",
                                 "{{origin}} to {{target}}: {{reason}}"),)),
            Panel(title="Requests refused", why="Callers' mistakes, by the field at fault.", unit="ops", shape="stack",
                  queries=(Query(f"sum by (field) (rate(pointsman_requests_refused_total{RATE})) > 0", "{{field}}"),)),
        )),
        Row("Questions and debates", (
            Panel(title="Questions to owners", why="By the decision that was in doubt.", unit="ops", queries=(
                Query(f"sum by (mode, confidence) (rate(pointsman_clarifications_total{RATE}))",
                      "{{mode}} {{confidence}}"),)),
            Panel(title="The ladder", why="Replies understood without a model (bypassed), with one, or not at all.",
                  unit="ops", shape="stack",
                  queries=(Query(f"sum by (event) (rate(pointsman_ladder_events_total{RATE}))", "{{event}}"),)),
            Panel(title="Debates", why="What planning and failure debates end in.", unit="ops", shape="stack", queries=(
                Query(f"sum by (kind, verdict) (rate(pointsman_debates_total{RATE}))", "{{kind}}: {{verdict}}"),)),
        )),
    ),
)  # fmt: skip

SANDBOX = Board(
    uid="pointsman-sandbox", title="Pointsman / Sandbox",
    why="How much work needs a container, and do boxes start well?",
    rows=(
        Row("Containers", (
            Panel(title="Jobs without a container", why="The promise of tiers 1 and 2 (H-118): most work needs none.",
                  shape="number", unit="percentunit", width=8, queries=(
                      Query('sum(increase(pointsman_jobs_by_box_total{box="none"}[1d])) / '
                            "sum(increase(pointsman_jobs_by_box_total[1d]))"),)),
            Panel(title="Warm starts", why="Low: keep more boxes ready (POINTSMAN_BOX__WARM).", shape="number",
                  unit="percentunit", width=8, queries=(
                      Query('sum(increase(pointsman_boxes_opened_total{start="warm"}[1d])) / '
                            "sum(increase(pointsman_boxes_opened_total[1d]))"),)),
            Panel(title="Boxes opened", why="By queue.", shape="number", width=8,
                  queries=(Query("sum(increase(pointsman_boxes_opened_total[1d]))"),)),
            Panel(title="Steps of a session take", why="Which of the steps grew.", unit="s", width=24,
                  queries=quantiles("pointsman_step_seconds", "step")),
        )),
        Row("Packages", (
            Panel(title="Requests to the mirror", why="Refused ones are packages that no registry of yours has.",
                  unit="ops", shape="stack",
                  queries=(Query(f"sum by (result) (rate(pointsman_mirror_requests_total{RATE}))", "{{result}}"),)),
            Panel(title="Bytes into boxes", why="What builds fetch.", unit="bytes",
                  queries=(Query(f"rate(pointsman_mirror_bytes_total{RATE})"),)),
        )),
    ),
)  # fmt: skip

RUNS = Board(
    uid="pointsman-runs", title="Pointsman / Runs", why="Do teams of agents finish, and what does their conduct cost?",
    rows=(
        Row("Runs", (
            Panel(title="Steps waiting and running", why="Steps are the long jobs: they need slots of their own.",
                  queries=(Query('pointsman_queue_depth{queue_name="steps"}', "waiting"),
                           Query('sum(pointsman_attempts_running{queue_name="steps"})', "running"))),
            Panel(title="The orchestrator's share of tokens", why="About a fifth is expected (S-022).",
                  unit="percentunit", warn=0.2, queries=(
                      Query('sum(increase(pointsman_run_tokens_total{part="orchestrator"}[1d])) / '
                            "sum(increase(pointsman_run_tokens_total[1d]))"),)),
            Panel(title="Gates", why="Opened, and how people decided (S-099).", unit="ops", shape="stack", queries=(
                Query(f"sum by (kind, state) (rate(pointsman_run_gates_total{RATE}))", "{{kind}} {{state}}"),)),
            Panel(title="Steps take", why="Against their agents' limits.", unit="s",
                  queries=quantiles("pointsman_attempt_duration_seconds", "queue_name", '{queue_name="steps"}')),
        )),
    ),
)  # fmt: skip

BOARDS: tuple[Board, ...] = (FLEET, QUEUE, COST, ROUTING, SANDBOX, RUNS)
