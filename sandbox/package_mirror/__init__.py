"""The package mirror: the read-only way from a box to the registries that the operator's package managers use."""
