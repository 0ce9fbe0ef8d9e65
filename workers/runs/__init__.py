"""Runs of the ticket lane: agents, plans, the workspace they share, and what takes them forward."""
