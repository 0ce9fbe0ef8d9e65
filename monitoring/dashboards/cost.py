"""Where the money goes, and when it is gone."""

from __future__ import annotations

from monitoring.dashboards.panels import RATE, TIERS, Board, Choice, Panel, Query, Row, quantiles, share

_BUDGETS = Row("Budgets", (
    Panel(title="The fleet's day", why="Reserved is held for calls under way; high for long is a leak.",
          unit="currencyUSD", queries=(
              Query('sum(pointsman_budget_spent_usd{scope="fleet_day"})', "spent"),
              Query('sum(pointsman_budget_reserved_usd{scope="fleet_day"})', "reserved"),
              Query('sum(pointsman_budget_limit_usd{scope="fleet_day"})', "limit"))),
    Panel(title="Fullest budget", why="At 1 its jobs end budget_exceeded.", unit="percentunit", warn=0.8, bad=0.95,
          queries=(Query("max by (scope) (pointsman_budget_used_ratio_max)", "{{scope}}"),)),
))  # fmt: skip

_SPENDING = Row("Spending", (
    Panel(title="USD per hour by tier and model", why="What a change of models or prompts does to the bill.",
          unit="currencyUSD", shape="stack", queries=(
              Query(f"3600 * sum by (tier, model) (rate(pointsman_cost_usd_total{TIERS}{RATE})) > 0",
                    "{{tier}} {{model}}"),)),
    Panel(title="USD for each job that ended well", why="The price of a result.", unit="currencyUSD", queries=(
        Query(share(f"sum(increase(pointsman_cost_usd_total{TIERS}[1h]))",
                    'sum(increase(pointsman_jobs_finished_total{tier=~"$tier",state=~"answered|published"}[1h]))'),
              "USD"),)),
    Panel(title="Cost of a job", why="By tier, over all its attempts.", unit="currencyUSD",
          queries=quantiles("pointsman_job_cost_usd", "tier", TIERS)),
    Panel(title="Wasted share", why="Paid for attempts whose result was not used.", unit="percentunit", warn=0.15,
          queries=(Query(share(f"sum(increase(pointsman_cost_wasted_usd_total{TIERS}[1h]))",
                               f"sum(increase(pointsman_cost_usd_total{TIERS}[1h]))"), "wasted"),)),
    Panel(title="Tokens by kind", why="Cache reads are cheap: a fall of theirs is a rise of the bill.", unit="ops",
          shape="stack", queries=(Query(f"sum by (kind) (rate(pointsman_tokens_total{TIERS}{RATE}))", "{{kind}}"),)),
    Panel(title="Cost limits hit", why="Before a call (admit), in the middle of one (stream), or a job's end (run).",
          unit="ops", queries=(
              Query(f'sum by (tier, phase) (rate(pointsman_limit_hits_total{{limit="cost",tier=~"$tier"}}{RATE}))',
                    "{{tier}} {{phase}}"),)),
    Panel(title="Backlog in dollars", why="Already promised: what waits will probably cost so much.",
          unit="currencyUSD", queries=(Query("sum(pointsman_backlog_usd)", "waiting"),)),
    Panel(title="Bytes that jobs made", why="Output is a limit, too: the upper half of what they leave.", unit="bytes",
          queries=quantiles("pointsman_output_bytes", "tier", TIERS)),
))  # fmt: skip

_PROVIDERS = Row("Providers", (
    Panel(title="Calls by answer", why="429 and 529: the provider wants less; 5xx: it fails.", unit="ops",
          shape="stack", queries=(
              Query(f"sum by (provider, code) (rate(pointsman_provider_requests_total{RATE})) > 0",
                    "{{provider}} {{code}}"),)),
    Panel(title="Breakers", why="0 flows, 1 tries one call, 2 is parked: its jobs wait and lose no attempt.",
          warn=1, bad=2, queries=(
              Query("max by (provider, model) (pointsman_provider_breaker_state)", "{{provider}} {{model}}"),)),
    Panel(title="Parked for", why="Until then no call is made.", unit="s", queries=(
        Query("max by (provider, model) (pointsman_lane_parked_seconds)", "{{provider}} {{model}}"),)),
    Panel(title="Times parked", why="Rises daily: ask the provider for more, or spread the load.", unit="ops",
          queries=(Query(f"sum by (provider, reason) (rate(pointsman_lane_parks_total{RATE}))",
                         "{{provider}} {{reason}}"),)),
))  # fmt: skip

COST = Board(
    uid="pointsman-cost", title="Pointsman / Cost and budgets", why="Where does the money go, and when is it gone?",
    choices=(Choice.TIER,), rows=(_BUDGETS, _SPENDING, _PROVIDERS),
)  # fmt: skip
