"""The catalog: one module per component. A module that defines `COMPONENT` is in the catalog; nothing else changes."""
