"""tests/unit/routing/decision"""
