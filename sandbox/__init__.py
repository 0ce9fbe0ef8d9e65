"""Isolated boxes for untrusted code: containers, their image, the package mirror and Claude Code sessions."""
