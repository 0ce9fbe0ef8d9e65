"""`pointsman eval`: cases that run through the whole pipeline, and what must be true of their results."""
