"""tests/unit/sites"""
