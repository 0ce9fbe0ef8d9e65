"""tests/unit/routing/clarify"""
