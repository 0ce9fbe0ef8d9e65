"""Runs of the ticket workflow: agents, plans, the workspace they share, and what takes them forward."""
