"""tests/unit/sites/spec/drawings"""
