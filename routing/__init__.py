"""Decide: what a job is, where it goes, and what it may cost."""

__version__ = "0.1.0"
