"""Cells, as far as PostgreSQL remembers them: the directory of a fleet, and what belongs to a tenant."""
