"""Runs of tickets: their tables, their steps and their gates."""
