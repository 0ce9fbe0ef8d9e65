"""The fleet under fire: `make chaos`, or `python -m tests.chaos`."""
