"""What several processes share out, and in which order: they are done together only if no long file comes last."""

from xdist.scheduler import LoadFileScheduling

BOXES = "tests/box/"
INSTALLATION = "tests/acceptance/installation.py"
"""Stands for the files of tests that drive one installation: a dozen processes, half a minute to start."""
ON_INSTALLATION = frozenset(
    f"tests/acceptance/{name}.py"
    for name in (
        "test_recovery",
        "test_hard_limit",
        "test_main_job",
        "test_browser",
        "test_console_browser",
        "test_guides",
        "test_panels",
        "test_backup",
        "test_rolling_restart",
    )
)
LONGEST_FIRST = (
    # boxes, fire and the one installation begin together, each in a process of its own; fire counts what runs beside it
    "test_fleet.py",
    "test_hostile_agent.py",
    "test_leftovers.py",
    "test_built_sites.py",
    "test_ticket_agents.py",
    "test_wall.py",
    "test_conformance.py",
    "test_spending.py",
    "test_agent_session.py",
    "test_canary.py",
    "test_real_cli.py",
    "test_team_cli.py",
    "test_smoke.py",
    "test_recovery.py",
    "test_hard_limit.py",
    "test_main_job.py",
    "test_browser.py",
    # what has a fleet of its own, or a browser
    "test_wheel.py",
    "test_design.py",
    "test_scan_in_browser.py",
    "test_real_sites.py",
    "test_json_render.py",
    # unit and integration
    "test_steps.py",
    "test_publish.py",
    "test_rounds.py",
    "test_backup.py",
    "test_runs_killed.py",
    "test_runs_stopped.py",
    "test_api_fuzz.py",
    "test_dispatcher_hardened.py",
    "test_gateway.py",
    "test_agent_jobs.py",
    "test_runs_dispatched.py",
    "test_broker_users.py",
    "test_celery_door.py",
    "test_tls.py",
    "test_exporter.py",
    "test_parked_jobs.py",
    "test_sweeping.py",
    "test_scale.py",
    "test_tenants.py",
    "test_isolation.py",
    "test_mirror.py",
    "test_runs.py",
    "test_lock_machine.py",
    "test_stopping.py",
    "test_agent_alone.py",
    "test_ledger_upgrade.py",
    "test_pitfalls.py",
    "test_budget_machine.py",
    "test_api_runs.py",
    "test_run_publishing.py",
)
"""Files of more than some ten seconds, as measured (`pytest --durations`); the others follow in their own order."""


def place_of(name: str) -> int:
    """Return a file's place; files that are not named share the last one."""
    return LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST)


class ByFileAndServers(LoadFileScheduling):
    """A file's tests stay together, and so do those that share an engine with its image, or an installation."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(BOXES):
            return BOXES
        file = str(super()._split_scope(nodeid))
        return INSTALLATION if file in ON_INSTALLATION else file
