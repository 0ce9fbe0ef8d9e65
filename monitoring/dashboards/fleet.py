"""Is the fleet working, and which queue needs what: the two dashboards that operators look at first."""

from __future__ import annotations

from monitoring.dashboards.panels import QUEUES, RANGE, RATE, Board, Choice, Panel, Query, Row, quantiles, share

_BAD_ENDS = '{state=~"failed|timed_out|budget_exceeded|output_exceeded|escalated"}'
_WELL = '{state=~"answered|published"}'
_DIED = '{outcome="lost",reason!="worker_stopped"}'
"""A worker that is told to stop hands its jobs back: that is no death."""

_NOW = Row("Now", (
    Panel(title="Waiting", why="Jobs that wait for a worker.", shape="number", width=3,
          queries=(Query("sum(pointsman_queue_depth)"),)),
    Panel(title="Running", why="Attempts under way.", shape="number", width=3,
          queries=(Query("sum(pointsman_attempts_running)"),)),
    Panel(title="Oldest wait", why="Above a queue's wait target: add workers or look for a stuck queue.",
          shape="number", unit="s", width=3, warn=60, bad=600,
          queries=(Query("max(pointsman_queue_oldest_age_seconds)"),)),
    Panel(title="Slots taken", why="At 100 % whatever comes next has to wait.", shape="number", unit="percentunit",
          width=3, warn=0.9, bad=1,
          queries=(Query(share("sum(pointsman_fleet_slots_busy)", "sum(pointsman_fleet_slots)")),)),
    Panel(title="Workers", why="That take in work.", shape="number", width=3,
          queries=(Query('sum(pointsman_workers{standing="serving"})'),)),
    Panel(title="Ended well", why="Share of jobs that ended answered or published, within an hour.", shape="number",
          unit="percentunit", width=3, queries=(
              Query(share(f"sum(increase(pointsman_jobs_finished_total{_WELL}[1h]))",
                          "sum(increase(pointsman_jobs_finished_total[1h]))")),)),
    Panel(title="Spent today", why="Of the fleet's budget for the day.", shape="number", unit="currencyUSD", width=3,
          queries=(Query('sum(pointsman_budget_spent_usd{scope="fleet_day"})'),)),
    Panel(title="Dispatcher leads", why="0: nothing new goes to the queues; start a dispatcher.", shape="number",
          width=3, queries=(Query("max(pointsman_dispatcher_leader_present)"),)),
))  # fmt: skip

_FLOW = Row("Flow", (
    Panel(title="Accepted and ended", why="Apart for long: the backlog grows.", unit="ops", queries=(
        Query(f"sum(rate(pointsman_jobs_accepted_total{RATE}))", "accepted"),
        Query(f"sum(rate(pointsman_jobs_finished_total{RATE}))", "ended"))),
    Panel(title="Ends by state", why="What jobs come to.", shape="stack", unit="ops", queries=(
        Query(f"sum by (state) (rate(pointsman_jobs_finished_total{RATE})) > 0", "{{state}}"),)),
    Panel(title="Waiting by queue", why="Which pool is too small.", shape="stack", queries=(
        Query("sum by (queue_name) (pointsman_queue_depth)", "{{queue_name}}"),)),
    Panel(title="Oldest wait by queue", why="Rises steadily while nothing starts: the queue is stuck.", unit="s",
          queries=(Query("max by (queue_name) (pointsman_queue_oldest_age_seconds)", "{{queue_name}}"),)),
    Panel(title="Saturation by queue", why="Slots that serve it and are taken, by whatever queue's jobs.",
          unit="percentunit", warn=0.9, bad=1, queries=(
              Query(share("sum by (queue_name) (pointsman_slots_busy)", "sum by (queue_name) (pointsman_slots)"),
                    "{{queue_name}}"),)),
    Panel(title="Workers by standing", why="Lost ones fell silent without signing off; their jobs go on elsewhere.",
          shape="stack", queries=(Query("sum by (standing) (pointsman_workers)", "{{standing}}"),)),
    Panel(title="Duration of jobs", why="From acceptance to end, waiting for approval included.", unit="s",
          queries=quantiles("pointsman_job_duration_seconds", "tier")),
    Panel(title="Jobs that something holds", why="A busy site, a time to come, or a provider that is parked.",
          shape="stack", queries=(Query("sum by (reason) (pointsman_held_jobs)", "{{reason}}"),)),
))  # fmt: skip

_WRONG = Row("What went wrong", (
    Panel(title="Reasons of failures", why="One reason far ahead is one cause; its dead letters can be replayed.",
          shape="bars", queries=(
              Query(f"topk(10, sum by (reason) (increase(pointsman_jobs_finished_total{_BAD_ENDS}{RANGE})) > 0)",
                    "{{reason}}"),)),
    Panel(title="Dead letters", why="Ends that nobody wanted and nobody has seen to: `pointsman dead`.", shape="stack",
          queries=(Query("sum by (queue_name) (pointsman_dead_letters)", "{{queue_name}}"),)),
    Panel(title="Limits hit", why="Time, cost, output or wait: is a limit too tight, or the work too large?",
          unit="ops", shape="stack", queries=(
              Query(f"sum by (limit, phase) (rate(pointsman_limit_hits_total{RATE}))", "{{limit}} {{phase}}"),)),
    Panel(title="Attempts lost", why="Workers that died in the middle of a job; the job goes on.", unit="ops",
          queries=(Query(f"sum by (queue_name) (rate(pointsman_job_attempts_total{_DIED}{RATE}))", "{{queue_name}}"),)),
    Panel(title="Duplicates fenced", why="Second copies of messages that were refused: proof, not trouble.", unit="ops",
          queries=(Query(f"sum by (queue_name) (rate(pointsman_duplicates_fenced_total{RATE}))", "{{queue_name}}"),)),
    Panel(title="Messages that nobody serves", why="A producer has a typo, or is of another version.",
          bad=1, queries=(Query('sum(pointsman_broker_messages{queue_name="unrouted"})', "unrouted"),)),
))  # fmt: skip

_BELOW = Row("The broker and the record", (
    Panel(title="Broker's memory", why="Above three quarters: it must never throw anything away.", unit="bytes",
          queries=(Query("sum(pointsman_broker_memory_used_bytes)", "used"),
                   Query("sum(pointsman_broker_memory_limit_bytes) > 0", "limit"))),
    Panel(title="On the broker's lists", why="A short runway each; the rest waits in the ledger.", shape="stack",
          queries=(Query("sum by (queue_name) (pointsman_broker_messages)", "{{queue_name}}"),)),
    Panel(title="Connections to the broker", why="Rises without end: a client leaks them.",
          queries=(Query("sum(pointsman_broker_clients)", "clients"),)),
    Panel(title="Keys that the broker threw away", why="Any is a message lost: set noeviction. They are pushed again.",
          bad=1, queries=(Query("sum(pointsman_broker_evicted_keys_total)", "evicted"),)),
    Panel(title="Age of what is not counted yet", why="Above a minute: the exporter cannot keep up.", unit="s",
          warn=10, bad=60, queries=(Query("max(pointsman_fold_lag_seconds)", "not folded"),)),
    Panel(title="Age of what is not sealed yet", why="Above a minute: no dispatcher seals the audit trail.", unit="s",
          warn=30, bad=120, queries=(Query("max(pointsman_audit_unsealed_age_seconds)", "not sealed"),)),
))  # fmt: skip

FLEET = Board(
    uid="pointsman-fleet", title="Pointsman / Fleet overview",
    why="Is the fleet working, and who or what is waited for?", rows=(_NOW, _FLOW, _WRONG, _BELOW),
)  # fmt: skip

_WAITING = Row("Waiting", (
    Panel(title="Waiting", why="Jobs that wait for a worker.",
          queries=(Query(f"sum by (queue_name) (pointsman_queue_depth{QUEUES})", "{{queue_name}}"),)),
    Panel(title="Time in queue", why="The wait that callers feel.", unit="s",
          queries=quantiles("pointsman_queue_wait_seconds", "queue_name", QUEUES, of=(0.5, 0.95, 0.99))),
    Panel(title="Backlog in seconds of work", why="Divide by the slots: so long until it is worked off.", unit="s",
          queries=(Query(f"sum by (queue_name) (pointsman_backlog_work_seconds{QUEUES})", "{{queue_name}}"),)),
    Panel(title="Backlog in dollars", why="What the waiting jobs will probably cost.", unit="currencyUSD",
          queries=(Query(f"sum by (queue_name) (pointsman_backlog_usd{QUEUES})", "{{queue_name}}"),)),
    Panel(title="Arrivals and starts", why="Arrivals above starts for long: the queue grows.", unit="ops", queries=(
        Query(f"sum by (queue_name) (rate(pointsman_jobs_enqueued_total{QUEUES}{RATE}))", "{{queue_name}} enqueued"),
        Query(f"sum by (queue_name) (rate(pointsman_jobs_started_total{QUEUES}{RATE}))", "{{queue_name}} started"))),
    Panel(title="Paused", why="1 while operators hold it.",
          queries=(Query(f"max by (queue_name) (pointsman_queue_paused{QUEUES})", "{{queue_name}}"),)),
))  # fmt: skip

_WORK = Row("Work", (
    Panel(title="Slots", why="How many jobs its workers take at once, and how many they have.", queries=(
        Query(f"sum by (queue_name) (pointsman_slots{QUEUES})", "{{queue_name}} slots"),
        Query(f"sum by (queue_name) (pointsman_slots_busy{QUEUES})", "{{queue_name}} taken"))),
    Panel(title="Attempts under way", why="At the number of slots: the pool is full.",
          queries=(Query(f"sum by (queue_name) (pointsman_attempts_running{QUEUES})", "{{queue_name}}"),)),
    Panel(title="Attempts take", why="All outcomes: a rise towards the limit comes before time-outs.", unit="s",
          queries=quantiles("pointsman_attempt_duration_seconds", "queue_name", QUEUES)),
    Panel(title="Longest under way", why="Near the hard limit: it hangs, and will be ended there.", unit="s",
          queries=(Query(f"max by (queue_name) (pointsman_attempt_oldest_age_seconds{QUEUES})", "{{queue_name}}"),)),
    Panel(title="Outcomes", why="What attempts come to.", unit="ops", shape="stack", queries=(
        Query(f"sum by (outcome) (rate(pointsman_job_attempts_total{QUEUES}{RATE})) > 0", "{{outcome}}"),)),
    Panel(title="Leases", why="Longest time since a running attempt was heard of; at 20 s its job is taken away.",
          unit="s", warn=10, bad=20, queries=(
              Query(f"max by (queue_name) (pointsman_lease_age_seconds_max{QUEUES})", "{{queue_name}}"),)),
    Panel(title="Limits hit", why="Which limit, and whether before or during work.", unit="ops", queries=(
        Query(f"sum by (limit, phase) (rate(pointsman_limit_hits_total{QUEUES}{RATE}))", "{{limit}} {{phase}}"),)),
    Panel(title="Dead letters", why="See to them with `pointsman dead`.",
          queries=(Query(f"sum by (queue_name) (pointsman_dead_letters{QUEUES})", "{{queue_name}}"),)),
    Panel(title="Messages of another version", why="An upgrade is under way, or stuck.", unit="ops", queries=(
        Query(f"sum by (queue_name) (rate(pointsman_messages_unread_total{QUEUES}{RATE}))", "{{queue_name}}"),)),
))  # fmt: skip

QUEUE = Board(
    uid="pointsman-queue", title="Pointsman / Queue", why="How does one queue do, and how many workers does it need?",
    choices=(Choice.QUEUE,), rows=(_WAITING, _WORK),
)  # fmt: skip
