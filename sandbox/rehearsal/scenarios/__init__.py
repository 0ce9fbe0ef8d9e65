"""Scenario files that ship with the product: `default.yaml` matches last, `faults.yaml` is loaded on request."""
