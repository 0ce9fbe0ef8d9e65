"""Decide where a prompt goes, and explain it."""
