"""tests/unit/sites/spec/languages"""
