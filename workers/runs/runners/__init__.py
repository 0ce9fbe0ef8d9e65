"""How an agent is run: one interface, and a runner for each runtime."""
