"""The package mirror: read-only access from a box to the operator's package registries."""
