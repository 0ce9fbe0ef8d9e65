"""The components of the catalog, by family; every `Component` that a module here defines is registered."""
