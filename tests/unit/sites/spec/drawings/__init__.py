"""tests/unit/sites/spec/components"""
