"""Decide: what a job is, where it goes, and what it may cost."""
