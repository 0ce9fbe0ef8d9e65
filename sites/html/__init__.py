"""Structured edits of plain HTML: one text, attribute or element changes, and every other byte stays as it was."""
