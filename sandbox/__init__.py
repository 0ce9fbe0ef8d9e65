"""Boxes and their walls: containers, their image, the package mirror, Claude Code sessions."""
