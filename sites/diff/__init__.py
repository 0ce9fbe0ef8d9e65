"""Tier 2's engine: file-level diffs, parsed without trust, matched without guessing, applied all or nothing."""
