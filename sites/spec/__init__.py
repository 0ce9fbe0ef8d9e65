"""Tier 1: a site as a json-render spec, checked, edited as data and rendered to static HTML and CSS."""
