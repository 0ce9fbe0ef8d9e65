"""Runs of the ticket lane: plans, schedules, workspaces, runners and gates."""
