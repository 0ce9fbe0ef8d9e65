"""Boxes that are containers of a Docker engine."""
