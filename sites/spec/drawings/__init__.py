"""Drawings: the stock ones as SVG, and those that a model draws for one site as data."""
