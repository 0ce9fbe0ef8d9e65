"""tests/unit/routing/policy"""
