"""Forges: pull requests and comments at GitHub and GitLab, and the keys of their repositories."""
