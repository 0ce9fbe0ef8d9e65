"""tests/unit/routing/prompt"""
