"""A whole installation on one machine."""
