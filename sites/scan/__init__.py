"""The policy scan: what every release of every tier must pass before a person may see or publish it."""
